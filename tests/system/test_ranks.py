"""Several trainers that learn as one, as real processes."""

from __future__ import annotations

import os
import signal
from typing import Any

import psutil
import pytest

from aclearn.runs import load_newest
from tests.support.system import CARTPOLE, RESIDENT, Run, System

_RANKS: dict[str, Any] = CARTPOLE | {
    "trainer": {**CARTPOLE["trainer"], "processes": 2},
    "actors": {**CARTPOLE["actors"], "processes": 3},
    "supervisor": {"max_restarts": 20, "backoff_first_s": 0.1, "backoff_max_s": 0.2},
}

_RESIDENT: dict[str, Any] = RESIDENT | {
    "resident": {"envs": 64, "device": "cpu", "devices": 2, "threads": 1}
}


def _kill_rank(run: Run, name: str) -> None:
    """Kill one trainer: the other leaves within 5 s, and both learn again within 15 s."""
    pids, before = run.pids(), run.last()
    [other] = {"trainer-0", "trainer-1"} - {name}
    run.kill_role(name)
    run.wait_for(
        lambda: not psutil.pid_exists(pids[other]) or run.pids().get(other) != pids[other],
        f"{other} has left the group",
        within_s=5.0,
    )

    def learns_again() -> dict[str, Any] | None:
        line = run.last()
        newer = line["generation"] == before["generation"] + 1
        return line if newer and line["learned_steps"] > before["learned_steps"] + 100 else None

    after = run.wait_for(learns_again, "both ranks learn again", within_s=15.0)
    now = run.pids()
    assert {n: pid for n, pid in now.items() if "trainer" not in n} == {
        n: pid for n, pid in pids.items() if "trainer" not in n
    }
    assert not {now["trainer-0"], now["trainer-1"]} & {pids["trainer-0"], pids["trainer-1"]}
    assert after["learned_steps"] <= after["env_steps"]


def test_ranks_start_again_together_and_a_run_goes_on_with_another_number(system: System) -> None:
    # Given two ranks that learn
    config = system.config(_RANKS)
    run = system.train(config)
    run.wait_until_learning(beyond=400)
    # When each of them is killed in turn, then they come back as one generation
    _kill_rank(run, "trainer-1")
    _kill_rank(run, "trainer-0")
    assert "another rank" in run.log("trainer-0") + run.log("trainer-1")
    # When the run is interrupted, then it ends in time, and the checkpoint has both ledgers
    ended = run.finish(signal.SIGINT)
    saved = load_newest(run.folder / "checkpoints")
    assert saved is not None and saved.label == ended["updates"]
    parts = [ledger["learned_steps"] for ledger in saved.state["ledgers"]]
    assert len(parts) == 2 and min(parts) > 0 and sum(parts) == ended["learned_steps"]
    # When it goes on with another number of ranks, then nothing is forgotten or learned twice
    for ranks in (1, 3):
        bound = ended["updates"] + 40
        more = (f"trainer.processes={ranks}", f"run.max_updates={bound}", "--resume")
        run = system.train(config, *more)
        assert run.wait(within_s=120.0) == 0, run.diagnosis()
        begun, ended = ended, run.check_account()
        assert ended["updates"] == bound and ended["generation"] == begun["generation"] + 1
        assert begun["learned_steps"] < ended["learned_steps"] <= ended["env_steps"]
        saved = load_newest(run.folder / "checkpoints")
        assert saved is not None
        assert saved.state["account"]["learned_steps"] == ended["learned_steps"]
        assert len(saved.state.get("ledgers", [saved.state["account"]])) == ranks


#: Of every process; a role that is a fork runs it as it imports what makes a group.
_DIES_AS_IT_CONNECTS = """
import os, signal, sys

mark = os.path.join(os.path.dirname(__file__), "died")

class Dies:
    def _Options():
        open(mark, "x").close()
        os.kill(os.getpid(), signal.SIGKILL)

class AtImport:
    def find_spec(module, path=None, target=None):
        mine = module == "aclearn.learning.ranks.torch_group" and "{name}" in sys.argv
        if mine and not os.path.exists(mark):
            import torch.distributed as dist

            dist.ProcessGroupGloo = Dies

sys.meta_path.insert(0, AtImport)
"""


@pytest.mark.parametrize("name", ["trainer-1", "trainer-0"])
def test_a_rank_that_dies_while_all_connect_is_replaced_within_15_s(
    system: System, name: str
) -> None:
    # Given ranks of which one dies once all have confirmed that they are there
    (system.folder / "sitecustomize.py").write_text(_DIES_AS_IT_CONNECTS.format(name=name))
    run = system.train(system.config(_RANKS))
    run.wait_for((system.folder / "died").exists, f"{name} has died")
    [other] = {"trainer-0", "trainer-1"} - {name}
    pid = run.pids()[other]
    # Then all learn 15 s later, and the other one has waited for its successor
    run.wait_for(lambda: run.last()["learned_steps"], "both ranks learn", within_s=15.0)
    assert run.pids()[other] == pid
    assert run.output.count("died") == 1 and f"{name} died" in run.output
    run.finish()


def test_one_rank_that_is_told_to_end_takes_the_others_along_and_loses_nothing(
    system: System,
) -> None:
    run = system.train(system.config(_RANKS, run={"checkpoint_every_s": 1000.0}))
    learned = run.wait_until_learning(beyond=400)
    pids = run.pids()
    os.kill(pids["trainer-1"], signal.SIGTERM)
    run.wait_for_new("trainer-0", pids["trainer-0"], within_s=15.0)
    run.wait_for(lambda: run.last()["generation"] == 1, "they learn again", within_s=20.0)
    assert run.last()["learned_steps"] >= learned["learned_steps"]  # rank 0 has saved
    run.finish()


@pytest.mark.parametrize("settings", [_RANKS, _RESIDENT], ids=["actors", "resident"])
def test_a_rank_that_hangs_costs_neither_the_end_in_time_nor_the_checkpoint(
    system: System, settings: dict[str, Any]
) -> None:
    run = system.train(system.config(settings, run={"checkpoint_every_s": 1000.0}))
    run.wait_until_learning(beyond=400)
    # learned steps are of both ranks, updates of the first, which may report later
    run.wait_for(lambda: run.last()["updates"] > 0, "an update")
    os.kill(run.pids()["trainer-1"], signal.SIGSTOP)
    before = run.last()
    run.signal(signal.SIGINT)
    assert run.wait(within_s=10.0) == 128 + signal.SIGINT, run.diagnosis()
    saved = load_newest(run.folder / "checkpoints")
    assert saved is not None and saved.label >= before["updates"] > 0
    assert saved.state["account"]["learned_steps"] == saved.tensors["totals"][2]


def test_resident_ranks_play_on_until_they_are_stopped_together(system: System) -> None:
    run = system.train(system.config(_RESIDENT, run={"max_updates": 10_000_000}))
    run.wait_until_learning(beyond=2000)
    ended = run.finish(signal.SIGINT)
    saved = load_newest(run.folder / "checkpoints")
    assert saved is not None and saved.label == ended["updates"]
    parts = [ledger["learned_steps"] for ledger in saved.state["ledgers"]]
    assert len(parts) == 2 and min(parts) > 0 and sum(parts) == ended["learned_steps"]
