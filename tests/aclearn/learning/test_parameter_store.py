"""The published weights: newer ones only, and always whole."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from aclearn.learning import ParameterStore
from aclearn.types import PolicyVersion
from tests.support.waiting import DEADLINE_S


def _tensors(number: float) -> dict:
    return {name: np.full(3, number, np.float32) for name in ("a", "b")}


def test_an_empty_store_has_nothing_for_anybody() -> None:
    store = ParameterStore()
    assert store.at == PolicyVersion()
    assert store.newer_than(PolicyVersion()) is None


@pytest.mark.parametrize("known", [PolicyVersion(), PolicyVersion(0, 99), PolicyVersion(1, 4)])
def test_a_request_with_an_older_version_gets_the_newest(known: PolicyVersion) -> None:
    store = ParameterStore()
    tensors = _tensors(1)
    store.publish(PolicyVersion(1, 5), tensors)
    newer = store.newer_than(known)
    assert newer is not None
    assert (newer.at, newer.tensors) == (PolicyVersion(1, 5), tensors)


@pytest.mark.parametrize("known", [PolicyVersion(1, 5), PolicyVersion(1, 6), PolicyVersion(2, 0)])
def test_a_request_with_the_same_or_a_newer_version_gets_nothing(known: PolicyVersion) -> None:
    store = ParameterStore()
    store.publish(PolicyVersion(1, 5), _tensors(1))
    assert store.newer_than(known) is None


@pytest.mark.parametrize("at", [PolicyVersion(1, 5), PolicyVersion(1, 4), PolicyVersion(0, 9)])
def test_what_is_not_newer_is_refused_and_the_published_stays(at: PolicyVersion) -> None:
    store = ParameterStore()
    store.publish(PolicyVersion(1, 5), _tensors(1))
    with pytest.raises(ValueError, match="is not newer than the published"):
        store.publish(at, _tensors(2))
    newest = store.newer_than(PolicyVersion())
    assert newest is not None
    assert newest.at == store.at == PolicyVersion(1, 5)
    assert newest.tensors["a"][0] == 1


def test_a_new_generation_begins_at_any_version() -> None:
    store = ParameterStore()
    store.publish(PolicyVersion(0, 500), _tensors(1))
    store.publish(PolicyVersion(1, 20), _tensors(2))
    assert store.at == PolicyVersion(1, 20)


def test_a_reader_beside_a_writer_sees_whole_versions_that_only_grow() -> None:
    store, last = ParameterStore(), 300
    seen: list[PolicyVersion] = []
    mixed: list[PolicyVersion] = []

    def read() -> None:
        known = PolicyVersion()
        while known.version < last:
            newer = store.newer_than(known)
            if newer is None:
                continue
            numbers = {float(x) for tensor in newer.tensors.values() for x in tensor}
            if numbers != {float(newer.at.version)}:
                mixed.append(newer.at)
            known = newer.at
            seen.append(known)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    for version in range(last + 1):
        store.publish(PolicyVersion(0, version), _tensors(version))
    reader.join(DEADLINE_S)
    assert not reader.is_alive()
    assert mixed == []
    assert seen == sorted(set(seen))
    assert seen[-1] == PolicyVersion(0, last)
