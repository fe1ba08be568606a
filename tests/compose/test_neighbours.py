"""Clusters on one machine share its memory, and may share a folder."""

from __future__ import annotations

import json
import re

import yaml

from tests.support.compose import ROLES
from tests.support.waiting import wait_for

#: Services that make a run of configs/cartpole.yaml.
FEW = ("monitor", "trainer", "actor")
ENDLESS = "run.target_return=null run.metrics_every_s=0.25"
#: An environment that exceeds its container's memory, the first time.
HUNGRY = """
from pathlib import Path

import gymnasium


class Hungry(gymnasium.Wrapper):
    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1"))
        self.steps = 0

    def step(self, action):
        self.steps += 1
        eaten = Path("runs/eaten")
        if self.steps == 300 and not eaten.exists():
            eaten.touch()
            self.food = b"x" * 2**30
        return super().step(action)
"""


def test_a_second_cluster_is_refused_the_run_of_the_first_and_trains_beside_it(clone) -> None:
    cluster = clone()
    given = {"CONFIG": "configs/cartpole.yaml", "ARGS": f"{ENDLESS} run.name=r"}
    cluster.compose("up", "--detach", *FEW, **given)
    cluster.wait_until_learned(name="r")
    other = f"{cluster.project}-b"
    second = given | {"COMPOSE_PROJECT_NAME": other}
    # the engine's codes: docker-compose may end before it prints that of the last container
    none: dict[str, list[int]] = {role: [] for role in ROLES}
    try:
        output = cluster.compose("up", "monitor", "trainer", **second)
        words = r"/work/runs/r is being written by the monitor \(process 1 on host \w+, since "
        assert re.search(words, output), output
        ended = none | {"monitor": [0], "trainer": [0]}
        assert cluster.exit_codes(other) == ended, output

        # another run, whose roles use the same names and the same name of the monitor
        second["ARGS"] = "run.name=b run.max_updates=50"
        output = cluster.compose("up", *FEW, **second)
        assert cluster.exit_codes(other) == ended | {"actor": [0, 0]}, output
        summary = json.loads((cluster.run("b") / "summary.json").read_text())
        assert (summary["reason"], summary["generation"]) == ("max_updates", 0)
    finally:
        cluster.compose("down", "--volumes", **second)
    cluster.wait_until_learned(cluster.last("env_steps", "r") + 1000, name="r")
    assert cluster.last("generation", "r") == 0


def test_the_monitor_says_which_role_was_killed_by_its_memory_limit(clone) -> None:
    cluster = clone()
    (cluster.folder / "hungry.py").write_text(HUNGRY)
    limits = {"services": {"actor": {"mem_limit": "400m", "memswap_limit": "400m"}}}
    (cluster.folder / "docker-compose.override.yml").write_text(yaml.safe_dump(limits))
    given = f"{ENDLESS} run.name=r env.id=hungry:Hungry"
    cluster.compose(
        "up", "--detach", "--scale", "actor=1", *FEW, CONFIG="configs/cartpole.yaml", ARGS=given
    )
    words = (
        r"event=run text='actor-0 is back: its previous process was killed, at most a second "
        r"after it used \d+ of 400 MiB, the limit of its container'"
    )
    wait_for(
        lambda: re.search(words, cluster.logs()),
        "the monitor says that the actor was killed",
        context=cluster.logs,
    )
    cluster.wait_until_learned(cluster.last("env_steps", "r") + 1000, name="r")
