"""The published weights: newer ones only, always whole, and those of the moment."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from aclearn.learning import PublishedWeights
from aclearn.policies.network import PolicyNetwork, tensors_of
from aclearn.types import PolicyVersion
from tests.support.waiting import DEADLINE_S


def _weights(number: float) -> dict[str, torch.Tensor]:
    return {name: torch.full((3,), float(number)) for name in ("a", "b")}


def _published(*versions: tuple[int, int]) -> PublishedWeights:
    published = PublishedWeights()
    for number, version in enumerate(versions, start=1):
        published.publish(PolicyVersion(*version), _weights(number))
    return published


@pytest.mark.parametrize(
    ("known", "newer"),
    [((-1, -1), True), ((0, 99), True), ((1, 4), True), ((1, 5), False), ((2, 0), False)],
)
def test_only_who_knows_an_older_version_gets_the_newest(known, newer) -> None:
    # a new generation begins at any version
    found = _published((0, 500), (1, 5)).newer_than(PolicyVersion(*known))
    assert (found is not None) == newer
    if found is not None:
        assert found.at == PolicyVersion(1, 5)
        assert {name: array.tolist() for name, array in found.tensors.items()} == {
            "a": [2.0] * 3,
            "b": [2.0] * 3,
        }


@pytest.mark.parametrize("at", [PolicyVersion(1, 5), PolicyVersion(1, 4), PolicyVersion(0, 9)])
def test_what_is_not_newer_is_refused_and_the_published_stays(at: PolicyVersion) -> None:
    published = _published((1, 5))
    with pytest.raises(ValueError, match="is not newer than the published"):
        published.publish(at, _weights(2))
    newest = published.newer_than(PolicyVersion())
    assert newest is not None
    assert newest.at == published.at == PolicyVersion(1, 5)
    assert newest.tensors["a"][0] == 1


def test_a_version_is_what_the_weights_were_whatever_becomes_of_them(make) -> None:
    for architecture in (make.images, make.residual, make.flat):
        network, published = PolicyNetwork(architecture, seed=1), PublishedWeights()
        if architecture.convolves:
            network.to(memory_format=torch.channels_last)
        expected = tensors_of(network)
        published.publish(PolicyVersion(0, 0), dict(network.named_parameters()))
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(1.0)
        newest = published.newer_than(PolicyVersion())
        assert newest is not None and list(newest.tensors) == list(expected)
        for name, tensor in newest.tensors.items():
            assert tensor.dtype == np.float32 and tensor.flags.c_contiguous
            np.testing.assert_array_equal(tensor, expected[name])


def test_threads_that_look_at_the_same_time_get_the_same_arrays() -> None:
    for _ in range(50):
        newest = _published((0, 0)).newer_than(PolicyVersion())
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda _, s=newest: s.tensors["a"], range(8)))
        assert all(array is found[0] for array in found)


def test_a_reader_beside_a_writer_sees_whole_versions_that_only_grow() -> None:
    published, last = PublishedWeights(), 300
    seen: list[PolicyVersion] = []
    mixed: list[PolicyVersion] = []

    def read() -> None:
        known = PolicyVersion()
        while known.version < last:
            newer = published.newer_than(known)
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
        published.publish(PolicyVersion(0, version), _weights(version))
    reader.join(DEADLINE_S)
    assert not reader.is_alive()
    assert mixed == []
    assert seen == sorted(set(seen))
    assert seen[-1] == PolicyVersion(0, last)
