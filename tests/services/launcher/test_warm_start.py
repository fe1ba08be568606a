"""A run that begins with the weights of another one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aclearn.config import config_from_yaml
from aclearn.errors import ConfigError
from services.evaluator.saved_policy import load_policy
from services.runtime.policy_factory import architecture_of
from services.runtime.warm_start import start_tensors
from tests.support.whole_run import WholeRun


def test_weights_come_along_but_neither_counters_nor_optimiser(tmp_path: Path) -> None:
    normalised = {"policy": {"normalise_observations": True}}
    first = WholeRun(tmp_path, run={"max_updates": 6}, **normalised)
    try:
        first.run()
    finally:
        first.close()
    learned = first.checkpoint().tensors
    begins = {"name": "s", "max_updates": 4, "init_from": str(tmp_path / "r")}
    second = WholeRun(tmp_path, run=begins, **normalised)
    second.path = tmp_path / "s"
    try:
        start = second.checkpoint()  # before it publishes anything
        assert start.state["counters"]["updates"] == 0
        assert [name for name in start.tensors if name.startswith("optimiser/")] == []
        taken = [n for n in learned if n.startswith("weights/") or n.endswith("count")]
        assert len(taken) > 6
        for name in taken:
            np.testing.assert_array_equal(start.tensors[name], learned[name], err_msg=name)
        assert second.run()["updates"] == 4
    finally:
        second.close()
    config = config_from_yaml((tmp_path / "s" / "config.yaml").read_text())
    other = config.model_copy(update={"policy": config.policy.model_copy(update={"hidden": (9,)})})
    spec = load_policy(tmp_path / "s").spec
    with pytest.raises(ConfigError) as caught:
        start_tensors(other, architecture_of(other, spec))
    assert "run.init_from: " in str(caught.value)
    assert "policy.hidden is (8,) there, (9,) here; give these keys" in str(caught.value)
    file = first.path / "checkpoints" / first.checkpoint().path.name
    one = config.with_run(init_from=str(file))
    assert start_tensors(one, architecture_of(one, spec)).keys() >= {"weights/policy.weight"}
    nowhere = config.with_run(init_from=str(tmp_path))
    with pytest.raises(ConfigError, match=r"run.init_from: .* is not a run folder"):
        start_tensors(nowhere, architecture_of(config, spec))
