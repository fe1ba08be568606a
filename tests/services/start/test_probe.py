"""What an evaluator's environment must have in common with the run's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aclearn.config import EnvConfig
from aclearn.envs import read_spec
from aclearn.errors import ConfigError
from services.start.probe import check_evaluator_spaces


@pytest.mark.parametrize(
    ("masked", "words"),
    [
        (True, "it has masks of actions, and the run's environment has none; set env.action_mask"),
        (False, "it has no masks of actions, and the run's environment has some"),
    ],
)
def test_an_evaluator_without_the_runs_masks_is_refused_by_their_name(masked, words) -> None:
    spec = read_spec(EnvConfig(id="CartPole-v1"))
    found, run = (replace(spec, masked=each) for each in (masked, not masked))
    with pytest.raises(ConfigError, match=words):
        check_evaluator_spaces(found, run)
    check_evaluator_spaces(run, run)
