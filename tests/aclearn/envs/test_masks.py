"""Action masks that environments give in their infos or observations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from aclearn.errors import EnvironmentFailure
from tests.support import space_envs


class Masked(space_envs.Match):
    """Its third step says `wrong` as the mask of its 3 + 2 choices."""

    def __init__(self, wrong: dict[str, Any]) -> None:
        self.wrong = wrong

    def info(self) -> dict[str, Any]:
        return self.wrong if self.steps == 3 else {"action_mask": np.array([1, 0, 1, 0, 1])}


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"action_mask": [1, 1]},
        {"action_mask": [1, 0, 1, 0, 0]},
        {"action_mask": [0.0, -np.inf, 0.0, 0.0, -np.inf]},  # to add to logits
    ],
    ids=str,
)
def test_a_mask_that_does_not_fit_is_a_fault(make_group, wrong) -> None:
    group = make_group(f"{__name__}:Masked", wrong=wrong, action_mask="info")
    assert group.spec.masked
    group.reset()
    before = group.masks
    assert before.tolist() == [[True, False, True, False, True]] * 2
    for number in range(3):
        group.send(np.array([[0, 1], [2, 1]], np.int32))
        assert group.recv().faulted.tolist() == [number == 2] * 2
        assert group.masks is not before  # they belong to the receiver
    assert group.faults == {"action_mask": 2}
    assert group.masks.tolist() == before.tolist()  # of the new episodes


class Silent(space_envs.Gates):
    """`Gates` without a mask at the end of an episode, which may be a cut."""

    def __init__(self, cut: bool = False) -> None:
        self.cut = cut

    def step(self, action: Any) -> Any:
        shown, reward, ended, _, info = super().step(action)
        return shown, reward, ended and not self.cut, ended and self.cut, info

    def info(self) -> dict[str, Any]:
        return super().info() if self.steps < 8 else {}


def last_step(group) -> Any:
    group.reset()
    for _ in range(8):
        group.send(group.masks.argmax(1).astype(np.int32))
        step = group.recv()
    return step


@pytest.mark.parametrize("env", ["tests.support.space_envs:Gates", f"{__name__}:Silent"])
def test_where_an_episode_has_ended_nothing_needs_to_be_allowed(make_group, env) -> None:
    group = make_group(env, num_envs=1, action_mask="info", max_faults=0)
    assert last_step(group).terminated.all() and group.masks.all()
    group.send(np.zeros(1, np.int32))
    assert group.recv().reset.all() and 1 <= group.masks.sum() <= 2


def test_where_an_episode_is_cut_a_mask_is_needed_for_the_value_of_what_is_reached(
    make_group, caplog
) -> None:
    group = make_group(f"{__name__}:Silent", num_envs=1, cut=True, action_mask="info")
    assert last_step(group).faulted.all() and group.faults == {"action_mask": 1}
    assert "missing; only a terminal step needs none" in caplog.text


class Doors(space_envs.Gates):
    """`Gates` whose observation says what is open."""

    observation_space = spaces.Dict(
        {"gate": spaces.Discrete(6), "open": spaces.MultiBinary(6), "time": spaces.Box(0, 9, (1,))}
    )

    def _next(self) -> Any:
        super()._next()
        opened = self.open if self.steps < 8 else np.zeros(6, np.int8)
        return {"gate": self.wanted, "open": opened, "time": np.zeros(1, np.float32)}

    def info(self) -> Any:
        return {}


def test_a_mask_in_the_observation_is_applied_and_no_leaf(make_group) -> None:
    group = make_group(f"{__name__}:Doors", action_mask="observation.open", max_faults=0)
    assert list(group.spec.observation) == ["gate", "time"] and group.spec.masked
    observations = group.reset()
    for number in range(1, 20):
        wanted = observations["gate"].argmax(1).astype(np.int32)
        assert group.masks[[0, 1], wanted].all()
        group.send(wanted)
        step = group.recv()
        assert step.rewards.tolist() == [0.0 if number % 9 == 0 else 1.0] * 2
        assert step.terminated.tolist() == [number % 9 == 8] * 2
        observations = step.observations


class Shut(Doors):
    """`Doors` without the part at the end of an episode."""

    def _next(self) -> Any:
        shown = super()._next()
        return shown if self.steps < 8 else {key: shown[key] for key in ("gate", "time")}


def test_a_terminal_observation_needs_no_mask(make_group) -> None:
    group = make_group(f"{__name__}:Shut", action_mask="observation.open", max_faults=0)
    assert last_step(group).terminated.all() and group.masks.all() and not group.faults


def test_masks_of_numbers_are_refused_and_a_mask_without_a_use_is_named(make_group, caplog) -> None:
    with pytest.raises(EnvironmentFailure, match=r"env\.action_mask is set, .* nothing to mask"):
        make_group("Pendulum-v1", action_mask="info")
    group = make_group("tests.support.space_envs:Locks")
    group.reset()
    assert group.masks is None and caplog.text.count("event=action_mask_unused") == 1
