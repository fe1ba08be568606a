"""Every kind of environment under both kinds of inference, with the real emulators."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.system import PONG, System

_FACTORIES = '''
import ale_py
import gymnasium

def freeway():
    """A game through gymnasium's own interface: images of another size, one frame each."""
    return gymnasium.make("ALE/Freeway-v5", obs_type="grayscale")
'''
_BREAKOUT = {**PONG, "env": {"id": "ALE/Breakout-v5", "life_loss_ends": True, "clip_rewards": True}}
_IMAGES = {**PONG, "env": {"id": "made_for_tests:freeway", "frame_stack": 2}}


@pytest.mark.parametrize(
    ("base", "inference"),
    [(_BREAKOUT, "local"), (_IMAGES, "predictor")],
    ids=["breakout-local", "images-predictor"],
)
def test_it_learns_a_few_updates(system: System, base: dict[str, Any], inference: str) -> None:
    (system.folder / "made_for_tests.py").write_text(_FACTORIES)
    system.environment["PYTHONPATH"] = str(system.folder)
    config = system.config(
        base,
        run={"max_updates": 6},
        # one group steps while the other waits for its actions
        actors={"inference": inference, "groups": 2},
    )
    run = system.train(config)
    assert run.wait() == 0, run.diagnosis()
    summary = run.check_account()
    assert summary["reason"] == "max_updates"
    assert summary["updates"] >= 6
    # 2 unrolls of 5 steps of 4 games; no game of Freeway ends so soon
    whole = summary["updates"] * 40
    assert 0 < summary["learned_steps"] <= whole
    assert base is not _IMAGES or summary["learned_steps"] == whole
    roles = {role for line in run.lines() for role in line["wait_share"]}
    assert ("predictor" in roles) == (inference == "predictor")
