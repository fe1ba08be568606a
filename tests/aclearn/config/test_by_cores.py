"""Counts that follow the cores of the machine."""

from __future__ import annotations

import pytest

from aclearn.config import _fields, load_config


@pytest.mark.parametrize(("cores", "counts"), [(1, (1, 1, 1)), (8, (8, 2, 2)), (600, (500, 2, 2))])
def test_auto_is_an_actor_for_each_core_and_two_workers(
    cores: int, counts: tuple[int, ...], tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_fields, "usable_cores", lambda: cores)
    path = tmp_path / "ours.yaml"
    path.write_text("env: {id: CartPole-v1}\nactors: {processes: auto, inference: predictor}\n")
    auto = [f"{section}.workers=auto" for section in ("predictor", "trainer")]
    written = tmp_path / "config.yaml"
    written.write_text(load_config(path, auto).to_yaml())
    monkeypatch.setattr(_fields, "usable_cores", lambda: 3)  # a run goes on with its numbers
    config = load_config(written)
    assert (config.actors.processes, config.predictor.workers, config.trainer.workers) == counts
