"""Whole runs in this process whose compression a strategy adapts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aclearn.types import Unroll, is_compressed
from aclearn.wire import decode
from services.roles import MONITOR
from tests.support.toys import faulty_link
from tests.support.whole_run import WholeRun

#: Nats: the whole policies differ by 1e-16, and by 1e-4 where the weights of one are multiplied.
EPSILON = 1e-5
DWELL_S, BACK_AFTER_S = 2.0, 3.0
THRESHOLD = {"epsilon": EPSILON, "dwell_s": DWELL_S, "back_after_s": BACK_AFTER_S}


class FaultyRun(WholeRun):
    """A run with three rungs, whose first has a fault while a file is there.

    Attributes:
        acts: whether the newest unroll of each actor is by a compressed policy.
    """

    def __init__(self, folder: Path, *strategies: Any, **groups: Any) -> None:
        self.fault = folder / "fault"
        self.acts: dict[str, bool] = {}
        faulty = {f"{faulty_link.__name__}:TimesThree": {"file": str(self.fault)}}
        super().__init__(
            folder,
            run={"deterministic": False, "max_updates": 100_000},
            actors={"processes": 2, "envs_per_group": 4, "unroll_length": 4},
            compressor={
                "ladder": [[faulty, "onnx"], ["onnx"], []],
                "every_s": 0.125,
                "fidelity_every": 8,
            },
            monitor={"heartbeat_every_s": 1 / 16, "strategies": strategies},
            **groups,
        )

    def decisions(self) -> list[dict[str, Any]]:
        """The decisions on disk."""
        return [json.loads(x) for x in (self.path / "strategies.jsonl").read_text().splitlines()]

    def seconds(self, seconds: float) -> None:
        """Rounds until so much time has passed."""
        end = self.clock() + seconds
        while self.clock() < end:
            assert self.round()

    def _observe(self, sender: str, receiver: str, frames: list[bytes]) -> None:
        super()._observe(sender, receiver, frames)
        message = decode(frames).message
        if isinstance(message, Unroll):
            self.acts[sender] = any(is_compressed(chain) for chain in message.chains)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[FaultyRun]:
    run = FaultyRun(tmp_path, {"threshold": THRESHOLD})
    yield run
    run.close()


def test_a_fault_is_noticed_and_when_it_is_gone_the_actors_return(run: FaultyRun) -> None:
    run.seconds(6.0)
    assert run.decisions() == [] and set(run.acts.values()) == {True}
    run.fault.touch()
    began = run.clock()
    run.run_until(lambda: set(run.acts.values()) == {False}, "all actors are faithful")
    assert run.clock() - began < 30.0
    [noticed] = run.decisions()
    assert noticed["rung"] == 1 and noticed["cause"]["compressor_kl_max"] > EPSILON
    assert began < noticed["time_s"] <= run.clock()
    run.run_until(lambda: len(run.decisions()) == 3, "a trial has failed")
    assert [each["rung"] for each in run.decisions()] == [1, 0, 1]
    assert run.decisions()[-1]["state"] == {"wait_s": 2 * BACK_AFTER_S, "failed": 0}
    run.fault.unlink()
    run.run_until(lambda: run.decisions()[-1]["state"]["failed"] == -1, "a trial was passed")
    assert run.decisions()[-1]["rung"] == 0
    run.seconds(2.0)
    assert set(run.acts.values()) == {True}
    line = run.lines()[-1]
    assert line["strategy_rung"] == line["compressor_rung"] == 0.0
    assert line["monitor_plugin_failures"] == 0.0
    events = b"".join(file.read_bytes() for file in run.path.glob("events.*"))
    # TensorBoard shows the decisions as texts, and the rung as a curve
    assert events.count(b"strategy/threshold") == len(run.decisions())
    assert b"strategy/rung" in events


def test_a_monitor_killed_in_mid_decision_comes_back_to_the_same_rung(run: FaultyRun) -> None:
    run.seconds(4.0)
    run.fault.touch()
    run.faults.drop("SetChain", nth=1, sender="monitor-0")
    run.run_until(run.decisions, "the decision is on disk")
    [noticed] = run.decisions()
    run.kill("monitor-0")
    for _ in range(32):
        run.round()
    assert set(run.acts.values()) == {True}  # the directive was lost with the monitor
    run.fault.unlink()  # the next monitor could not repeat this decision
    run.start(MONITOR)
    run.run_until(lambda: set(run.acts.values()) == {False}, "all actors are faithful")
    assert run.decisions() == [noticed]
    run.run_until(lambda: set(run.acts.values()) == {True}, "the actors return")
    assert run.decisions()[1]["rung"] == 0
