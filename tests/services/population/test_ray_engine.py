"""Members on a cluster, with scripted nodes and processes."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aclearn.config import Config, load_config
from aclearn.errors import ConfigError
from aclearn.launch import EXIT_GIVE_UP, StopFlag
from services.on_ray.host import pack, unpack
from services.on_ray.room import Need, Node
from services.population import ray_engine as module
from services.population.engine import DiskFull, Task
from services.population.ray_engine import RayEngine

NODES = [Node("a", "10.0.0.1", 2.0), Node("b", "10.0.0.2", 1.0)]


class Cluster:
    """Nodes, and actors of an earlier driver by name."""

    def __init__(self) -> None:
        self.list, self.notes, self.left, self.ended = list(NODES), [], [], []

    def nodes(self) -> list[Node]:
        return self.list

    def named(self, prefix: str) -> list[str]:
        return [name for name in self.left if name.startswith(prefix)]

    def end_named(self, name: str) -> None:
        self.ended.append(name)


class Process:
    """A member's process; `script` says how each start ends: a status, and the fitness if any."""

    script: Callable[[str, int], tuple[int, float | None]]
    living: list[Process]
    most = 0
    there: Path

    def __init__(
        self,
        cluster: Any,
        command: Any,
        order: Any,
        need: Need,
        detached_as: str,
        *,
        is_left: bool,
    ):
        assert is_left == (detached_as in cluster.left)
        self.member, self.order, self.need, self.name = command.name, order, need, detached_as
        self.status, self.fitness = Process.script(command.name, order.restarts)
        self.log_start, self.signals = 0, []
        self.node_id, self.asked_at = None, module.time.monotonic()
        unpack(order.folder, Process.there / f"sent-{detached_as}")
        sent = {path.name for path in (Process.there / f"sent-{detached_as}").iterdir()}
        assert sent == {"checkpoints", "logs"}  # so it is a run folder wherever it is
        command.log_path.parent.mkdir(exist_ok=True)
        command.log_path.write_text("its last words\n")
        Process.living.append(self)
        Process.most = max(Process.most, len(Process.living))

    def exited(self) -> bool:
        return self.status is not None or bool(self.signals)

    def folder(self) -> bytes | None:
        if self.status == -9:
            return None
        there = Process.there / self.name
        (there / "checkpoints").mkdir(parents=True)
        (there / "checkpoints" / f"{self.order.restarts}.json").write_text(self.member)
        if self.fitness is not None:
            outcome = {"member": int(self.member[-1]), "status": "trained", "fitness": self.fitness}
            text = json.dumps({"round": 3, "outcome": outcome})
            (there / module.ROUND_FILE).write_text(text)
        return pack(there)

    def terminate(self, number: int) -> None:
        self.signals.append(number)

    def reap(self) -> int:
        Process.living.remove(self)
        return self.status or 0

    def ending(self, code: int) -> str:
        return "lost by Ray: its node has died" if code == -9 else f"exit status {code}"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cluster:
    opened = Cluster()

    @contextmanager
    def open_cluster(stop: StopFlag) -> Iterator[Cluster]:
        yield opened

    monkeypatch.setattr(module, "open_cluster", open_cluster)
    monkeypatch.setattr(module, "ProcessOnRay", Process)
    now = [0.0]
    clock = SimpleNamespace(
        monotonic=lambda: now[0], sleep=lambda seconds: now.append(now.pop() + 0.5)
    )
    monkeypatch.setattr(module, "time", clock)
    Process.living, Process.most, Process.there = [], 0, tmp_path / "there"
    return opened


def _tasks(tmp_path: Path, count: int) -> list[Task]:
    config, tasks = _config(), []
    for number in range(count):
        folder = tmp_path / "p" / f"member-{number}"
        (folder / "checkpoints").mkdir(parents=True)
        (folder / "checkpoints" / "old.json").write_text("")
        tasks.append(Task(number, 3, folder, config))
    return tasks


def _prefix(task: Task) -> str:
    """What the name of a member's actor begins with."""
    name = module._name_of(task.folder.parent)
    return module._Running(task, task.config.supervisor, name).prefix


def _config(**values: Any) -> Config:
    values = {"supervisor": {"max_restarts": 2}, "ray": {"num_cpus": {"member": 1.0}}, **values}
    return Config(env={"id": "CartPole-v1"}, **values)


