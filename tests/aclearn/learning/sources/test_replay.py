"""Replay as a source of batches: the ratio, the account and the checkpoint."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from aclearn.config import ReplayConfig
from aclearn.learning import Batch, Replay, ReplayMemory, StepAccount
from aclearn.learning.sources import replay as module
from aclearn.learning.sources.source import BatchSource
from aclearn.types import OBSERVATION, UnrollSpec
from tests.support.env_specs import plain_spec

T, B = 4, 3
CPU = torch.device("cpu")
WORKER = SimpleNamespace(on_stream=nullcontext)


class Inner(BatchSource):
    """Batches of `ready` numbers of valid steps, whose steps are in flight."""

    def __init__(self, account: StepAccount) -> None:
        self._account, self.ready, self.asked, self._given = account, deque(), 0, 0

    def next(self, timeout_s, worker) -> Batch | None:
        self.asked += 1
        if not self.ready:
            return None
        valid = np.arange(T * B).reshape(T, B) < self.ready.popleft()
        self._given += 1
        self._account.produced("actor", int(valid.sum()))
        no = torch.zeros(T, B)
        return Batch(
            observations={OBSERVATION: torch.full((T + 1, B, 2), float(self._given))},
            actions=no.long(),
            behaviour_log_prob=no,
            rewards=no,
            terminated=no.bool(),
            truncated=no.bool(),
            valid=torch.from_numpy(valid),
            versions=np.zeros((T, B), np.int64),
            chain_steps={"none": int(valid.sum())},
        )


class Parts:
    """A replay of a small memory."""

    def __init__(self, columns: int = 9, **keys) -> None:
        self.config = ReplayConfig(**{"size": T * columns, "start": 1, "batch": 6, **keys})
        self.account = StepAccount()
        self.inner = Inner(self.account)
        spec = UnrollSpec(plain_spec((2,), "float32", 2), T)
        memory = ReplayMemory(spec, CPU, self.config, discount=0.99)
        self.memory = memory
        self.source = Replay(self.inner, memory, self.account, self.config)

    def learn(self) -> Batch | None:
        """Learn the next batch's new steps."""
        batch = self.source.next(0.0, WORKER)
        if batch is not None:
            self.account.learned(int(batch.new_steps))
            self.source.learned(batch, torch.ones(1, batch.width))
        self.account.check()
        return batch


@pytest.mark.parametrize("ratio", [0.5, 1.0, 7.5])
def test_drawn_steps_keep_the_ratio_to_new_ones(ratio: float) -> None:
    parts = Parts(ratio=ratio, start=10)
    drawn = added = 0
    for _ in range(60):
        parts.inner.ready.append(added % 7 + 5)
        asked = parts.inner.asked
        while parts.inner.ready:
            waiting = len(parts.inner.ready)
            batch = parts.learn()
            drawn += 0 if batch is None else batch.width
        added += added % 7 + 5
        assert waiting == 1
        assert drawn <= ratio * max(0, added - 10) < drawn + 6 + 12 * ratio
        assert parts.inner.asked == asked + 1, "it takes new steps only when it may draw no more"
    gauges = parts.source.heartbeat_fields()["gauges"]
    assert gauges["replay_ratio"] == pytest.approx(drawn / added)
    assert gauges["replay_steps"] == parts.memory.steps


@pytest.mark.parametrize(
    ("before", "after", "first", "then"),
    # of 12 steps 11 count, then of each 12 all: 44 are 7 batches of 6 and 2 steps more
    [(4.0, 1.0, 7, [0, 2, 2]), (1.0, 4.0, 1, [0, 8, 8])],
)
def test_another_ratio_holds_for_the_steps_that_come_after_it(
    before: float, after: float, first: int, then: list[int]
) -> None:
    parts, again = Parts(ratio=before), Parts(ratio=after)

    def draw_all(parts: Parts) -> int:
        drawn = 0
        while parts.learn():
            drawn += 1
        return drawn

    parts.inner.ready.append(12)
    assert draw_all(parts) == first
    again.source.restore(parts.source.state())
    drawn = [draw_all(again)]
    for _ in range(2):
        again.inner.ready.append(12)
        drawn.append(draw_all(again))
    assert drawn == then


def test_every_step_is_learned_once_or_dropped() -> None:
    parts = Parts(columns=6, ratio=0.7)
    for count in range(30):
        parts.inner.ready.append(6 + count % 7)
        while parts.inner.ready or parts.learn():
            parts.learn()
    account = parts.account
    assert account.dropped_steps.keys() == {"never_drawn"}
    assert 0 < account.in_flight_steps == parts.memory.never_drawn
    assert account.learned_steps > 0
    parts.source.close()
    parts.source.close()
    assert account.in_flight_steps == 0 < account.dropped_steps["shutdown"]
    account.check()
    parts.inner.ready.append(12)
    assert parts.source.next(0.0, WORKER) is None, "nothing of a closed source"


