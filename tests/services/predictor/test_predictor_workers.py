"""The predictor's workers: they change, fail, answer at the same time and wait for room."""

from __future__ import annotations

import select
import threading
from types import SimpleNamespace

import numpy as np

from aclearn.rollout import PolicySnapshot
from aclearn.types import (
    OBSERVATION,
    PolicyVersion,
)
from aclearn.wire import ActRequest
from services.predictor.outbox import Outbox
from tests.support.predicting import act_request, pending_of


def _fails_at(value: float, executable) -> SimpleNamespace:
    """An executable that raises when it sees an observation that begins with `value`."""

    def step(observations, state):
        if (observations[OBSERVATION][:, 0] == value).any():
            raise ZeroDivisionError("a kernel that does not work")
        return executable.step(observations, state)

    return SimpleNamespace(step=step)


def _poison(number: int) -> ActRequest:
    return ActRequest(number, {OBSERVATION: np.full((1, 3), 666.0, np.float32)})


def test_a_batch_that_fails_is_counted_and_the_worker_goes_on(serving, caplog) -> None:
    serving.acting = PolicySnapshot(
        _fails_at(666.0, serving.acting.executable), PolicyVersion(0, 1)
    )
    serving.start(max_batch=1)
    actor = serving.actor(0)
    for number in range(1, 6, 2):  # two in a row at most
        assert actor.send(_poison(number))
        assert actor.send(_poison(number + 100))
        assert actor.send(act_request(1, number + 200))
        assert serving.reply_to(actor).request == number + 200
    assert serving.counter("worker_failures") == 6
    assert serving.counter("requests_dropped.worker_failed") == 6
    assert "a kernel that does not work" in caplog.text


def test_a_reply_names_the_policy_that_computed_it_though_another_came_meanwhile(serving) -> None:
    began, goes_on = threading.Event(), threading.Event()
    old = serving.acting.executable

    def step(observations, state):
        began.set()
        assert goes_on.wait(serving.tools.deadline_s)
        return old.step(observations, state)

    serving.acting = PolicySnapshot(SimpleNamespace(step=step), PolicyVersion(0, 1), "old")
    serving.start(workers=1)
    actor = serving.actor(0)
    assert actor.send(act_request(1, 1))
    serving.until(began.is_set, "the batch is being computed")
    serving.acting = PolicySnapshot(old, PolicyVersion(0, 2), "new")
    assert actor.send(act_request(1, 2))
    serving.until(lambda: len(serving.queue) == 1, "the next request waits")
    goes_on.set()
    first, second = serving.reply_to(actor), serving.reply_to(actor)
    assert (first.request, first.version, first.chain) == (1, 1, "old")
    assert (second.request, second.version, second.chain) == (2, 2, "new")


def test_a_batch_in_the_outbox_ends_the_wait_at_the_socket(serving) -> None:
    outbox = Outbox()
    outbox.put([])
    outbox.put([])
    # minutes, were it not woken
    assert serving.server.receive(300.0, wake=outbox.wake_fd) == []
    assert outbox.take() == [[], []]
    assert outbox.take() == []
    assert select.select([outbox.wake_fd], [], [], 0)[0] == []
    outbox.put([])
    assert serving.server.receive(300.0, wake=outbox.wake_fd) == []
    outbox.close()


def test_a_full_outbox_keeps_a_worker_until_there_is_room(tools) -> None:
    outbox, put = Outbox(most=2), []
    batches = [[(pending, None)] for pending in pending_of([1, 1, 1, 1])]

    def put_all() -> None:
        for batch in batches:
            outbox.put(batch)
            put.append(batch)

    worker = threading.Thread(target=put_all, daemon=True)
    worker.start()
    tools.wait_until(lambda: len(put) == 2, "two are in")
    assert outbox.take() == batches[:2]
    tools.wait_until(lambda: len(put) == 4, "two more are in")
    assert outbox.take() == batches[2:]
    worker.join(tools.deadline_s)
    outbox.close()


def test_closing_the_outbox_ends_the_wait_for_room(tools) -> None:
    outbox = Outbox(most=1)
    outbox.put([])
    worker = threading.Thread(target=outbox.put, args=([],), daemon=True)
    worker.start()
    outbox.close()
    worker.join(tools.deadline_s)
    assert not worker.is_alive()