def test_as_many_members_as_the_nodes_have_room_for_and_their_folders_come_back(
    cluster: Cluster, tmp_path: Path
) -> None:
    Process.script = lambda member, start: (0, 10.0 * int(member[-1]))
    engine = RayEngine(_config(), StopFlag())
    found = {each.member: each for each in engine.run(_tasks(tmp_path, 5), StopFlag())}
    assert {number: each.fitness for number, each in found.items()} == {
        0: 0.0, 1: 10.0, 2: 20.0, 3: 30.0, 4: 40.0,
    }  # fmt: skip
    assert Process.most == 3 and Process.living == []
    folder = tmp_path / "p" / "member-1" / "checkpoints"
    assert [path.name for path in folder.iterdir()] == ["0.json"]  # the node has pruned the other
    for at_once, most in ((2, 2), (9, 3)):
        Process.most = 0
        list(
            RayEngine(_config(), StopFlag(), at_once).run(
                _tasks(tmp_path / str(at_once), 4), StopFlag()
            )
        )
        assert Process.most == most


def test_a_member_whose_node_dies_begins_the_round_again_and_only_so_often(
    cluster: Cluster, tmp_path: Path
) -> None:
    ends = {
        "member-0": [(-9, None), (0, 7.0)],
        "member-1": [(-9, None)] * 3,
        "member-2": [(EXIT_GIVE_UP, None)],
        "member-3": [(1, None), (0, 5.0)],
    }
    Process.script = lambda member, start: ends[member][start]
    engine = RayEngine(_config(), StopFlag())
    found = {each.member: each for each in engine.run(_tasks(tmp_path, 4), StopFlag())}
    assert [(found[n].status, found[n].restarts) for n in range(4)] == [
        ("trained", 1), ("failed", 2), ("failed", 0), ("trained", 1),
    ]  # fmt: skip
    assert found[1].detail == "lost by Ray: its node has died: its last words"
    assert found[2].detail == f"exit status {EXIT_GIVE_UP}: its last words"
    # its folder here is as it was
    assert (tmp_path / "p" / "member-1" / "checkpoints" / "old.json").exists()


def test_a_resumed_driver_takes_over_what_a_killed_one_has_left(
    cluster: Cluster, tmp_path: Path
) -> None:
    starts: list[str] = []
    Process.script = lambda member, start: starts.append(f"{member} {start}") or (0, 1.0)
    engine, tasks = RayEngine(_config(), StopFlag()), _tasks(tmp_path, 2)
    prefixes = [_prefix(task) for task in tasks]
    cluster.left = [
        f"{prefixes[1]}2.1",  # it was restarted twice, and asked for again
        f"{prefixes[0].replace('round-3', 'round-2')}0",  # of a round that is over
        f"{_prefix(replace(tasks[1], config=_config(optimiser={'learning_rate': 0.5})))}0",
        "population-another-member-0-round-3-start-0",
    ]
    assert len(list(engine.run(tasks, StopFlag()))) == 2
    assert sorted(starts) == ["member-0 0", "member-1 2"]
    assert (Process.there / cluster.left[0]).is_dir()  # taken over by its name
    assert cluster.ended == sorted(cluster.left[1:3])


def test_members_are_known_by_their_population_and_configuration(tmp_path: Path) -> None:
    [task] = _tasks(tmp_path, 1)
    name = _prefix(task)
    # as a command that is resumed elsewhere reads it
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "written.yaml").write_text(task.config.to_yaml())
    assert _prefix(replace(task, config=load_config(tmp_path / "q" / "written.yaml"))) == name
    longer = task.config.population.model_copy(update={"rounds": 99, "stop_after": 7})
    longer_ = task.config.model_copy(update={"population": longer})
    assert _prefix(replace(task, config=longer_)) == name
    # a copy, and another population at the same place
    shutil.copytree(tmp_path / "p", tmp_path / "copy")
    assert _prefix(replace(task, folder=tmp_path / "copy" / "member-0")) != name
    shutil.rmtree(tmp_path / "p")
    [task] = _tasks(tmp_path, 1)
    assert _prefix(task) != name


def test_a_stop_ends_members_by_its_signal_and_brings_their_checkpoints_back(
    cluster: Cluster, tmp_path: Path
) -> None:
    stop = StopFlag()

    def script(member: str, start: int) -> tuple[int | None, float | None]:
        stop.set("SIGINT")
        return None, None

    Process.script = script
    tasks = _tasks(tmp_path, 2)
    engine = RayEngine(_config(), StopFlag())
    assert list(engine.run(tasks, stop)) == []
    assert Process.living == []
    assert (tmp_path / "p" / "member-0" / "checkpoints" / "0.json").read_text() == "member-0"


