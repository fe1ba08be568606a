"""`aclearn train --on ray` on clusters of several nodes on this machine."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from aclearn.population.file import read_lineage
from aclearn.runs import load_newest
from tests.support.ray_nodes import SETTINGS, RayNodes, open_ray_nodes
from tests.support.system import CARTPOLE, MARK_VARIABLE, System
from tests.support.waiting import wait_for

T = TypeVar("T")

pytest.importorskip("ray")
pytestmark = pytest.mark.xdist_group("ray")


@pytest.fixture
def nodes(system: System) -> Iterator[RayNodes]:
    marked = {MARK_VARIABLE: system.environment[MARK_VARIABLE]}
    with open_ray_nodes(2, marked) as opened:
        system.environment |= {"RAY_ADDRESS": opened.address, **SETTINGS}
        yield opened


def _roles(system: System) -> dict[str, int]:
    """Name → process id of the living roles, on all nodes."""
    found = {}
    for process in system.living():
        try:
            words = process.cmdline()
        except psutil.NoSuchProcess:
            continue
        if "--name" in words and process.status() != psutil.STATUS_ZOMBIE:
            found[words[words.index("--name") + 1]] = process.pid
    return found


def _named(*actors: int) -> set[str]:
    return {"monitor-0", "trainer-0", *(f"actor-{number}" for number in actors)}


def test_actors_follow_the_nodes_and_a_dead_node_loses_only_its_own(
    system: System, nodes: RayNodes
) -> None:
    # the trainer takes one CPU of the head, and the monitor none
    second = nodes.add(num_cpus=2)
    run = system.train(system.config(CARTPOLE), "--on", "ray")
    run.wait_until_learning()
    assert _roles(system).keys() == _named(0, 1, 2)

    nodes.add(num_cpus=1)
    run.wait_for(lambda: _roles(system).keys() == _named(0, 1, 2, 3), "a node brings an actor")
    before = _roles(system)
    nodes.kill(second)
    run.wait_for(lambda: "has left the cluster" in run.output, "the console says it")
    run.wait_for(lambda: run.output.count(" removed: ") == 2, "its actors are given up")
    after = _roles(system)
    assert len(after) == 4 and _named() < after.keys()
    assert {name: before[name] for name in after} == after  # no other one was restarted
    run.wait_until_learning(beyond=run.last()["env_steps"] + 500)

    # the supervisor restarts what dies; the trainer continues from its checkpoint
    psutil.Process(after["trainer-0"]).kill()
    run.wait_for(lambda: run.last()["generation"] == 1, "the trainer is back")
    run.wait_until_learning(beyond=run.last()["env_steps"] + 500)

    summary = run.finish(signal.SIGINT)
    assert summary["env_steps"] > 0
    assert _roles(system) == {}
    assert "Raylet is terminated" not in run.output
    # the logs of all nodes are in the run folder; its configuration has no address of the cluster
    assert "event=" in run.log("actor-1")
    config = (run.folder / "config.yaml").read_text()
    assert "keys_dir: null" in config and "bind_host: 127.0.0.1" in config


def test_the_roles_of_a_run_answer_over_tcp_and_end_with_their_driver(
    system: System, nodes: RayNodes, tmp_path: Path
) -> None:
    config = system.config(
        CARTPOLE,
        actors={"inference": "predictor"},
        compressor={"chain": [{"quantize": "int8"}, "onnx"]},
        ray={"labels": {"predictor": {"pool": "infer"}, "compressor": {"pool": "infer"}}},
    )
    run = system.train(config, "--on", "ray")
    assert run.wait() == 64
    assert "no room for all roles" in run.output and "pool: infer; the nodes have" in run.output
    assert not run.folder.exists()

    nodes.add(num_cpus=3, labels={"pool": "infer"})
    run = system.train(config, "--on", "ray")
    run.wait_until_learning(beyond=500)
    assert {"predictor-0", "compressor-0", "actor-0", "actor-1"} < _roles(system).keys()
    run.signal(signal.SIGKILL)
    run.wait()
    wait_for(lambda: not _roles(system), "every role has ended", within_s=30.0)
    [keys] = system.sockets.glob("aclearn-ray-*")  # a run removes it, a minute later
    shutil.rmtree(keys)

    # a node on which the package says that it is another version
    stand_in = tmp_path / "other" / "ray-2.59.0.dist-info"
    stand_in.mkdir(parents=True)
    (stand_in / "METADATA").write_text("Metadata-Version: 2.1\nName: ray\nVersion: 2.59.0\n")
    nodes.add(num_cpus=1, environment={"PYTHONPATH": str(stand_in.parent)})
    run = system.train(config, "--on", "ray", "run.name=other")
    assert run.wait() == 64
    assert "has ray 2.59.0 where this machine has ray 2.60" in run.output
    assert "pip install 'ray==2.60" in run.output
    assert "Traceback" not in run.output and not run.folder.exists()


def _members(system: System) -> dict[str, int]:
    """Folder → process id of the members that are trained."""
    found = {}
    for process in system.living():
        try:
            words = process.cmdline()
        except psutil.NoSuchProcess:
            continue
        if "services.population.member" in words and process.status() != psutil.STATUS_ZOMBIE:
            found[Path(words[-3]).name] = process.pid
    return found


def test_members_outlive_a_node_and_their_driver(system: System, nodes: RayNodes) -> None:
    second = nodes.add(num_cpus=1)
    config = system.config(
        CARTPOLE,
        run={"name": "p", "deterministic": True, "checkpoint_every_s": 1.0},
        evaluator={"episodes": 2},
        population={
            "members": 3,
            "rounds": 2,
            "round_steps": 6000,
            "mutate": {"optimiser.learning_rate": [1e-4, 1e-2]},
        },
    )
    folder = system.folder / "runs" / "p"
    command = system.command("evolve", config, "--on", "ray")

    def all_are_trained() -> dict[str, int] | None:
        members = _members(system)
        return members if len(members) == 3 else None

    def wait_until(condition: Callable[[], T | None], what: str) -> T:
        return wait_for(condition, what, within_s=240.0, context=lambda: command.output)

    before = wait_until(all_are_trained, "three members on two nodes")
    nodes.kill(second)
    wait_until(lambda: before.items() - _members(system).items(), "one is lost")
    wait_until(lambda: read_lineage(folder).now.number == 2, "the next round")
    [first, _] = read_lineage(folder).rounds
    assert [(each.status, each.detail) for each in first.members] == [("trained", "")] * 3
    assert [each.restarts > 0 for each in first.members].count(True) == 1  # no other was touched

    # two CPUs are left, and the members there outlive a killed driver
    before = wait_until(
        lambda: members if len(members := _members(system)) == 2 else None, "two members"
    )
    command.process.kill()
    command.process.wait(timeout=60.0)
    command = system.command("evolve", config, "--resume", "--on", "ray")
    wait_until(lambda: "population" in command.output, "it is resumed")
    now = _members(system)
    # no second process of a member; one that is over has made room for the third
    assert {name: now[name] for name in before if name in now}.items() <= before.items()
    assert command.wait(within_s=300.0) == 0, command.output
    after = read_lineage(folder)
    assert after.rounds[0] == first
    assert [(each.status, each.restarts) for each in after.now.members] == [("trained", 0)] * 3
    assert _members(system) == {}
    assert load_newest(folder / "best" / "checkpoints") is not None
    assert "Traceback" not in command.output
