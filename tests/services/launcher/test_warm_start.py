"""A run that begins with the weights of another one."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest

from aclearn.config import config_from_yaml, with_overrides
from aclearn.errors import ConfigError
from services.ending.words import closing_words, return_before
from services.evaluator.saved_policy import load_policy
from services.policy.factory import architecture_of
from services.trainer.warm_start import warm_start_of


def test_all_that_belongs_to_the_policy_comes_along_but_no_counters(tmp_path: Path, start) -> None:
    normalised = {"policy": {"normalise_observations": True}}
    first = start(run={"max_updates": 6}, **normalised)
    first.run()
    learned = first.checkpoint().tensors
    begins = {"name": "s", "max_updates": 4, "init_from": str(tmp_path / "r")}
    second = start(run=begins, **normalised)
    second.path = tmp_path / "s"
    begun = second.checkpoint()  # before it publishes anything
    assert begun.state["counters"]["updates"] == 0
    assert begun.state["account"]["learned_steps"] == 0
    taken = [n for n in learned if n.startswith(("weights/", "optimiser/", "normaliser/"))]
    assert len(taken) > 20 and learned["optimiser/policy.bias/step"] == 6
    for name in taken:
        np.testing.assert_array_equal(begun.tensors[name], learned[name], err_msg=name)
    size, others = learned["totals"][:2], begun.tensors["totals"][2:]
    np.testing.assert_array_equal(begun.tensors["totals"][:2], size)
    assert (others == 0).all()  # of updates and learned steps
    assert second.run()["updates"] == 4
    config = config_from_yaml((tmp_path / "s" / "config.yaml").read_text())
    other = config.model_copy(update={"policy": config.policy.model_copy(update={"hidden": (9,)})})
    spec = load_policy(tmp_path / "s").spec
    with pytest.raises(ConfigError) as caught:
        warm_start_of(other, architecture_of(other, spec))
    assert "run.init_from: " in str(caught.value)
    assert "policy.hidden is (8,) there, (9,) here; give these keys" in str(caught.value)
    remembers = with_overrides(config, ["policy.memory.kind=lstm"])
    with pytest.raises(ConfigError, match=r"policy\.memory\.kind is None there, 'lstm' here; give"):
        warm_start_of(remembers, architecture_of(remembers, spec))
    file = first.path / "checkpoints" / first.checkpoint().path.name
    one = config.with_run(init_from=str(file))
    of_file = warm_start_of(one, architecture_of(one, spec))
    assert of_file.tensors.keys() >= {"weights/policy.weight"} and of_file.doubts == []
    nowhere = config.with_run(init_from=str(tmp_path))
    with pytest.raises(ConfigError, match=r"run.init_from: .* is not a run folder"):
        warm_start_of(nowhere, architecture_of(config, spec))


def test_what_may_harm_the_policy_is_told_and_a_worse_result_too(
    start, caplog: pytest.LogCaptureFixture
) -> None:
    falls = {"learning_rate": 1e-3, "schedule": "linear", "schedule_steps": 100}
    first = start(run={"max_updates": 6}, optimiser=falls)
    first.run()
    learned = first.checkpoint()
    last = 1e-3 * (1 - learned.state["account"]["learned_steps"] / 100)
    assert 0.0 < last < 1e-3 / 3
    config = config_from_yaml((first.path / "config.yaml").read_text())
    config = config.with_run(init_from=str(first.path), name="s")
    architecture = architecture_of(config, load_policy(first.path).spec)
    [of_the_rate] = warm_start_of(config, architecture).doubts
    assert f"at a rate of {last:.3g}, and this run begins with optimiser.learning_rate: 0.001" in (
        of_the_rate
    )
    caplog.set_level(logging.INFO)  # a trainer that was started by hand tells it too
    begins = {"name": "by-hand", "init_from": str(first.path)}
    start(run=begins, optimiser=falls)
    assert f"event=warm_start_doubt detail='{of_the_rate}'" in caplog.text
    changes = {"kind": "rmsprop", "learning_rate": last}
    optimiser = config.optimiser.model_copy(update=changes)
    loss = config.loss.model_copy(update={"kind": "a2c"})
    other = config.model_copy(update={"optimiser": optimiser, "loss": loss})
    tensors, [of_the_kind] = warm_start_of(other, architecture)
    assert "is adam, here it is rmsprop, so that its moments begin again" in of_the_kind
    assert "weights/policy.bias" in tensors and "totals" not in tensors
    assert not any(name.startswith("optimiser/") for name in tensors)

    summary = first.summary() | {"return_mean_100": 25.0}
    (first.path / "summary.json").write_text(json.dumps(summary))
    assert return_before(config) == 25.0
    told = "run.init_from had a return of 25.00, which no policy of this run has reached"
    for best, expected in ((None, False), (24.9, True), (25.0, False)):
        words = closing_words(config, summary | {"best_return": best})
        assert (told in words) == expected
        assert ("a mean of 100 episodes of this run would" in words) == (best is None)
    (first.path / "summary.json").unlink()  # it runs on
    assert return_before(config) is None