def test_a_member_that_no_node_has_room_for_is_named_once(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Process.script = lambda member, start: (None, None)
    stop = StopFlag()
    engine = RayEngine(_config(), StopFlag())
    cluster.list = [Node("c", "10.0.0.3", 0.5)]  # the nodes that had room have died

    def nodes() -> list[Node]:
        if module.time.monotonic() > 60.0:
            stop.set("SIGINT")
        return cluster.list

    cluster.nodes = nodes
    assert list(engine.run(_tasks(tmp_path, 1), stop)) == []
    words = "member-0 waits for a node with 1 CPUs; the nodes have 10.0.0.3: 0.5 CPUs"
    assert [each.message for each in caplog.records] == [words]


def test_a_member_that_cannot_be_started_dies_alone(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Process.script = lambda member, start: (0, 1.0)

    def start(cluster: Any, command: Any, *given: Any, **more: Any) -> Process:
        if command.name == "member-1":
            raise OSError("Permission denied")
        return Process(cluster, command, *given, **more)

    monkeypatch.setattr(module, "ProcessOnRay", start)
    engine = RayEngine(_config(), StopFlag())
    found = {each.member: each for each in engine.run(_tasks(tmp_path, 3), StopFlag())}
    assert [found[n].status for n in range(3)] == ["trained", "failed", "trained"]
    assert found[1].detail == "cannot be started: Permission denied"


def test_a_folder_that_cannot_be_brought_back_leaves_no_member_running(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: Any, **more: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    ends = {"member-0": 0, "member-1": None, "member-2": None}
    Process.script = lambda member, start: (ends[member], 1.0)
    monkeypatch.setattr(module, "unpack", full)
    with pytest.raises(DiskFull, match=r"member-\d: the disk .* is full"):
        list(RayEngine(_config(), StopFlag()).run(_tasks(tmp_path, 3), StopFlag()))
    # the first one's process has ended, and its actor waits for a driver that resumes
    assert [each.member for each in Process.living] == ["member-0"]


@pytest.mark.parametrize(
    ("values", "here", "taken"),
    [
        ({"trainer": {"device": "auto"}}, 1.0, 1.0),
        ({"trainer": {"device": "auto"}}, 0.0, 0.0),
        ({"trainer": {"device": "cpu"}}, 1.0, 0.0),
        ({"trainer": {"device": "cuda"}}, 1.0, 1.0),
        ({"run": {"deterministic": True}}, 1.0, 0.0),
        (
            {"ray": {"num_cpus": {"member": 1.0}, "labels": {"member": {"pool": "a"}}}},
            1.0,
            0.0,
        ),
        ({"resident": {"envs": 8, "threads": 1, "device": "cpu"}}, 1.0, 0.0),
        ({"ray": {"num_cpus": {"member": 1.0}, "num_gpus": {"member": 0.5}}}, 1.0, 0.5),
    ],
)
def test_a_member_takes_a_gpu_where_the_cluster_has_one(
    cluster: Cluster, tmp_path: Path, values: dict[str, Any], here: float, taken: float
) -> None:
    needs: list[Need] = []

    def start(cluster: Any, command: Any, order: Any, need: Need, **more: Any) -> Process:
        needs.append(need)
        return Process(cluster, command, order, need, **more)

    cluster.list.append(Node("c", "10.0.0.3", 4.0, here))
    cluster.list.append(Node("d", "10.0.0.4", 4.0, labels={"pool": "a"}))
    Process.script = lambda member, start: (0, 1.0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "ProcessOnRay", start)
        list(RayEngine(_config(**values), StopFlag()).run(_tasks(tmp_path, 1), StopFlag()))
    assert [need.num_gpus for need in needs] == [taken]


def test_a_stop_while_the_nodes_are_asked_ends_without_an_error(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def asked(stop: StopFlag) -> Iterator[Cluster]:
        stop.set("SIGINT")
        cluster.list = []  # none has answered
        yield cluster

    monkeypatch.setattr(module, "open_cluster", asked)
    stop = StopFlag()
    assert list(RayEngine(_config(), stop).run(_tasks(tmp_path, 1), stop)) == []
    assert stop.reason == "SIGINT"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"ray": {"num_cpus": {"member": 3.0}}},
            "no node has room for a member, which takes 3 CPU",
        ),
        ({"ray": {"labels": {"member": {"pool": "x"}}}}, "pool: x; the nodes have 10.0.0.1: 2"),
        ({"monitor": {"port": 5555}}, "one monitor.port, 5555; set it to null"),
        ({"ray": {"num_cpus": {"members": 1.0}}}, "'members' is no role"),
    ],
)
def test_a_population_that_has_no_place_is_refused(
    cluster: Cluster, tmp_path: Path, values: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        RayEngine(_config(**values), StopFlag())
