"""The configurations that we ship."""

from __future__ import annotations

from pathlib import Path

import pytest

from aclearn.config import load_config

ROOT = Path(__file__).parents[3]
SHIPPED = sorted((ROOT / "configs").rglob("*.yaml"))


def _name(path: Path) -> str:
    return path.relative_to(ROOT / "configs").with_suffix("").as_posix()


@pytest.mark.parametrize("path", SHIPPED, ids=_name)
def test_a_shipped_configuration_is_complete_commented_and_named_after_its_file(path: Path) -> None:
    config = load_config(path, ["run.seed=3"])
    assert config.experiment == _name(path).replace("/", "-")
    assert load_config(_name(path), ["run.seed=3"]) == config
    ends = config.run.target_return is not None or config.run.max_env_steps is not None
    assert ends or config.population.enabled
    # a student acts only near its policy
    assert "distill" not in str(config.compressor.chain) or config.compressor.max_kl is not None
    plain = ("id:", "kind:", "architecture:")
    keys = [line.strip() for line in path.read_text("utf-8").splitlines() if line.startswith("  ")]
    assert [key for key in keys if "#" not in key and not key.startswith(plain)] == []


def test_three_games_and_five_chains_are_shipped() -> None:
    games = {"breakout", "cartpole", "pong"}
    chains = {"pong_int8", "pong_pruned", "pong_distilled", "pong_chain", "cluster"}
    top = {path.stem: path for path in SHIPPED if path.parent.name == "configs"}
    assert games | chains <= top.keys()
    for name, path in top.items():
        assert bool(load_config(path, []).compressor.chain) == (name in chains)
