"""Requesting weights from a trainer's real socket, with a clock that the test sets."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from aclearn.types import PolicyVersion
from aclearn.wire import ErrorReply, NoNewerWeights, Peer, Status, Weights, WeightsRequest
from compress import ArtifactRuntime, OnnxRuntime, Policy, parse_chain
from compress.runtimes.torch_runtime import TorchRuntime
from services.policy.client import PolicyClient
from services.policy.sources import weights_source
from services.role.request_client import PeerLink
from tests.support.acting import parameters_of
from tests.support.contexts import context_of


class Pulling:
    """A weights client and its trainer."""

    def __init__(self, roles, tools) -> None:
        self.roles, self.tools = roles, tools
        self.clock, self.known = tools.Clock(), tools.KnownPeers()
        self.runtime = tools.RecordingRuntime()
        self.link = PeerLink(roles("actor-0"), "weights")
        self.client = PolicyClient(self.link, weights_source(self.runtime), clock=self.clock)
        self.start_trainer()

    def start_trainer(self) -> None:
        context = self.roles("trainer-0")
        self.trainer, endpoint = context.serve("weights")
        self.known.learn(Peer("trainer", "trainer-0", context.incarnation, {"weights": endpoint}))

    def poll(self) -> None:
        self.client.poll(self.known)

    def asked(self) -> WeightsRequest:
        """The next request; time passes while the connection is made."""

        def poll_a_little_later() -> None:
            self.clock.now += 0.02
            self.poll()

        self.routing_id, envelope = self.tools.next_message(self.trainer, poll_a_little_later)
        return envelope.message

    def answer(self, message) -> None:
        assert self.trainer.send(self.routing_id, message)
        assert self.link.client.transport.wait(self.tools.deadline_s)
        self.poll()

    def quiet(self) -> bool:
        return self.tools.nothing_comes(self.trainer, self.poll)


def _weights(generation: int, version: int) -> Weights:
    return Weights(generation, version, {"a": np.full(2, version, np.float32)})


@pytest.fixture
def pulling(roles, tools) -> Pulling:
    return Pulling(roles, tools)


def test_newer_weights_are_asked_for_and_taken(pulling) -> None:
    assert pulling.client.at == PolicyVersion(-1, -1)
    assert pulling.asked() == WeightsRequest(-1, -1)
    pulling.answer(_weights(0, 3))
    assert pulling.client.at == PolicyVersion(0, 3)
    assert pulling.asked() == WeightsRequest(0, 3)
    pulling.answer(_weights(0, 7))
    assert (pulling.client.at, pulling.client.swaps) == (PolicyVersion(0, 7), 2)
    assert [tensors["a"].tolist() for tensors in pulling.runtime.swapped] == [[3, 3], [7, 7]]


def test_one_question_is_out_at_a_time_and_the_next_comes_after_a_pause(pulling) -> None:
    pulling.asked()
    assert pulling.quiet()
    pulling.answer(NoNewerWeights())
    assert pulling.quiet()
    pulling.clock.now += 0.049
    assert pulling.quiet()
    pulling.clock.now += 0.002
    assert pulling.asked() == WeightsRequest(-1, -1)


def test_a_peer_with_many_clients_tells_when_to_ask_again(pulling) -> None:
    pulling.asked()
    for answer, known in (
        (NoNewerWeights(pause_s=3.0), WeightsRequest(-1, -1)),
        (replace(_weights(0, 3), pause_s=2.0), WeightsRequest(0, 3)),
        (NoNewerWeights(pause_s=0.001), WeightsRequest(0, 3)),  # not more often than by itself
    ):
        pulling.answer(answer)
        pulling.clock.now += max(0.05, answer.pause_s) - 0.001
        assert pulling.quiet()
        pulling.clock.now += 0.002
        assert pulling.asked() == known


def test_who_can_do_nothing_else_asks_again_soon_and_wakes_with_the_answer(pulling) -> None:
    pulling.asked()
    for answer, pause_s, known in (
        (NoNewerWeights(), 0.01, -1),
        (_weights(0, 3), 0.01, 3),
        (NoNewerWeights(pause_s=3.0), 3.0, 3),  # a peer with many clients
    ):
        pulling.answer(answer)
        pulling.client.wait(0.0)
        pulling.clock.now += pause_s - 0.001
        assert pulling.quiet()
        pulling.clock.now += 0.002
        assert pulling.asked().version == known
    begun = time.monotonic()
    assert pulling.trainer.send(pulling.routing_id, _weights(0, 4))
    pulling.client.wait(pulling.tools.deadline_s)
    assert time.monotonic() - begun < pulling.tools.deadline_s / 2
    pulling.poll()
    assert pulling.client.at == PolicyVersion(0, 4)


def test_the_next_peer_is_asked_when_the_socket_of_one_is_gone(pulling) -> None:
    first, [peer] = pulling.trainer, pulling.known.peers
    pulling.asked()
    pulling.answer(_weights(0, 3))
    pulling.start_trainer()
    pulling.known.learn(peer, *pulling.known.peers)
    first.close()
    assert pulling.asked() == WeightsRequest(0, 3)  # of the second
    pulling.answer(_weights(0, 7))
    assert pulling.client.at == PolicyVersion(0, 7)


def test_a_swap_to_a_policy_with_another_state_is_said_once_and_counted(pulling, caplog) -> None:
    load = pulling.client._source.load
    own = iter([None, None, ((4,),), ((4,),), ((6,),), None])

    def with_state(reply):
        return replace(load(reply), own_state=next(own))

    pulling.client._source = pulling.client._source._replace(load=with_state)
    restarts = []
    for version in range(6):
        pulling.asked()
        pulling.answer(_weights(0, version))
        restarts.append(pulling.client.gauges()["state_restarts"])
    assert restarts == [0, 0, 1, 1, 2, 3]
    assert sum("event=state_restarts" in text for text in caplog.messages) == 1


def test_refused_weights_are_counted_and_the_old_ones_go_on(pulling) -> None:
    pulling.asked()
    pulling.answer(_weights(0, 3))
    pulling.runtime.refuse = True
    pulling.asked()
    pulling.answer(_weights(0, 4))
    assert (pulling.client.at, pulling.client.refused) == (PolicyVersion(0, 3), 1)
    assert pulling.client.gauges() == {
        "policy_swaps": 1.0,
        "policy_refused": 1.0,
        "state_restarts": 0.0,
    }
    assert len(pulling.runtime.swapped) == 1
    # the refused version is not requested again, but later ones are
    assert pulling.asked() == WeightsRequest(0, 4)
    pulling.runtime.refuse = False
    pulling.answer(_weights(0, 5))
    assert (pulling.client.at, pulling.client.refused) == (PolicyVersion(0, 5), 1)
    assert pulling.asked() == WeightsRequest(0, 5)


@pytest.mark.parametrize("late", [(1, 7), (1, 6), (1, 1), (0, 7), (0, 500)])
def test_an_answer_that_was_overtaken_changes_nothing(pulling, late) -> None:
    pulling.asked()
    pulling.answer(_weights(1, 7))
    pulling.answer(_weights(*late))
    assert (pulling.client.at, pulling.client.swaps) == (PolicyVersion(1, 7), 1)


def test_a_trainer_that_was_started_again_is_asked_at_once_and_its_generation_counts(
    pulling,
) -> None:
    pulling.asked()
    pulling.answer(_weights(0, 500))
    pulling.asked()  # this question dies with its trainer
    pulling.start_trainer()
    before = pulling.clock.now
    assert pulling.asked() == WeightsRequest(0, 500)
    assert pulling.clock.now < before + 4.0  # without waiting for the old trainer's answer
    pulling.answer(_weights(1, 20))  # resumed from a checkpoint: fewer updates, higher generation
    assert pulling.client.at == PolicyVersion(1, 20)


@pytest.mark.parametrize(("cost_s", "pause_s"), [(0.012, 0.4), (0.3, 1.0)])
def test_costly_swaps_are_asked_for_less_often(pulling, cost_s, pause_s) -> None:
    # at a share of 0.03 of the time; 0.3 s would be a pause of 10 s, which is cut to 1 s

    def swap_slowly() -> None:
        pulling.clock.now += cost_s

    pulling.runtime.on_swap = swap_slowly
    pulling.asked()
    pulling.answer(_weights(0, 1))
    pulling.clock.now += pause_s - 0.01
    assert pulling.quiet()
    pulling.clock.now += 0.02
    assert pulling.asked() == WeightsRequest(0, 1)


@pytest.mark.parametrize("answer", [ErrorReply("bad_header", "?"), Status("{}")])
def test_an_answer_without_weights_leaves_everything_as_it_was(pulling, answer) -> None:
    pulling.asked()
    pulling.answer(answer)
    assert (pulling.client.at, pulling.client.swaps) == (PolicyVersion(), 0)
    assert pulling.asked() == WeightsRequest(-1, -1)


def test_without_a_trainer_polling_does_nothing(roles, tools) -> None:
    runtime = tools.RecordingRuntime()
    client = PolicyClient(PeerLink(roles("actor-0"), "weights"), weights_source(runtime))
    for _ in range(3):
        client.poll(tools.KnownPeers())
    assert (client.at, client.swaps, runtime.swapped) == (PolicyVersion(), 0, [])


def _artifact(architecture, tensors):
    chain = parse_chain(["onnx"], min_action_prob=0.1)
    observations = np.zeros((4, 3), np.float32)
    return chain.compress(Policy.of(architecture, tensors), context_of(observations))


@pytest.mark.parametrize("make", [OnnxRuntime, TorchRuntime, ArtifactRuntime])
def test_the_executable_of_every_runtime_outlives_the_next_one(tools, make) -> None:
    runtime = make(tools.flat)
    observations = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    shapes = tools.flat.tensor_shapes().items()
    executables, logits = [], []
    for seed in (1, 2):
        rng = np.random.default_rng(seed)
        tensors = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes}
        given = _artifact(tools.flat, tensors) if make is ArtifactRuntime else tensors
        executables.append(runtime.load(given))
        logits.append(parameters_of(executables[-1], observations))
    assert np.abs(logits[0] - logits[1]).max() > 0.05
    for executable, expected in zip(executables, logits, strict=True):
        answer = parameters_of(executable, observations)
        np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=1e-6)
