"""The trainer's sockets: an actor's messages reach the queue, the account, or get an answer."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from aclearn import wire
from aclearn.config import ActorsConfig, TrainerConfig
from aclearn.control.directives import SaveBest, SetWorkers
from aclearn.learning import TrainingQueue
from aclearn.types import OBSERVATION, PolicyVersion
from aclearn.wire import (
    DirectiveAck,
    ErrorReply,
    Heartbeat,
    Hello,
    NoNewerWeights,
    ObservationsRequest,
    UnrollReply,
    Weights,
    WeightsRequest,
)
from services.trainer.build import make_trainer
from services.trainer.server import QueueLoop

_TRAINER = TrainerConfig(device="cpu", amp="off", unrolls_per_batch=8)


class Front:
    """A running server of a trainer, its monitor and an actor."""

    def __init__(self, roles, tools, *, room: int) -> None:
        self.tools = tools
        self.monitor = roles("monitor-0").serve_at(roles.monitor, (Hello, Heartbeat, DirectiveAck))
        self.queue = TrainingQueue(max_bytes=1 << 20, max_items=room)
        self.wishes: list[int] = []
        self.means: list[float] = []
        context = roles("trainer-0")
        context.run.env_spec = tools.flat_unrolls.env
        context.config = context.config.model_copy(
            update={"actors": ActorsConfig(unroll_length=3), "trainer": _TRAINER}
        )
        trainer = make_trainer(context.config, context.run.env_spec, queue=self.queue)
        self.account, self.store = trainer.account, trainer.published
        checkpoints = SimpleNamespace(
            heartbeat_fields=lambda: {"counters": {}, "gauges": {}},
            obey=lambda best: self.means.append(best.return_mean),
        )
        # its worker waits for more unrolls than the queue has room for
        self.front = QueueLoop(context, trainer, checkpoints, {"default": self.queue})
        self.front._pool.resize = self.wishes.append
        self.store.publish(PolicyVersion(0, 1), {"a": torch.ones(2)})
        self.monitor_address, envelope = tools.next_message(self.monitor)
        endpoints = envelope.message.endpoints
        actor = roles("actor-0")
        self.unrolls = actor.connect(endpoints["unrolls"])
        self.weights = actor.connect(endpoints["weights"])
        self.sequence = 0

    def ship(self, unroll) -> int:
        self.sequence += 1
        assert self.unrolls.send(unroll, sequence=self.sequence, timeout_s=self.tools.deadline_s)
        return self.sequence

    def answers(self, count: int) -> list:
        got = [self.unrolls.receive(self.tools.deadline_s) for _ in range(count)]
        assert None not in got
        return [envelope.message for envelope in got]

    def ask(self, request):
        assert self.weights.send(request, timeout_s=self.tools.deadline_s)
        envelope = self.weights.receive(self.tools.deadline_s)
        assert envelope is not None
        return envelope.message


@pytest.fixture
def front(roles, tools):
    front = Front(roles, tools, room=2)
    yield front
    assert front.front.end()
    front.front.close()
    assert front.front._failure is None


def _numbers(front) -> tuple[int, int, int]:
    counters, dropped, _ = front.account.counters()
    return counters["env_steps"], sum(dropped.values()), counters["in_flight_steps"]


def test_a_malformed_unroll_is_counted_answered_and_not_admitted(front, tools) -> None:
    bad = replace(tools.make_unroll(), rewards=np.full((3, 2), np.nan, np.float32))
    sequence = front.ship(bad)
    refusal, acknowledgement = front.answers(2)
    assert isinstance(refusal, ErrorReply)
    assert "rewards: NaN or beyond 1e+12" in refusal.detail
    assert acknowledgement == UnrollReply(sequence, False, "bad_unroll")
    heartbeat = front.front.heartbeat()
    assert heartbeat.counters["refused.bad_unroll"] == 1 == heartbeat.gauges["refused_messages"]
    assert (len(front.queue), _numbers(front)) == (0, (6, 6, 0))
    assert front.account.counters()[1] == {"bad_unroll": 6}
    front.ship(bad)  # with the same counters
    assert front.answers(2)[1].reason == "bad_unroll"
    assert front.account.counters()[1] == {"bad_unroll": 6}
    # so is one for a policy that this trainer does not learn
    front.ship(tools.make_unroll(policy="other", env_steps_before=6, env_steps_after=12))
    assert [answer.reason for answer in front.answers(2)] == ["unknown_policy"] * 2
    assert front.account.counters()[1] == {"bad_unroll": 6, "unknown_policy": 6}
    # and the next valid one is admitted
    front.ship(tools.make_unroll(env_steps_before=12, env_steps_after=18))
    assert front.answers(1)[0].accepted


def test_unrolls_beyond_the_bounds_of_their_key_are_refused_and_others_are_taken(
    front, tools
) -> None:
    key = wire.AllowedKey("k" * 40, "rack7", ["actor"], processes=1, unrolls_per_s=0.01)
    unrolls, sender = front.front._unrolls, ["a", key]
    opened = unrolls._open_for

    def of_sender(frames, admission):
        incarnation, key = sender
        return replace(opened(frames, admission), incarnation=incarnation, key=key)

    unrolls._open_for = of_sender
    front.ship(tools.make_unroll())
    assert front.answers(1)[0].accepted
    front.ship(tools.make_unroll(env_steps_before=6, env_steps_after=12))
    refusal, acknowledgement = front.answers(2)
    assert refusal.reason == acknowledgement.reason == "quota"
    assert front.account.counters()[1] == {"quota": 6} and len(front.queue) == 1
    sender[0] = "b"  # a second process: its steps are not even counted
    front.ship(tools.make_unroll())
    assert "at most 1 processes" in front.answers(1)[0].detail
    assert _numbers(front) == (12, 6, 6)
    assert front.front.heartbeat().counters["refused.quota"] == 2
    sender[:] = "c", None
    front.ship(tools.make_unroll())
    assert front.answers(1)[0].accepted


def test_an_unroll_that_is_too_old_is_counted_as_dropped(front, tools) -> None:
    front.store.publish(PolicyVersion(1, 2), {"a": torch.ones(2)})
    front.ship(tools.make_unroll())  # of generation 0
    [reply] = front.answers(1)
    assert (reply.accepted, reply.reason) == (False, "old_generation")
    assert (len(front.queue), _numbers(front)) == (0, (6, 6, 0))


def test_an_unroll_waits_unacknowledged_until_the_queue_has_room(front, tools) -> None:
    unrolls = [
        replace(tools.make_unroll(), env_steps_before=6 * n, env_steps_after=6 * n + 6)
        for n in range(3)
    ]
    for unroll in unrolls:
        front.ship(unroll)
    assert [reply.unroll for reply in front.answers(2)] == [1, 2]
    assert front.unrolls.receive(0.1) is None
    assert len(front.queue) == 2
    front.queue.take(1, timeout_s=0)
    assert front.answers(1) == [UnrollReply(3, True, "")]


def test_at_a_bound_of_the_run_unrolls_are_counted_and_the_actor_waits(front, tools) -> None:
    front.account.reached = "max_updates"
    front.ship(tools.make_unroll())
    tools.wait_until(
        lambda: front.account.counters()[1] == {"max_updates": 6}, "the unroll is dropped"
    )
    assert front.unrolls.receive(0.1) is None
    assert isinstance(front.ask(WeightsRequest(-1, -1)), Weights)


def test_weights_and_observations_are_answered_while_the_queue_is_full(front, tools) -> None:
    for n in range(2):
        front.ship(replace(tools.make_unroll(), env_steps_before=6 * n, env_steps_after=6 * n + 6))
    front.answers(2)
    assert front.queue.full
    answer = front.ask(WeightsRequest(-1, -1))
    assert isinstance(answer, Weights)
    assert (answer.generation, answer.version) == (0, 1)
    assert answer.tensors["a"].tolist() == [1, 1]
    assert front.ask(WeightsRequest(0, 1)) == NoNewerWeights(pause_s=1 / 2000)
    assert len(front.ask(ObservationsRequest(1)).observations) == 1


def test_observations_are_those_of_the_admitted_unrolls(front, tools) -> None:
    answer = front.ask(ObservationsRequest(4))
    assert isinstance(answer, wire.RecentObservations) and answer.observations == {}
    unroll = tools.make_unroll()
    frames = unroll.observations[OBSERVATION]
    bad = replace(
        unroll,
        observations={OBSERVATION: frames + 10},
        rewards=np.full((3, 2), np.nan, np.float32),
    )
    front.ship(bad)
    front.ship(replace(unroll, env_steps_before=6, env_steps_after=12))
    front.answers(3)  # the refusal and two acknowledgements
    visited = {row.tobytes() for row in frames[:3].reshape(6, 3)}  # [T · B, D]
    for count, expected in ((4, 4), (100, 6)):
        observations = front.ask(ObservationsRequest(count)).observations[OBSERVATION]
        assert observations.shape == (expected, 3)
        drawn = {row.tobytes() for row in observations}
        assert len(drawn) == expected and drawn <= visited


def test_the_end_is_a_final_heartbeat_to_the_monitor(front, tools) -> None:
    front.front.close()
    heartbeats = []

    def read() -> bool:
        heartbeats.extend(envelope.message for _, envelope in front.monitor.receive(0.05))
        return any(isinstance(heartbeat, Heartbeat) and heartbeat.final for heartbeat in heartbeats)

    tools.wait_until(read, "the final heartbeat came")


def test_means_and_wishes_are_handed_on_by_the_thread_of_the_sockets(front, tools) -> None:
    # independent of the trainer's other threads: a checkpoint may take seconds
    for number, directive in enumerate((SaveBest(3.5), SaveBest(4.5), SetWorkers(3))):
        front.monitor.send(front.monitor_address, directive.message(number))
    tools.wait_until(
        lambda: (front.means, front.wishes) == ([3.5, 4.5], [3]), "all have come, in order"
    )