def test_batches_tell_the_chains_of_the_new_steps() -> None:
    parts = Parts(ratio=1.0)
    parts.inner.ready.extend([12, 12])
    first = parts.learn()
    assert first.chain_steps == {"none": 12}
    assert parts.learn().chain_steps == {"none": 12}
    assert parts.learn().chain_steps == {}


def test_a_checkpoint_has_a_small_memory_and_not_a_large_one(monkeypatch, caplog) -> None:
    parts = Parts(prioritised=True, ratio=1.0)
    parts.inner.ready.extend([12, 12, 12])
    for _ in range(3):
        parts.learn()
    saved, again = parts.source.state(), Parts(prioritised=True, ratio=1.0)
    again.source.restore(saved)
    assert again.memory.steps == parts.memory.steps and again.memory.never_drawn == 0
    for each in (parts, again):
        each.inner.ready.append(12)
    one, two = parts.learn(), again.source.next(0.0, WORKER)
    assert torch.equal(one.places, two.places), "and the same counts of drawn and new steps"

    monkeypatch.setattr(module, "SAVED_BYTES", 10)
    lost = Parts(prioritised=True)
    lost.source.restore(parts.source.state())
    assert lost.memory.steps == 0
    assert "event=replay_is_empty" in caplog.text


def test_a_memory_that_is_not_loaded_begins_again(caplog) -> None:
    parts, again = Parts(ratio=1.0), Parts(ratio=1.0)
    parts.inner.ready.append(12)
    parts.learn()
    saved = parts.source.state()
    del saved["replay/rewards"]
    again.source.restore(saved)
    assert "event=replay_is_empty" in caplog.text
    again.inner.ready.append(12)
    assert again.learn().new_steps > 0


@pytest.mark.parametrize("method", ["add", "sample"])
def test_steps_are_accounted_for_if_the_memory_fails(monkeypatch, method: str) -> None:
    parts = Parts(ratio=1.0)
    parts.inner.ready.extend([12, 12])

    def fail(*_) -> None:
        raise RuntimeError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(parts.memory, method, fail)
        with pytest.raises(RuntimeError, match="no memory"):
            parts.learn()
    account = parts.account
    assert account.in_flight_steps == parts.memory.never_drawn
    assert account.dropped_steps == ({"worker_failed": 12} if method == "add" else {})
    assert parts.learn().new_steps > 0, "it goes on"
    parts.source.close()
    assert account.in_flight_steps == 0
    account.check()


def test_a_worker_that_hangs_holds_up_neither_a_checkpoint_nor_the_end() -> None:
    parts, waits, goes_on = Parts(ratio=1.0), threading.Event(), threading.Event()
    inner_next = parts.inner.next

    def hanging(timeout_s, worker) -> Batch | None:
        waits.set()
        assert goes_on.wait(60.0)
        return inner_next(timeout_s, worker)

    parts.inner.next = hanging
    parts.inner.ready.append(12)
    drawn: list[Batch | None] = []
    worker = threading.Thread(target=lambda: drawn.append(parts.source.next(0.0, WORKER)))
    worker.start()
    assert waits.wait(60.0)
    others: list[threading.Thread] = []
    for call in (parts.source.state, parts.source.close, lambda: parts.source.next(0.0, WORKER)):
        others.append(threading.Thread(target=call, daemon=True))
        others[-1].start()
        others[-1].join(5.0)
    held_up = [other.is_alive() for other in others]
    goes_on.set()
    worker.join(60.0)
    assert held_up == [False] * 3
    assert drawn == [None]
    assert parts.account.dropped_steps == {"shutdown": 12}
    parts.account.check()


def test_new_steps_that_wait_in_vain_for_the_memory_are_dropped(monkeypatch) -> None:
    monkeypatch.setattr(module, "_TURN_WITHIN_S", 0.05)
    parts = Parts()
    parts.inner.ready.append(12)
    with parts.source._turn(), pytest.raises(TimeoutError):
        parts.source.next(0.0, WORKER)
    assert sum(parts.account.dropped_steps.values()) == 12
    parts.account.check()


def test_a_worker_that_hangs_with_the_memory_ends_the_wait_of_others(monkeypatch, caplog) -> None:
    monkeypatch.setattr(module, "_TURN_WITHIN_S", 0.05)
    parts, waits, goes_on = Parts(ratio=1.0), threading.Event(), threading.Event()

    def hanging(count) -> Batch:
        waits.set()
        assert goes_on.wait(60.0)
        raise RuntimeError("no memory")

    parts.memory.sample = hanging
    parts.inner.ready.append(12)

    def work() -> None:
        with pytest.raises(RuntimeError, match="no memory"):
            parts.source.next(0.0, WORKER)

    worker = threading.Thread(target=work)
    worker.start()
    assert waits.wait(60.0)
    with pytest.raises(TimeoutError, match=r"held the replay memory for 0\.05 s"):
        parts.source.state()
    parts.source.close()
    assert "event=replay_hangs" in caplog.text
    goes_on.set()
    worker.join(60.0)
