"""The NumPy reference of continuous Tag against steps of WarpDrive's own class."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.tag_continuous_numpy import TagContinuous

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", ["full_exits", "full_stays", "partial_exits", "partial_stays"])
def test_it_takes_the_steps_of_the_original(name: str) -> None:
    golden = np.load(GOLDEN / f"tag_continuous_{name}.npz")
    config = json.loads(str(golden["config"]))
    config.pop("num_taggers"), config.pop("num_runners")
    rules = TagContinuous(tuple(golden["agent_types"]), **config)
    np.testing.assert_array_equal(rules.acceleration_actions(), golden["acceleration_actions"])
    np.testing.assert_array_equal(rules.turn_actions(), golden["turn_actions"])
    start = [golden[f"start_{field}"][None] for field in ("x", "y", "direction")]
    state = rules.begin(*start)
    np.testing.assert_allclose(rules.observe(state)[0], golden["first_observation"], atol=1e-6)
    for t, actions in enumerate(golden["actions"]):
        reached = rules.step(state, actions[None])
        assert (reached.terminated | reached.truncated)[0] == golden["dones"][t], t
        np.testing.assert_allclose(reached.rewards[0], golden["rewards"][t], atol=1e-6)
        np.testing.assert_allclose(
            reached.observations[0], golden["observations"][t], atol=1e-6, err_msg=str(t)
        )
        state = rules.begin(*start) if golden["dones"][t] else reached.state
