"""An evaluator gets the weights of all policies of one version, never a mixture of two."""

from __future__ import annotations

import numpy as np
import pytest

from aclearn.types import PolicyVersion
from aclearn.wire import JudgementReply, NoNewerWeights, WeightsToJudge
from services.evaluator import trainer_client
from services.evaluator.trainer_client import TrainerClient


class _Trainer:
    """Answers at the next poll, as `Judging` does, with the version that is set aside."""

    def __init__(self, link, retry, take, clock) -> None:
        self.take, self.requests, self.asked = take, {}, []
        self.version = 3

    def __class_getitem__(cls, key):
        return cls

    def ask(self, key, request) -> None:
        self.requests[key] = request
        self.asked.append(request)

    def poll(self, monitor) -> None:
        for key, request in list(self.requests.items()):
            if hasattr(request, "return_mean"):
                answer = JudgementReply(request.version == self.version, request.policy)
            elif request.version >= self.version:
                answer = NoNewerWeights(request.policy)
            else:
                tensors = {"w": np.full(1, self.version, np.float32)}
                answer = WeightsToJudge(0, self.version, 100, tensors, request.policy)
            assert self.take(answer) == key
            del self.requests[key]


@pytest.fixture
def client(monkeypatch) -> TrainerClient:
    monkeypatch.setattr(trainer_client, "RequestClient", _Trainer)
    return TrainerClient(None, None, ("a", "b", "c"), clock=lambda: 0.0, ask_every_s=0.0)


def _given(client: TrainerClient, known: PolicyVersion, looks: int = 12):
    for _ in range(looks):
        if (given := client.newer_than(known)) is not None:
            return given
    return None


def test_all_policies_of_one_version_are_asked_for_one_after_another(client) -> None:
    given = _given(client, PolicyVersion())
    assert (given.at, given.env_steps, set(given.tensors)) == (PolicyVersion(0, 3), 100, set("abc"))
    assert [request.policy for request in client._client.asked[:3]] == ["a", "b", "c"]
    assert [request.version for request in client._client.asked[:3]] == [-1, 2, 2]
    assert _given(client, given.at) is None  # it is judged once


def test_another_version_in_between_begins_all_anew(client) -> None:
    client.newer_than(PolicyVersion())
    client.newer_than(PolicyVersion())  # "a" of version 3 is here
    client._client.version = 5
    given = _given(client, PolicyVersion())
    assert given.at == PolicyVersion(0, 5)
    assert {tensors["w"][0] for tensors in given.tensors.values()} == {5.0}


def test_a_judgement_is_of_the_first_policy_s_name_and_of_all(client) -> None:
    assert client.tell(PolicyVersion(0, 3), 1.5) is True
    assert client.tell(PolicyVersion(0, 2), 1.5) is False
    assert {request.policy for request in client._client.asked} == {"a"}
