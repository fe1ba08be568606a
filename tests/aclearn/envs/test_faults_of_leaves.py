"""Dict observations outside their space: counted by reason, and the environment is made again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from aclearn.config import EnvConfig
from aclearn.envs import make_vector_env
from tests.support import space_envs


class Broken(space_envs.Senses):
    """Its third observation is wrong, or its second episode has another space."""

    made: list[Broken] = []  # noqa: RUF012 (of the module)

    def __init__(self, wrong: str) -> None:
        self.wrong = wrong if not self.made else ""
        self.made.append(self)
        self.episodes = 0

    def reset(self, **options: Any) -> Any:
        self.episodes += 1
        if self.wrong == "observation_space" and self.episodes == 2:
            self.observation_space = spaces.Dict(
                {**self.observation_space.spaces, "new": spaces.Box(0, 1)}
            )
        if self.wrong == "action_space" and self.episodes == 2:
            self.action_space = spaces.MultiDiscrete([3, 2, 4])
        return super().reset(**options)

    def shown(self) -> Any:
        shown = super().shown()
        if self.steps != 2:
            return shown
        if self.wrong == "lost":
            del shown["eyes"]
        elif self.wrong == "extra":
            shown["nose"] = 1
        elif self.wrong == "observation_range":
            shown["compass"] = 6
        elif self.wrong == "observation_range":
            shown["balance"][1] = np.nan
        return shown


@pytest.mark.parametrize(
    "wrong",
    [
        "lost",
        "extra",
        "observation_range",
        "observation_range",
        "observation_space",
        "action_space",
    ],
)
def test_a_wrong_leaf_is_a_fault_and_the_others_go_on(wrong, caplog) -> None:
    Broken.made.clear()
    config = EnvConfig(id=f"{__name__}:Broken", kwargs={"wrong": wrong}, ignore=["note"])
    group = make_vector_env(config, num_envs=2, seed=0, step_timeout_s=60.0, max_faults=1)
    try:
        group.reset()
        faulted, steps = [], []
        for _ in range(10):
            group.send(np.zeros((2, 3), np.int32))
            steps.append(group.recv())
            faulted.append(steps[-1].faulted.tolist())
            assert list(steps[-1].observations) == ["balance", "compass", "eyes.left"]
            assert np.isfinite(steps[-1].observations["balance"]).all()
    finally:
        group.close()
    at = 8 if wrong.endswith("space") else 1  # the ninth step is the reset
    assert faulted == [[number == at, False] for number in range(10)]
    reason = "observation_keys" if wrong in ("lost", "extra") else wrong
    assert group.faults == {reason: 1}
    # the new one's first observation is in the batch: a compass has one direction
    assert steps[at].reset[0] and steps[at].observations["compass"][0].sum() == 1.0
    said = {"lost": "expected balance, compass, eyes", "extra": "nose", "observation_range": "6"}
    said["action_space"] = "has become MultiDiscrete([3 2 4]); it was MultiDiscrete([3 2 2])"
    assert said.get(wrong, "balance") in caplog.text


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


def test_a_mask_in_the_observation_is_applied_and_no_leaf() -> None:
    config = EnvConfig(id=f"{__name__}:Doors", action_mask="observation.open")
    group = make_vector_env(config, num_envs=3, seed=0, step_timeout_s=60.0, max_faults=0)
    try:
        assert list(group.spec.observation) == ["gate", "time"] and group.spec.masked
        observations = group.reset()
        for number in range(1, 20):
            assert 1 <= group.masks[0].sum() <= 6
            wanted = observations["gate"].argmax(1).astype(np.int32)
            assert group.masks[np.arange(3), wanted].all()
            ended = number % 9 == 0
            group.send(wanted)
            step = group.recv()
            assert step.rewards.tolist() == [0.0 if ended else 1.0] * 3
            assert step.terminated.tolist() == [number % 9 == 8] * 3
            observations = step.observations
    finally:
        group.close()
