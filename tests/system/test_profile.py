"""`aclearn profile` from its start to its end."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.support.metrics_lines import check_lines
from tests.support.system import CARTPOLE, Command, System
from tests.support.waiting import wait_for

#: The way of an agent step; what waits for a device or copies weights comes on top.
_PARTS = {
    "emulator",
    "inference",
    "encode",
    "wire",
    "decode",
    "batch",
    "forward",
    "backward",
    "optimiser",
    "publish",
}


def test_profile_tells_the_budget_of_a_step_and_leaves_nothing(
    system: System, tmp_path: Path
) -> None:
    figures = tmp_path / "budget.json"
    config = system.config(
        CARTPOLE,
        run={"target_return": 1},
        actors={"inference": "predictor"},
        trainer={"epochs": 10},  # the slowest role, for which actors wait
    )
    profile = system.command("profile", config, "--seconds", "3", "--json", figures)
    _check_account_while_it_measures(system, profile)
    assert profile.wait() == 0, profile.output
    budget = json.loads(figures.read_text())
    assert budget["seconds"] >= 3.0 and budget["learned_steps"] > 0
    roles = {name: role for name, role in budget["roles"].items() if role["accounted"] is not None}
    assert roles.keys() == {"actor", "trainer", "predictor"}
    for name, role in roles.items():
        # the parts are measured in the role: together they are its time on the clock
        assert 0.9 <= role["accounted"] <= 1.0 + 1e-6, (name, profile.output)
        assert f"{name}: accounted for" in profile.output
        # two actors of a thread each; elsewhere a worker and the thread of the sockets
        assert role["threads"] == pytest.approx(2.0, rel=0.4), (name, profile.output)
    named = {name: set(role["wall_us"]) for name, role in roles.items()}
    assert {"emulator", "encode", "wire", "waiting for training queue", "other"} <= named["actor"]
    assert "inference" in named["predictor"]
    assert set().union(*named.values()) >= _PARTS, profile.output
    assert {"actor-0", "actor-1", "trainer-0", "monitor-0"} <= budget["cpu_cores"].keys()
    assert list(system.sockets.glob("aclearn-profile-*")) == [], "the run's folder is left"
    assert not (tmp_path / "runs").exists()
    again = system.command("profile", config, "--json", figures)
    assert again.wait() != 0 and "budget.json exists already; --force replaces it" in again.output


def test_a_profile_that_is_interrupted_ends_its_run_and_prints_nothing(system: System) -> None:
    profile = system.command("profile", system.config(CARTPOLE), "--seconds", "3000")
    _check_account_while_it_measures(system, profile)
    profile.signal(signal.SIGINT)
    assert profile.wait(within_s=20.0) == 130, profile.output
    assert "Budget" not in profile.output
    assert list(system.sockets.glob("aclearn-profile-*")) == []


def _check_account_while_it_measures(system: System, profile: Command) -> None:
    """The run is a real one, in a folder that goes with the profile."""
    wait_for(
        lambda: "learning; measuring" in profile.output,
        "it learns",
        context=lambda: profile.output,
    )
    (metrics,) = system.sockets.glob("aclearn-profile-*/profile/metrics.jsonl")
    lines = [json.loads(line) for line in metrics.read_text().split("\n")[:-1]]
    check_lines(lines)
    assert lines[-1]["learned_steps"] > 0
