"""`kill -9` of any role in mid-run: the others stay, the run goes on, nothing is learned twice."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np

from aclearn.runs import load_newest
from aclearn.wire import ActReply, ActRequest
from tests.support.metrics_lines import check_line
from tests.support.system import CARTPOLE, Run, System
from tests.support.visitor import Visitor

_ROOM = {"max_restarts": 20, "backoff_first_s": 0.1, "backoff_max_s": 0.2}


def _kill(run: Run, name: str) -> dict[str, int]:
    """Kill one role, wait for its next incarnation; nobody else was started again."""
    before = run.pids()
    run.kill_role(name)
    new = run.wait_for_new(name, before[name], within_s=10.0)
    after = run.pids()
    assert after == before | {name: new}
    return after


def _goes_on(run: Run) -> None:
    """More is learned than up to now."""
    learned = run.last()["learned_steps"]
    run.wait_for(
        lambda: run.last()["learned_steps"] > learned + 200, "learning goes on", within_s=10.0
    )


def _stop_beyond_its_checkpoint(run: Run, pid: int) -> int:
    """Stop the trainer where it has learned what no checkpoint has; the newest one's label.

    With nothing in flight right after a checkpoint, its death would lose nothing.
    """

    def look() -> int | None:
        os.kill(pid, signal.SIGSTOP)
        checkpoint = load_newest(run.folder / "checkpoints")
        if checkpoint and 0 < checkpoint.label < run.last()["policy_version"]:
            return checkpoint.label
        os.kill(pid, signal.SIGCONT)
        return None

    return run.wait_for(look, "updates beyond a checkpoint with updates")


def _kill_trainer(run: Run) -> None:
    """Kill the trainer; it comes back from its checkpoint under a new generation within 10 s."""
    pids = run.pids()
    label = _stop_beyond_its_checkpoint(run, pids["trainer-0"])
    before = run.last()
    run.kill_role("trainer-0")

    def comes_back() -> dict[str, Any] | None:
        lines = [line for line in run.lines() if line["generation"] == before["generation"] + 1]
        if not lines:
            return None
        # learned steps beyond those of the newest checkpoint that the old one can have written
        learns = lines[-1]["learned_steps"] > before["learned_steps"] + 200
        publishes = lines[-1]["policy_version"] > lines[0]["policy_version"]
        return lines[-1] if learns and publishes else None

    after = run.wait_for(comes_back, "the new trainer learns and publishes", within_s=10.0)
    assert run.pids() == pids | {"trainer-0": run.pids()["trainer-0"]}
    assert label <= after["policy_version"]
    check_line(after)
    assert after["learned_steps"] <= after["env_steps"]
    # what the killed trainer held is accounted for
    lost = {"trainer_restart", "lost", "old_generation"}
    assert sum(after["dropped_steps"].get(reason, 0) for reason in lost) > 0, after


def test_kills_of_actor_trainer_and_monitor_with_local_inference(system: System) -> None:
    run = system.train(system.config(CARTPOLE, supervisor=_ROOM))
    run.wait_until_learning(beyond=300)
    _kill(run, "actor-0")
    _goes_on(run)
    assert "actor-0" in run.output and "SIGKILL" in run.output
    _kill_trainer(run)
    _kill_monitor(run)
    _kill(run, "actor-1")
    _goes_on(run)
    summary = run.finish()
    assert summary["generation"] == 1


def test_kills_of_one_of_two_predictors_trainer_and_monitor(system: System) -> None:
    run = system.train(
        system.config(
            CARTPOLE,
            actors={"inference": "predictor", "processes": 2},
            predictor={"processes": 2},
            supervisor=_ROOM,
        )
    )
    run.wait_until_learning(beyond=300)

    def connections(actor: str, predictor: str) -> int:
        return run.log(actor).count(f"role=predictor name={predictor}")

    run.wait_for(
        lambda: connections("actor-0", "predictor-0") and connections("actor-1", "predictor-1"),
        "each actor asks a predictor of its own",
    )
    own, others = connections("actor-0", "predictor-0"), connections("actor-1", "predictor-1")
    _kill(run, "predictor-0")
    run.wait_for(
        lambda: connections("actor-0", "predictor-0") > own, "its actor is with the new one"
    )
    _goes_on(run)
    assert connections("actor-1", "predictor-1") == others  # it has no reason to move
    visitor = Visitor(run.monitor_address())
    try:
        [new] = [peer for peer in visitor.peers().peers if peer.name == "predictor-0"]
        request = ActRequest(1, {"observation": np.zeros((3, 4), np.float32)})
        reply = visitor.ask(visitor.connect(new.endpoints["predictions"]), request, ActReply)
    finally:
        visitor.close()
    assert (reply.request, len(reply.actions)) == (1, 3)
    _kill_trainer(run)
    _kill_monitor(run)
    assert run.finish()["generation"] == 1


_BROKEN = '''
import gymnasium


class Broken(BaseException):
    """Nothing that an actor may take for a fault of an environment."""


class Breaking(gymnasium.Wrapper):
    steps = 0  # the first is that of the check before a run

    def step(self, action):
        self.steps += 1
        if self.steps > 1:
            raise Broken("the machine below is gone")
        return super().step(action)


def make():
    return Breaking(gymnasium.make("CartPole-v1"))
'''


def test_a_role_that_dies_too_often_ends_the_run_with_its_last_traceback(system: System) -> None:
    (system.folder / "broken_env.py").write_text(_BROKEN)
    config = system.config(
        CARTPOLE,
        env={"id": "broken_env:make"},
        actors={"processes": 1},
        supervisor={"max_restarts": 2, "backoff_first_s": 0.1},
    )
    run = system.train(config)
    assert run.wait() == 1, run.diagnosis()
    assert "actor-0: exit status 1; no restart is left after 2" in run.output, run.output
    told = run.output[run.output.index("no restart is left") :]
    assert "Traceback (most recent call last)" in told
    assert "Broken: the machine below is gone" in told
    # it was started three times, and only the last one's words are told
    assert run.log("actor-0").count("Traceback (most recent call last)") == 3
    assert told.count("Traceback (most recent call last)") == 1
    run.check_account()


def _kill_monitor(run: Run) -> None:
    """Kill the monitor; the data goes on, the roles say hello again, the counters go on."""
    _goes_on(run)  # what a trainer before this one lost is counted
    pids = _kill(run, "monitor-0")
    before = run.last()  # the old monitor's, which may have written one more when it was killed
    run.wait_for(
        lambda: run.last()["learned_steps"] > before["learned_steps"] + 200,
        "the new monitor reports",
        within_s=10.0,
    )
    after = run.last()
    assert after["generation"] == before["generation"]
    assert after["dropped_steps"].get("lost", 0) == before["dropped_steps"].get("lost", 0)
    assert run.pids() == pids
    visitor = Visitor(run.monitor_address())
    expected = pids.keys() - {"monitor-0"}
    try:
        run.wait_for(
            lambda: set(visitor.status()["members"]) == expected, "all roles have said hello again"
        )
    finally:
        visitor.close()


def test_an_actor_goes_to_the_other_predictor_when_its_own_hangs(system: System) -> None:
    # one actor, whose predictor is number 0: what is learned tells whether it is answered
    run = system.train(
        system.config(
            CARTPOLE,
            actors={"inference": "predictor", "processes": 1},
            predictor={"processes": 2},
        )
    )
    run.wait_until_learning(beyond=300)
    other = "role=predictor name=predictor-1"
    before = run.log("actor-0").count(other)
    hanging = run.pids()["predictor-0"]
    os.kill(hanging, signal.SIGSTOP)
    try:
        # long before the monitor calls it silent, after monitor.silent_after_s = 60 s
        run.wait_for(
            lambda: run.log("actor-0").count(other) > before,
            "the actor goes to the other",
            within_s=20.0,
        )
        _goes_on(run)
        assert run.pids()["predictor-0"] == hanging
    finally:
        os.kill(hanging, signal.SIGCONT)
    run.finish()


_QUICK_STEPS: dict[str, Any] = {
    "actors": {"step_timeout_s": 2.0},
    "monitor": {"silent_after_s": 10.0, "heartbeat_every_s": 0.1},
}


def test_no_role_is_killed_as_silent_after_a_suspension_and_only_the_monitor_that_hangs(
    system: System,
) -> None:
    run = system.train(system.config(CARTPOLE, **_QUICK_STEPS))
    run.wait_until_learning(beyond=300)
    pids = run.pids()
    # as a paused container: the monitor wakes up first, and has heard nobody for 13 s
    everybody = sorted([run.process.pid, *pids.values()], key=pids["monitor-0"].__ne__)
    for pid in everybody:
        os.kill(pid, signal.SIGSTOP)
    try:
        over = time.monotonic() + 13.0
        run.wait_for(lambda: time.monotonic() > over, "longer than anybody may be silent")
    finally:
        for pid in everybody:
            os.kill(pid, signal.SIGCONT)
    run.wait_for(
        lambda: "the monitor itself was suspended" in run.log("monitor-0"), "it knows what happened"
    )
    _goes_on(run)
    assert run.pids() == pids

    os.kill(pids["monitor-0"], signal.SIGSTOP)  # SIGKILL ends it all the same
    run.wait_for(lambda: "no answer for 10 s" in run.output, "it is noticed")
    new = run.wait_for_new("monitor-0", pids["monitor-0"])
    _goes_on(run)
    assert run.pids() == pids | {"monitor-0": new}
    run.finish()
