"""Two machines with containers: each a project of its own, joined by published ports only."""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
import signal

import pytest

from tests.support.compose import REPOSITORY, Cluster, docker
from tests.support.metrics_lines import check_lines
from tests.support.waiting import DEADLINE_S, wait_for

FILES = ("-f", "docker-compose.yml", "-f", "docker-compose.machines.yml")
FIRST = (*FILES, "up", "monitor", "trainer", "predictor", "compressor")
OTHER = ("up", "--no-deps", "--scale", "actor=2", "actor")
ENDLESS = "run.target_return=null run.metrics_every_s=0.25"


@pytest.fixture
def address(image: str) -> str:
    """An address of the host at which containers of every network reach published ports."""
    [network] = json.loads(docker("network", "inspect", "bridge"))
    [config] = network["IPAM"]["Config"]
    # an engine that has just been set up names no gateway: it is the first address then
    return config.get("Gateway") or str(ipaddress.ip_network(config["Subnet"])[1])


def acts_on(first: Cluster) -> None:
    """Wait until steps acted from now on are learned: the actors are on the other machine."""
    first.wait_until_learned(first.last("env_steps") + 2000, within_s=40.0)


def test_actors_of_another_machine_learn_with_the_trainer_of_the_first(clone, address) -> None:
    page = (REPOSITORY / "docs" / "containers.md").read_text("utf-8")
    for arguments in (FIRST, OTHER):
        assert " ".join(["docker-compose", *arguments]).replace("=2", "=8") in page
    first, other = clone("first"), clone("other")
    given = {"KEYS": "./keys", "ARGS": ENDLESS}
    up = first.start(*FIRST, ADDRESS=address, **given)
    given["MONITOR"] = f"tcp://{address}:5555"

    # no keys, and those of another cluster
    output = other.compose(*OTHER, **given)
    assert "/keys has no key for the role actor" in output
    assert "copy to this machine the files of the roles that run here" in output
    other.compose("run", "--rm", "keys", **given)
    join = other.start(*OTHER, **given)
    wait_for(
        lambda: "the same keys (network.keys_dir)?" in other.log.read_text(),
        "an actor says that its keys may be others",
        context=other.log.read_text,
    )
    assert (
        "a peer has no keys (network.keys_dir), or another key for this server"
        in first.log.read_text()
    )
    assert first.last("learned_steps") == 0 and first.last("monitor_refused_connections") > 0
    other.compose("stop", **given)
    assert join.wait(DEADLINE_S) == 0

    shutil.copytree(first.folder / "keys", other.folder / "keys", dirs_exist_ok=True)
    other.give(other.folder / "keys")
    join = other.start(*OTHER, **given)
    acts_on(first)
    # the ports stay those that the others know
    [trainer] = first.containers("trainer")
    os.kill(first.state(trainer)["Pid"], signal.SIGKILL)
    wait_for(lambda: first.last("generation") == 1, "the trainer is back", context=first.logs)
    acts_on(first)

    # a stop does not end the run: the actors wait for its resumption, and end with the run
    first.compose("stop", "--timeout", "10")
    assert up.wait(DEADLINE_S) == 0
    assert join.poll() is None
    given["ARGS"] += f" run.max_updates={first.last('updates') + 100}"
    up = first.start(*FIRST, ADDRESS=address, KEYS="./keys", ARGS=given["ARGS"])
    for started, name in ((up, "first"), (join, "other")):
        wait_for(
            lambda started=started: started.poll() is not None,
            f"docker-compose of the {name} machine has ended",
            within_s=120.0,
            context=lambda: first.report() + other.report(),
        )
        assert started.returncode == 0, other.log.read_text()
    for container in other.containers("actor"):
        assert other.state(container)["ExitCode"] == 0
    assert "Traceback" not in first.log.read_text() + other.log.read_text()
    check_lines(first.lines())


def test_a_port_that_is_taken_or_an_address_that_is_missing_ends_up(clone, address) -> None:
    cluster = clone()
    up = cluster.start(*FIRST)
    assert up.wait(DEADLINE_S) == 1
    assert "set it to the address at which other machines" in cluster.log.read_text()
    holder = docker(
        *("run", "--detach", "--rm", "--publish", f"{address}:5555:5555"),
        *("--entrypoint", "sleep", cluster.image, "120"),
    ).strip()
    try:
        assert cluster.start(*FIRST, ADDRESS=address).wait(DEADLINE_S) == 1
        assert f"{address}:5555 failed: port is already allocated" in cluster.log.read_text()
    finally:
        docker("rm", "--force", holder)
