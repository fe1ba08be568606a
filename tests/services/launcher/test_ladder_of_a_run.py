"""Whole runs in this process whose rung and mix a plug-in or a strategy sets, with faults."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from aclearn.types import Unroll, is_compressed
from aclearn.wire import decode
from services.roles import COMPRESSOR, MONITOR
from tests.support.metrics_lines import check_line, check_lines
from tests.support.toys import faulty_link, toy_plugin
from tests.support.whole_run import WholeRun

#: Nats: the whole policies differ by 1e-16, and by 1e-4 where the weights of one are multiplied.
_EPSILON = 1e-5
_BACK_AFTER_S = 3.0
_THRESHOLD = {"epsilon": _EPSILON, "dwell_s": 2.0, "back_after_s": _BACK_AFTER_S}
_CHAINS = ["prune=0.5>onnx", "onnx", "fuse>onnx"]


class LadderRun(WholeRun):
    """A run with three rungs, whose rung and share its file says or a strategy decides.

    The first link of a strategy's run has a fault while the file `fault` is there.

    Attributes:
        acts: actor → the chains of its newest unroll.
        longest_pause: most rounds between two unrolls of an actor.
        steps: chain → valid steps in unrolls.
        played: policy → episodes.
    """

    def __init__(self, folder: Path, *strategies: Any, **actors: Any) -> None:
        self.file, self.fault = folder / "said.json", folder / "fault"
        self.acts: dict[str, set[str]] = {}
        self._sent_at: dict[str, int] = {}
        self.longest_pause = 0
        self.steps: Counter[str] = Counter()
        self.played: Counter[str] = Counter()
        plugin = {f"{toy_plugin.__name__}:SetsRung": {"file": str(self.file)}}
        faulty = {f"{faulty_link.__name__}:TimesThree": {"file": str(self.fault)}}
        first = [faulty if strategies else {"prune": 0.5}, "onnx"]
        super().__init__(
            folder,
            run={"deterministic": False, "max_updates": 100_000},
            actors={"processes": 2, "envs_per_group": 4, "unroll_length": 4, **actors},
            compressor={"ladder": [first, ["onnx"], []], "every_s": 0.125, "fidelity_every": 8},
            monitor={
                "heartbeat_every_s": 1 / 16,
                "plugins": [] if strategies else [plugin],
                "strategies": strategies,
            },
        )

    def say(self, **said: float) -> None:
        self.file.write_text(json.dumps(said))

    def until_all_act_with(self, rung: int) -> None:
        chain = _CHAINS[rung]
        self.run_until(
            lambda: len(self.acts) == 2 and all(acts == {chain} for acts in self.acts.values()),
            f"all actors act with {chain}",
        )

    def compressed(self) -> set[bool]:
        """Whether the newest unrolls of the actors are by a compressed policy."""
        return {any(map(is_compressed, chains)) for chains in self.acts.values()}

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
            self.acts[sender] = set(message.chains)
            self.longest_pause = max(
                self.longest_pause, self.rounds - self._sent_at.get(sender, self.rounds)
            )
            self._sent_at[sender] = self.rounds
            self.steps.update(message.steps_by_chain())
        self.played.update(getattr(message, "episode_policies", ()))


@pytest.fixture
def start(tmp_path: Path):
    runs: list[LadderRun] = []

    def start(*strategies: Any, **actors: Any) -> LadderRun:
        runs.append(LadderRun(tmp_path, *strategies, **actors))
        return runs[-1]

    yield start
    for run in runs:
        run.close()


def end(run: LadderRun) -> None:
    """End in order: every line balances, and each unroll that was sent is accounted for."""
    run.monitor.state.stop("seen enough", run.clock())
    steps = run.steps.copy()
    summary = run.run()
    assert summary["chain_steps"].keys() == steps.keys()
    assert sum(summary["chain_steps"].values()) == summary["learned_steps"]
    check_lines(run.lines())
    check_line(summary)
    assert summary["in_flight_steps"] == 0
    assert not {"lost", "lag"} & summary["dropped_steps"].keys()


def test_a_lost_and_a_repeated_directive_change_the_chain_once_and_no_step_is_lost(start) -> None:
    run = start()
    lost = run.faults.drop("SetChain", nth=1, receiver="compressor")
    twice = run.faults.duplicate("SetChain", nth=3, receiver="compressor")
    run.until_all_act_with(0)
    for _ in range(100):
        run.round()
    usual, run.longest_pause = run.longest_pause, 0
    for rung in (1, 2, 0):
        run.say(rung=rung)
        run.until_all_act_with(rung)
    assert (lost.hits, twice.hits) == (1, 1)
    assert run.longest_pause <= usual  # no gap: actors act on what they have meanwhile
    assert run.refused == {}
    last = [line for line in run.lines() if "compressor_rung" in line][-1]
    assert last["monitor_directives"] == 3.0 and last["actor_policy_refused"] == 0.0
    end(run)


def test_a_monitor_that_dies_sets_no_rung_back_and_tells_it_to_a_new_compressor(start) -> None:
    run = start()
    run.until_all_act_with(0)
    run.say(rung=1)
    run.run_until(lambda: run.passed["SetChain"], "the directive is on its way")
    run.kill("monitor-0")
    run.file.unlink()  # the next one's plug-in says nothing
    for _ in range(40):
        run.round()
    run.start(MONITOR)
    run.until_all_act_with(1)
    run.kill("compressor-0")
    for _ in range(5):
        run.round()
    run.start(COMPRESSOR)
    run.run_until(
        lambda: (
            run.heartbeats["compressor-0"].gauges.get("artifact_version", 0) > 0
            and run.heartbeats["compressor-0"].counters["artifacts"] < 20
        ),
        "the new compressor compresses",
    )
    for _ in range(100):
        assert run.round()
        assert run.heartbeats["compressor-0"].gauges["rung"] == 1.0
    run.until_all_act_with(1)
    run.say(rung=0)
    run.until_all_act_with(0)


def test_actors_play_two_policies_by_unroll_and_by_episode(start) -> None:
    run = start(original_share=0.25)
    run.run_until(
        lambda: run.played["original"] > 30 and run.played["compressed"] > 30,
        "both have played episodes",
    )
    run.say(share=0.0)
    run.run_until(
        lambda: (
            run.heartbeats["actor-0"].gauges["compressed_share"] == 0.0
            and set.union(*run.acts.values()) == {"fuse>onnx"}
        ),
        "the uncompressed policy plays all",
    )
    run.say(share=0.5)
    run.run_until(
        lambda: run.heartbeats["actor-0"].gauges["compressed_share"] == 0.5, "the mix changes"
    )
    earlier = run.steps.copy()
    run.run_until(lambda: (run.steps - earlier).total() > 6000, "both play")
    # three quarters of the episodes, half of their unrolls
    steps = run.steps - earlier
    share = steps[_CHAINS[0]] / steps.total()
    assert share == pytest.approx(0.375, abs=0.08)
    assert run.refused == {}
    end(run)


def test_a_fault_is_noticed_and_when_it_is_gone_the_actors_return(start) -> None:
    run = start({"threshold": _THRESHOLD})
    run.seconds(6.0)
    assert run.decisions() == [] and run.compressed() == {True}
    run.fault.touch()
    began = run.clock()
    run.run_until(lambda: run.compressed() == {False}, "all actors are faithful")
    assert run.clock() - began < 30.0
    [noticed] = run.decisions()
    assert noticed["rung"] == 1 and noticed["cause"]["compressor_kl_max"] > _EPSILON
    assert began < noticed["time_s"] <= run.clock()
    run.run_until(lambda: len(run.decisions()) == 3, "a trial has failed")
    assert [each["rung"] for each in run.decisions()] == [1, 0, 1]
    assert run.decisions()[-1]["state"] == {"wait_s": 2 * _BACK_AFTER_S, "failed": 0}
    run.fault.unlink()
    run.run_until(lambda: run.decisions()[-1]["state"]["failed"] == -1, "a trial was passed")
    assert run.decisions()[-1]["rung"] == 0
    run.seconds(2.0)
    assert run.compressed() == {True}
    line = run.lines()[-1]
    assert line["strategy_rung"] == line["compressor_rung"] == 0.0
    assert line["monitor_plugin_failures"] == 0.0
    events = b"".join(file.read_bytes() for file in run.path.glob("events.*"))
    # TensorBoard shows the decisions as texts, and the rung as a curve
    assert events.count(b"strategy/threshold") == len(run.decisions())
    assert b"strategy/rung" in events


def test_a_monitor_killed_in_mid_decision_comes_back_to_the_same_rung(start) -> None:
    run = start({"threshold": _THRESHOLD})
    run.seconds(4.0)
    run.fault.touch()
    run.faults.drop("SetChain", nth=1, sender="monitor-0")
    run.run_until(run.decisions, "the decision is on disk")
    [noticed] = run.decisions()
    run.kill("monitor-0")
    for _ in range(32):
        run.round()
    assert run.compressed() == {True}  # the directive was lost with the monitor
    run.fault.unlink()  # the next monitor could not repeat this decision
    run.start(MONITOR)
    run.run_until(lambda: run.compressed() == {False}, "all actors are faithful")
    assert run.decisions() == [noticed]
    run.run_until(lambda: run.compressed() == {True}, "the actors return")
    assert run.decisions()[1]["rung"] == 0
