"""What a member takes over from another one, and what stays its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from aclearn.learning import StepAccount
from aclearn.runs import load_newest, save_checkpoint
from services.population.inheriting import inherit


def _save(member: Path, updates: int, settings: dict[str, float]) -> str:
    """A checkpoint whose numbers are all `updates`; its name."""
    tensors = {
        name: np.full(2, updates, np.float32) for name in ("weights/a", "random/torch", "totals")
    }
    state = {
        "policy": "default",
        "counters": {"updates": updates},
        "account": StepAccount(policy="default").state() | {"env_steps": updates},
        "settings": settings,
    }
    save_checkpoint(member / "checkpoints", tensors=tensors, state=state, label=updates, keep=1)
    newest = load_newest(member / "checkpoints")
    assert newest is not None
    return newest.path.stem


def test_what_a_user_has_set_at_one_member_is_not_set_at_those_that_inherit(tmp_path: Path) -> None:
    for name in ("parent", "new", "old"):
        (tmp_path / name).mkdir()
    given = _save(tmp_path / "parent", 7, {"learning_rate": 0.125})
    _save(tmp_path / "old", 5, {"entropy_cost": 0.5})
    for name, updates, settings in (("new", 0, {}), ("old", 5, {"entropy_cost": 0.5})):
        inherit(tmp_path / name, tmp_path / "parent", given, round_=1, keep=1)
        made = load_newest(tmp_path / name / "checkpoints")
        assert made is not None
        assert made.tensors["weights/a"].tolist() == [7, 7]
        assert made.state["settings"] == settings
        assert made.state["counters"]["updates"] == updates
        assert made.state["account"]["env_steps"] == updates
