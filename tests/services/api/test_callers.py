"""What a program that calls the API keeps, and is told."""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import aclearn
from aclearn.errors import ArgumentError, RoleFailure, RunFolderError
from services.api.training import _stopped_by_signals
from tests.support.saved_runs import save_run

_SHORT = {
    "run.deterministic": True,
    "run.max_updates": 1,
    "actors.envs_per_group": 2,
    "actors.unroll_length": 4,
}


def test_a_signal_has_its_effect_though_the_run_ended_for_another_reason() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), _stopped_by_signals() as stop:
        stop.set("on_metrics")
        signal.raise_signal(signal.SIGINT)
        raise RoleFailure("a loop over runs that takes this would go on")
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(RoleFailure), _stopped_by_signals():
        raise RoleFailure("without a signal")


def test_the_third_ctrl_c_is_the_callers_and_does_not_end_its_process() -> None:
    before, acts = signal.signal(signal.SIGINT, signal.default_int_handler), []
    try:
        with pytest.raises(KeyboardInterrupt), _stopped_by_signals() as stop:
            stop.last_acts.append(lambda: acts.append("removed"))
            for _ in range(2):
                signal.raise_signal(signal.SIGINT)
            assert stop.forced and acts == []
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            assert acts == ["removed"]
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_is_no_function_is_refused_before_anything_starts(tmp_path, monkeypatch) -> None:
    async def never_awaited(line: object) -> None: ...

    monkeypatch.chdir(tmp_path)
    for wrong in (3, never_awaited):
        with pytest.raises(ArgumentError, match="on_metrics: expected a plain function"):
            aclearn.train("cartpole", on_metrics=wrong)
        with pytest.raises(ArgumentError, match="on_round: expected a plain function"):
            aclearn.evolve("population/cartpole", on_round=wrong)
    with pytest.raises(ArgumentError, match="config: expected a configuration or a path, got a"):
        aclearn.evolve(None)
    assert list(tmp_path.iterdir()) == []


def test_a_run_in_lock_step_leaves_the_callers_torch_as_it_was(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    torch.manual_seed(11)
    expected = torch.rand(3)
    try:
        torch.set_num_threads(2)
        torch.manual_seed(11)
        aclearn.train("cartpole", {**_SHORT, "run.dir": str(tmp_path)})
        assert torch.get_num_threads() == 2
        assert torch.equal(torch.rand(3), expected)
    finally:
        torch.set_num_threads(threads)


def test_a_run_whose_folder_is_gone_says_so(tmp_path: Path) -> None:
    run = aclearn.open_run(save_run(tmp_path / "r", {"id": "CartPole-v1"}))
    shutil.move(run.path, tmp_path / "elsewhere")
    for read in (lambda: run.metrics, lambda: run.summary):
        with pytest.raises(RunFolderError, match=r"was moved or removed; open the run at its new"):
            read()


def test_an_environment_is_found_beside_its_configuration(tmp_path: Path, monkeypatch) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    project.mkdir()
    elsewhere.mkdir()
    (project / "pole_of_a_project.py").write_text(
        "from gymnasium.envs.classic_control import CartPoleEnv\n\n\n"
        "class Pole(CartPoleEnv):\n    pass\n"
    )
    (project / "pole.yaml").write_text("env: {id: 'pole_of_a_project:Pole'}\n")
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(sys, "path", [*sys.path])
    env = aclearn.make_env(project / "pole.yaml")
    seen, _ = env.reset()
    env.close()
    assert np.isfinite(seen).all()
