"""The supervisor's end of a process on a node, with a scripted cluster."""

from __future__ import annotations

import errno
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from aclearn.launch import RoleCommand
from services.on_ray import process as module
from services.on_ray.host import Look, Order
from services.on_ray.process import ProcessOnRay
from services.on_ray.room import Need, Node


class Lost(Exception):
    pass


class Scripted:
    """A cluster with one actor; each call's answer is a list, empty until it is known."""

    lost = (Lost,)

    def __init__(self) -> None:
        self.said: list[str] = []
        self.ended = False
        self.placed: list[object] = []
        self.looks: list[object] = []
        self.list = [Node("a", "10.0.0.1", 1.0)]
        self.names: list[str | None] = []

    def nodes(self) -> list[Node]:
        return self.list

    def start(self, order: Order, need: Need, detached_as: str | None) -> SimpleNamespace:
        self.names.append(detached_as)

        def remote(name: str, answers: list[object]) -> SimpleNamespace:
            return SimpleNamespace(
                remote=lambda *given: (
                    self.said.append(" ".join([name, *map(str, given)])) or answers
                )
            )

        return SimpleNamespace(
            place=remote("place", self.placed),
            look=remote("look", self.looks),
            send_signal=remote("signal", []),
            kill=remote("kill", []),
        )

    def ready(self, call: list[object]) -> bool:
        return bool(call)

    def answer(self, call: list[object]) -> object:
        found = call.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def end(self, actor: object) -> None:
        self.ended = True


@pytest.fixture
def cluster() -> Scripted:
    return Scripted()


@pytest.fixture
def process(cluster: Scripted, tmp_path: Path) -> ProcessOnRay:
    log = tmp_path / "logs" / "actor-0.log"
    log.parent.mkdir()
    log.write_bytes(b"earlier\n")
    command = RoleCommand("actor", "actor-0", (), {}, log)
    return ProcessOnRay(cluster, command, Order("actor", "actor-0", (), {}), Need(1.0))  # type: ignore[arg-type]


def test_its_output_is_appended_here_and_its_status_is_that_of_the_process(
    cluster: Scripted, process: ProcessOnRay, tmp_path: Path
) -> None:
    assert (process.exited(), process.pid, process.log_start) == (False, None, len("earlier\n"))
    cluster.placed.append(("node", 41))
    assert (process.exited(), process.pid, process.node_id) == (False, 41, "node")
    cluster.looks += [Look(b"one\n", None), Look(b"two\n", 3)]
    assert process.exited()
    assert (process.reap(), process.ending(3), cluster.ended) == (3, "exit status 3", True)
    assert (tmp_path / "logs" / "actor-0.log").read_text() == "earlier\none\ntwo\n"
    assert cluster.said == ["place", "look 1.0", "look 1.0"]


def test_a_log_that_has_no_room_loses_its_lines_alone(
    cluster: Scripted, process: ProcessOnRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "open_to_write", full)
    cluster.placed.append(("node", 41))
    cluster.looks += [Look(b"one\n", None), Look(b"two\n", 3)]
    assert process.exited() and process.reap() == 3


def test_one_whose_node_dies_has_ended_and_says_how(
    cluster: Scripted, process: ProcessOnRay
) -> None:
    cluster.placed.append(("node", 41))
    cluster.looks.append(Lost("The actor died:\n  its node has died\n"))
    assert process.exited()
    assert process.ending(process.reap()) == "lost by Ray: its node has died"


def test_a_signal_reaches_it_where_it_runs_and_one_without_a_node_never_starts(
    cluster: Scripted, process: ProcessOnRay
) -> None:
    cluster.placed.append(("node", 41))
    assert not process.exited()
    process.terminate(signal.SIGTERM)
    process.kill()
    process.kill()
    assert cluster.said[2:] == [f"signal {int(signal.SIGTERM)}", "kill"] and not cluster.ended
    cluster.looks.append(Look(b"", -9))
    assert process.reap() == -9


def test_one_that_waits_for_a_node_ends_at_once(cluster: Scripted, process: ProcessOnRay) -> None:
    process.terminate()
    assert process.exited() and cluster.ended
    assert process.ending(process.reap()) == "it had no node yet"


def test_one_that_waits_for_a_node_is_asked_for_again_once_a_node_has_joined(
    cluster: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = RoleCommand("member", "member-0", (), {}, tmp_path / "member.log")
    made = [
        ProcessOnRay(cluster, command, Order("member", "member-0", (), {}), need, name)  # type: ignore[arg-type]
        for need, name in ((Need(1.0), "m"), (Need(1.0), None), (Need(1.0, node_id="a"), "here"))
    ]
    left = ProcessOnRay(
        cluster,  # type: ignore[arg-type]
        command,
        Order("member", "member-0", (), {}),
        Need(1.0),
        "left",
        is_left=True,
    )
    cluster.names.remove("left")
    cluster.list = [Node("b", "10.0.0.2", 1.0)]  # it was not among those that Ray may choose
    assert not any(process.exited() for process in made) and len(cluster.names) == 3
    monkeypatch.setattr("services.on_ray.process._WAITS_S", 0.0)
    assert not left.exited() and len(cluster.names) == 3
    for _ in range(2):
        assert not any(process.exited() for process in made)
    assert cluster.names == ["m", None, "here", "m.1", None] and cluster.ended
    cluster.list = [Node("c", "10.0.0.3", 1.0)]
    assert not made[0].exited() and cluster.names[5:] == ["m.2"]
    cluster.placed.append(("c", 41))
    assert not made[0].exited() and made[0].node_id == "c"
    cluster.list = [Node("d", "10.0.0.4", 1.0)]
    assert not made[0].exited() and len(cluster.names) == 6


def test_a_node_that_does_not_answer_a_kill_is_not_waited_for(
    cluster: Scripted, process: ProcessOnRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=0.0)

    def sleep(seconds: float) -> None:
        clock.now += 1.0

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep))
    cluster.placed.append(("node", 41))
    assert not process.exited()
    assert process.reap() == -9
    assert 3.0 < clock.now < 6.0
