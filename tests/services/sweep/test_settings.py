"""Files of sweeps: what they may say, and how mistakes are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from aclearn.errors import ConfigError
from services.sweep.settings import load_sweep

GOOD: dict[str, Any] = {
    "config": "cartpole",
    "steps": 1000,
    "search": {"optimiser.learning_rate": {"log": [1e-5, 1e-2]}},
}


def _load(folder: Path, **values: Any) -> Any:
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump(GOOD | values))
    return load_sweep(path)


def test_a_sweep_has_ranges_logs_and_choices_of_any_key(tmp_path: Path) -> None:
    search = {
        "optimiser.learning_rate": {"log": [1e-5, 1e-2]},
        "actors.unroll_length": {"range": [5, 20]},
        "policy.hidden": {"choices": [[32], [64, 64]]},
        "loss.entropy_cost": {"range": [0.0, 1.0]},  # whole ends of a key that is not
        "loss.discount": {"range": [0, 0.5]},
        "env.kwargs.level": {"range": [1, 3]},  # of any type: that of its present value
        "env.kwargs.slope": {"range": [1, 3]},
    }
    settings = _load(
        tmp_path,
        search=search,
        set={
            "optimiser.max_grad_norm": 0.25,
            "evaluator.episodes": 3,
            "env.kwargs": {"level": 1, "slope": 1.0},
        },
    )
    whole = {key for key in settings.search if settings.is_whole(key)}
    assert whole == {"actors.unroll_length", "env.kwargs.level"}
    config = settings.config_of({"policy.hidden": [64, 64], "actors.unroll_length": 7})
    assert (tuple(config.policy.hidden), config.actors.unroll_length) == ((64, 64), 7)
    assert (config.optimiser.max_grad_norm, config.evaluator.episodes) == (0.25, 3)
    assert [settings.until(n) for n in (1, 2, 3, 4)] == [250, 500, 750, 1000]
    # a configuration beside the file is found from there
    (tmp_path / "own.yaml").write_text("base: cartpole\nrun: {seed: 7}\n")
    assert _load(tmp_path, config="own.yaml").config_of({}).run.seed == 7


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"search": {"optimiser.learning_rat": {"log": [1e-5, 1]}}},
            "did you mean optimiser.learn",
        ),
        ({"search": {"loss.discount": {"range": [0.9, 0.9]}}}, r"range: \[0.9, 0.9\] is empty"),
        ({"search": {"loss.discount": {"range": [2, 1]}}}, r"range: \[2, 1\] is empty"),
        ({"search": {"loss.discount": {"log": [0, 0.5]}}}, "log: 0 has no logarithm"),
        ({"search": {"loss.discount": {"choices": [0.9]}}}, "two or more values"),
        ({"search": {"loss.discount": {}}}, "expected one of range, log and choices"),
        ({"search": {"loss.discount": {"range": [0.5, 1.5]}}}, "loss.discount: 1.5 is refused"),
        ({"set": {"run.max_env_steps": 5}}, r"set\.run\.max_env_steps: steps ends each run"),
        ({"search": {"run.seed": {"range": [1, 5]}}}, "run.seed: it does not change what"),
        ({"search": {}}, "search"),
        ({"trails": 3}, "trails"),
        ({"sampler": "grid"}, "sampler"),
        ({"steps": 0}, "steps"),
        ({"steps": 3}, "judgements: 4 of a run of 3 steps .* set steps higher"),
        ({"config": "cartpol"}, "cartpol"),
    ],
)
def test_a_mistake_is_named_with_its_file_and_key(
    tmp_path: Path, values: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        _load(tmp_path, **values)
    assert str(raised.value).startswith(str(tmp_path / "sweep.yaml"))


@pytest.mark.parametrize(
    ("section", "without"),
    [
        ({"evaluator": {"every_s": 9.0, "stop_after": 3}}, {"evaluator.stop_after": None}),
        ({"policies": {"one": {"agents": "*"}}}, {"policies": {}}),
    ],
)
def test_what_only_a_run_may_have_is_refused_with_what_mends_it(
    tmp_path: Path, section: dict[str, Any], without: dict[str, Any]
) -> None:
    (tmp_path / "own.yaml").write_text(yaml.safe_dump({"base": "cartpole", **section}))
    with pytest.raises(ConfigError) as raised:
        _load(tmp_path, config="own.yaml")
    [line] = str(raised.value).splitlines()
    sweep, place, given = line.split("yaml: ")
    assert (sweep, place) == (f"{tmp_path}/sweep.", f"{tmp_path}/own.")
    assert "population" not in given
    assert yaml.safe_load(given.partition("; give ")[2]) == {"set": without}
    assert _load(tmp_path, config="own.yaml", set=without).base.policies == {}


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no.yaml: there is no such sweep file"):
        load_sweep(tmp_path / "no.yaml")
    (tmp_path / "bad.yaml").write_text("search: [\n")
    with pytest.raises(ConfigError, match=r"bad.yaml"):
        load_sweep(tmp_path / "bad.yaml")
