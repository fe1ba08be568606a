"""The tuner in a real run: processes come and go, the account holds, the files are whole."""

from __future__ import annotations

import json
from typing import Any

from tests.support.system import CARTPOLE, Run, System

_TINY = {"enabled": True, "every_s": 0.5, "settle_s": 0.2, "temperature": 1.0, "cooling": 1.0}
_DECIDED = ("accepted", "rejected")


def _decisions(run: Run) -> list[dict[str, Any]]:
    path = run.folder / "tuner.jsonl"
    return [json.loads(x) for x in path.read_text().split("\n")[:-1]] if path.exists() else []


def test_counts_of_all_kinds_change_and_every_step_is_accounted_for(system: System) -> None:
    names = ("actors", "predictors", "trainers")
    most = {"max_actors": 3, "max_predictors": 2, "max_trainers": 2}
    tuner = {**_TINY, "counts": list(names), **most}
    predictor, actors = {"processes": 2}, {"inference": "predictor"}
    run = system.train(system.config(CARTPOLE, tuner=tuner, actors=actors, predictor=predictor))
    seen: set[int] = set()

    def all_were_tried() -> bool:
        seen.add(sum(name.startswith("actor-") for name in run.pids()))
        tried = [d["counts"] for d in _decisions(run) if d["verdict"] in _DECIDED]
        return len(seen) > 1 and all(len({c[name] for c in tried}) > 1 for name in names)

    run.wait_for(all_were_tried, "each count is tried", within_s=240.0)
    decided = [d for d in _decisions(run) if d["verdict"] in _DECIDED]
    assert {tuple(sorted(d["counts"])) for d in decided} == {names}
    assert all(1 <= d["counts"]["actors"] <= 3 for d in decided)
    assert all(d["rate"] > 0 and d["window_s"] > 0 and d["reason"] for d in decided)
    wanted = {line["tuner_actors"] for line in run.lines() if "tuner_actors" in line}
    assert len(wanted) > 1
    assert {"tuner_temperature", "tuner_rate", "tuner_file_warnings"} <= run.last().keys()
    # the gauge is the mean of both predictors: it is whole only when they run as many
    run.wait_for(
        lambda: {line.get("predictor_workers") for line in run.lines()} >= {1.0, 2.0},
        "both predictors follow",
    )
    assert len({line["workers"] for line in run.lines() if "workers" in line}) > 1
    learned = run.last()["learned_steps"]
    run.wait_for(lambda: run.last()["learned_steps"] > learned, "learning goes on")
    run.finish()  # checks the account in every line
    restarted = [n for n in ("actor-0", "actor-1", "actor-2") if f"{n} died" in run.output]
    assert restarted == []  # an actor that was told to leave did not fail
    # TensorBoard shows each decision at the number that it has in the file
    events = b"".join(file.read_bytes() for file in run.folder.glob("events.*"))
    numbers = [d["decision"] for d in _decisions(run)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert events.count(b"tuner_decision/temperature") == len(numbers)
    [remembered] = (run.folder.parent / ".tuned").iterdir()
    assert set(json.loads(remembered.read_text())["counts"]) == set(names)
    picture = system.folder / "tuner.png"
    drawn = system.command("plot", run.folder, "--tuner", "--out", picture)
    assert drawn.wait() == 0, drawn.output
    assert picture.stat().st_size > 10_000


_ROOM_FOR_TWO = """
import fcntl, os, signal, sys, time
from pathlib import Path
import gymnasium

_held = []


def _has_room():
    for number in range(2):
        place = open(Path(__file__).with_name(f"place-{number}"), "w")
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            place.close()
        else:
            _held.append(place)
            return True
    return False


class Growing(gymnasium.Wrapper):
    begun_at = None

    def step(self, action):
        self.begun_at = self.begun_at or time.monotonic()
        if not _held and not _has_room() and time.monotonic() - self.begun_at > 0.4:
            os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does where memory ends
        time.sleep(0.0005)  # actors are the bottleneck: two are faster than one
        return super().step(action)


def make():
    return Growing(gymnasium.make("CartPole-v1"))
"""


def test_a_count_for_which_there_is_no_room_is_given_up_and_the_run_goes_on(
    system: System,
) -> None:
    (system.folder / "room_for_two.py").write_text(_ROOM_FOR_TWO)
    # windows in which it can start, die and start again
    tuner = {**_TINY, "counts": ["actors"], "max_actors": 3, "every_s": 3.0}
    run = system.train(system.config(CARTPOLE, tuner=tuner, env={"id": "room_for_two:make"}))

    def given_up() -> dict[str, Any] | None:
        return next((d for d in _decisions(run) if d["verdict"] == "given up"), None)

    decision = run.wait_for(given_up, "the third actor is given up", within_s=120.0)
    assert decision["counts"] == {"actors": 3}
    assert decision["kept"] == {"actors": 2}
    assert decision["reason"].startswith("a role died")
    # after a trial of one actor two start together, and either may be the one without room
    names = ("actor-0", "actor-1", "actor-2")
    [died] = [name for name in names if f"{name} died" in run.output]
    assert run.output.count(f"{died} died") == 2
    # the two others did not die of it, and are measured again
    kept = run.wait_for(
        lambda: next(
            (d for d in _decisions(run)[decision["decision"] :] if d["rate"] is not None), None
        ),
        "two actors run again",
    )
    assert kept["counts"] == {"actors": 2} and kept["rate"] > 0.0
    assert [name for name in names if f"{name} died" in run.output] == [died]
    run.finish()
