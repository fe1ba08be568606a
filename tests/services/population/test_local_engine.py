"""Members as processes: who runs at a time, who is started again, and who is given up."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from aclearn.config import config_of_keys
from aclearn.errors import LearningLost
from aclearn.launch import StopFlag
from aclearn.population import DEAD
from services.population import local_engine
from services.population.engine import DiskFull, Outcome, Task
from services.population.local_engine import LocalEngine
from services.population.member import judged

#: A member: its behaviour is in its folder, and so are its starts and how many ran beside it.
_PROGRAM = """
import json, os, signal, sys, time
from pathlib import Path
folder, member, round_ = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
if int(os.environ["ACLEARN_RESTARTS"]):
    assert (folder / "starts").exists()
with (folder / "starts").open("a") as file:
    file.write("x")
alone = folder.parent / "running"
(alone / folder.name).write_text("")
beside = len(list(alone.iterdir()))
with (folder.parent / "most").open("a") as file:
    file.write(f"{beside}\\n")
what, starts = (folder / "what").read_text(), len((folder / "starts").read_text())
if what == "waits":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    (folder / "ready").write_text("")
    time.sleep(600)
time.sleep(0.3)
(alone / folder.name).unlink()
if what == "is killed once" and starts == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if what == "gives up":
    print("the configuration is wrong")
    sys.exit(64)
if what == "crashes":
    sys.exit("it is broken")
if what == "finds the disk full":
    sys.exit(74)
outcome = dict(member=member, status="trained", fitness=float(member), standard_error=0.5,
               env_steps=7, checkpoint="c", detail="", restarts=0)
(folder / "round.json").write_text(json.dumps({"round": round_, "outcome": outcome}))
"""


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "running").mkdir()
    program = tmp_path / "member.py"
    program.write_text(_PROGRAM)
    monkeypatch.setattr(local_engine, "_PROGRAM", (sys.executable, "-S", str(program)))
    config = config_of_keys({"env.id": "CartPole-v1", "supervisor.max_restarts": 2})

    def make(*whats: str) -> list[Task]:
        found = []
        for number, what in enumerate(whats):
            folder = tmp_path / f"member-{number}"
            folder.mkdir()
            (folder / "what").write_text(what)
            found.append(Task(number, 3, folder, config))
        return found

    return make


def _run(tasks: list[Task], at_once: int, stop: StopFlag | None = None) -> dict[int, Outcome]:
    engine = LocalEngine(tasks[0].config, StopFlag(), at_once)
    return {each.member: each for each in engine.run(tasks, StopFlag() if stop is None else stop)}


def test_so_many_members_run_at_a_time_and_each_is_judged_once(tasks, tmp_path: Path) -> None:
    outcomes = _run(tasks(*["trains"] * 5), 2)
    assert [outcomes[n].fitness for n in range(5)] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert max(map(int, (tmp_path / "most").read_text().split())) == 2
    assert {each.status for each in outcomes.values()} == {"trained"}


def test_a_killed_member_is_started_again_and_one_that_always_dies_is_given_up(tasks) -> None:
    found = tasks("is killed once", "crashes", "gives up")
    outcomes = _run(found, 3)
    assert (outcomes[0].status, outcomes[0].restarts) == ("trained", 1)
    assert (outcomes[1].status, outcomes[1].fitness, outcomes[1].restarts) == ("failed", DEAD, 2)
    assert outcomes[1].detail == "exit status 1: it is broken"
    # a restart cannot help
    assert (outcomes[2].status, outcomes[2].restarts) == ("failed", 0)
    assert outcomes[2].detail == "exit status 64: the configuration is wrong"
    assert [len((each.folder / "starts").read_text()) for each in found] == [2, 3, 1]


def test_a_member_that_cannot_be_started_is_dead(tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_engine, "_PROGRAM", ("/no/such/program",))
    monkeypatch.setattr(local_engine, "_START_AGAIN_S", 0.0)
    outcome = _run(tasks("trains"), 1)[0]
    assert outcome.status == "failed" and "cannot be started" in outcome.detail
    assert outcome.restarts == 2  # a process may be free a moment later


def test_a_full_disk_ends_the_command_and_condemns_nobody(tasks) -> None:
    found = tasks("waits", "finds the disk full")
    with pytest.raises(DiskFull, match=r"member-1: the disk .* is full; free space .* --resume"):
        _run(found, 2)
    assert not any((each.folder / "round.json").exists() for each in found)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        LearningLost("the last checkpoint could not be written: [Errno 122] Disk quota exceeded"),
    ],
)
def test_a_member_whose_disk_is_full_has_no_outcome(tmp_path: Path, error: Exception) -> None:
    def go_on() -> None:
        raise error

    with pytest.raises(DiskFull):
        judged(tmp_path, 0, 1, StopFlag(), go_on)
    assert list(tmp_path.iterdir()) == []


def test_an_outcome_of_another_round_does_not_count(tasks) -> None:
    [task] = tasks("crashes")
    old = {"member": 0, "status": "trained", "fitness": 5.0}
    (task.folder / "round.json").write_text(json.dumps({"round": 2, "outcome": old}))
    assert _run([task], 1)[0].status == "failed"


def test_a_stop_ends_the_members_that_run_and_starts_no_other(tasks) -> None:
    found = tasks("waits", "waits", "trains")
    stop = StopFlag()

    class StopsOnceBothRun(StopFlag):
        def __bool__(self) -> bool:
            if all((each.folder / "ready").exists() for each in found[:2]):
                stop.set("SIGTERM")
            return bool(stop)

        reason = property(lambda self: stop.reason)  # type: ignore[assignment]

        def __init__(self) -> None:
            self.forced = False

    assert _run(found, 2, StopsOnceBothRun()) == {}
    assert not (found[2].folder / "starts").exists()
    assert stop.reason in signal.Signals.__members__
