"""A cluster as the place of a run's roles, with scripted nodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from aclearn.config import Config
from aclearn.errors import ConfigError
from aclearn.launch import RoleCommand, StopFlag
from services.launcher import ray_place as module
from services.launcher.place import open_place
from services.launcher.ray_place import OnRay, open_ray
from services.on_ray.room import Node
from tests.support.keys import make_keys

CARTPOLE = {"env": {"id": "CartPole-v1"}}


class Nodes:
    def __init__(self, *cpus: float, gpus: float = 0.0) -> None:
        self.list = [Node(f"n{i}", f"10.0.0.{i}", cpu, gpus) for i, cpu in enumerate(cpus)]
        self.here, self.address, self.notes = "n0", "127.0.0.1", []

    def nodes(self) -> list[Node]:
        return self.list


class Process:
    """A role that has or has no node."""

    def __init__(self, cluster, command, order, need) -> None:
        self.command, self.order, self.need = command, order, need
        self.node_id, self.asked_at = None, module.time.monotonic()

    def exited(self) -> bool:
        return False


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(module, "ProcessOnRay", Process)
    return clock


def _start(place: OnRay, name: str) -> Process:
    role = name.partition("-")[0]
    return place.start(RoleCommand(role, name, ("python", "-c"), {}, Path()), 0)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"run": {"deterministic": True}}, "run.deterministic runs all roles in one process"),
        (
            {"tuner": {"enabled": True, "counts": ["actors"]}},
            "take actors out of tuner.counts",
        ),
        ({"ray": {"num_cpus": {"actors": 2.0}}}, "ray.num_cpus: 'actors' is no role; expected.*"),
        ({"ray": {"labels": {"x": {"a": "b"}}}}, "ray.labels: 'x' is no role"),
    ],
)
def test_what_contradicts_a_cluster_is_refused_before_ray_is_asked(values, words: str) -> None:
    with (
        pytest.raises(ConfigError, match=words),
        open_ray(Config(**CARTPOLE, **values), StopFlag()),
    ):
        pass


def test_a_stop_while_the_nodes_are_asked_ends_without_a_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop = StopFlag()

    @contextmanager
    def asked(given: StopFlag) -> Iterator[Nodes]:
        given.set("SIGINT")
        yield Nodes()  # none has answered

    monkeypatch.setattr(module, "open_cluster", asked)
    with open_place("ray", Config(**CARTPOLE), stop) as place:
        assert place is None and stop.reason == "SIGINT"


def test_an_unknown_place_is_named() -> None:
    with pytest.raises(ConfigError, match="'moon' is unknown; expected one of local, ray"):
        open_place("moon", Config(**CARTPOLE), StopFlag())
    with pytest.raises(ConfigError, match=r"ray.num_cpus: actor is 0"):
        Config(**CARTPOLE, ray={"num_cpus": {"actor": 0.0}})


def test_actors_are_as_many_as_there_are_cpus_beside_the_other_roles(
    clock: SimpleNamespace, tmp_path: Path
) -> None:
    config = Config(**CARTPOLE, ray={"max_actors": 6})
    make_keys(tmp_path)
    nodes = Nodes(2, 3)
    place = OnRay(config, nodes, str(tmp_path))
    assert place.config.actors.processes == 2 - 1 + 3
    assert f"actors.processes={4}" in place.overrides
    assert place.kept(place.config) == config  # no address, no number of this cluster

    place.open_files(b"env: {}")
    trainer = _start(place, "trainer-0")
    assert (trainer.need.num_cpus, trainer.need.node_id) == (1.0, "n0")
    assert trainer.order.files["config.yaml"] == b"env: {}"
    monitor, actor = _start(place, "monitor-0"), _start(place, "actor-0")
    assert monitor.need.num_cpus == 0.0
    # each has its own key alone
    files = [started.order.files.keys() - {"config.yaml"} for started in (trainer, monitor, actor)]
    assert files == [{"trainer.key"}, {"monitor.key", "allowed.json"}, {"actor.key"}]
    assert (actor.need.num_cpus, actor.need.node_id) == (1.0, None)

    notes: list[str] = []

    def wanted(after_s: float) -> int | None:
        clock.now += after_s
        return place.actors(None, notes.append)

    assert wanted(0.0) == 4
    nodes.list.append(Node("n2", "10.0.0.2", 1))
    assert wanted(2.0) == 5
    nodes.list.append(Node("n3", "10.0.0.3", 8))
    assert wanted(2.0) == 6  # ray.max_actors
    # two nodes die: the dead are known to be dead before the number falls
    del nodes.list[2:]
    assert [wanted(4.0), wanted(4.0), wanted(4.0)] == [6, 6, 4]
    assert notes == []
    nodes.notes.append("the node 10.0.0.2 has left the cluster")
    wanted(20.0)
    wanted(2.0)
    assert notes[0] == "the node 10.0.0.2 has left the cluster"
    assert sorted(note.partition(" waits")[0] for note in notes[1:]) == [
        "actor-0",
        "monitor-0",
        "trainer-0",
    ]
    assert "actor-0 waits for a node with 1 CPUs; the nodes have 10.0.0.0: 2 CPUs" in notes[-1]


def test_a_role_on_another_node_leaves_its_room_here(
    clock: SimpleNamespace, tmp_path: Path
) -> None:
    config = Config(**CARTPOLE, actors={"inference": "predictor"}, predictor={"processes": 1})
    place = OnRay(config, Nodes(4, 2), str(make_keys(tmp_path / "keys")))
    assert place.config.actors.processes == 4 - 1 + 2 - 1
    predictor = _start(place, "predictor-0")
    predictor.node_id = "n1"
    assert place.actors(None, print) == 3 + 1


def test_a_gpu_is_the_trainer_s_where_there_is_one(clock: SimpleNamespace, tmp_path: Path) -> None:
    keys = str(make_keys(tmp_path / "keys"))
    for device, gpus, taken in (("auto", 1.0, 1.0), ("auto", 0.0, 0.0), ("cpu", 1.0, 0.0)):
        config = Config(**CARTPOLE, trainer={"device": device})
        place = OnRay(config, Nodes(2, gpus=gpus), keys)
        assert _start(place, "trainer-0").need.num_gpus == taken
    resident = {"envs": 8, "threads": 2, "device": "cpu"}
    place = OnRay(Config(**CARTPOLE, resident=resident), Nodes(2, gpus=1.0), keys)
    assert _start(place, "trainer-0").need.num_gpus == 0.0
    config = Config(**CARTPOLE, resident={"envs": 8, "threads": 2})
    place = OnRay(config, Nodes(2), keys)
    assert place.actors(None, print) is None  # no actors
    with pytest.raises(ConfigError, match=r"no room for all roles.*2 CPUs; the nodes have"):
        OnRay(config, Nodes(1, 8), keys)
    with pytest.raises(ConfigError, match=r"no room for an actor, which takes 1 CPUs"):
        OnRay(Config(**CARTPOLE), Nodes(1), keys)
