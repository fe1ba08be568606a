"""Does a resident environment follow its reference? One step at a time, over whole episodes.

Before each step the reference is set to the resident state, so rounding does not add up and each
difference is that of one step: WarpDrive's consistency checker (Lan et al. 2021), but stricter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, cast

import gymnasium
import numpy as np
import torch

from aclearn.resident.differences import (
    Arrays,
    Differences,
    Fields,
    ParityError,
    ParityReport,
    moved_states,
    uniform_actions,
)
from aclearn.resident.engine import ResidentEnvs
from aclearn.resident.environment import ResidentEnv
from aclearn.resident.world import ResidentWorld
from aclearn.resident.world_parity import WorldReference, check_world


class ReferenceStep(NamedTuple):
    """What one step of M environments reached; observations `[M, D]`, the others `[M]`."""

    state: Fields
    observations: Arrays
    rewards: Arrays
    terminated: Arrays


class Reference(Protocol):
    """Another implementation of an environment.

    Attributes:
        time_limit: agent steps of its longest episode.
    """

    time_limit: int

    def step(self, state: Fields, actions: Arrays) -> ReferenceStep:
        """One step of M environments from these states.

        Args:
            state: the resident state by field; integers and float32.
            actions: as `ActionSpec.to_env` gives them.
        """


class GymnasiumReference:
    """An environment of gymnasium as a reference.

    Args:
        fields: of the resident state, in the order of the environment's attribute `state`.
    """

    def __init__(self, id: str, fields: tuple[str, ...]) -> None:
        made = gymnasium.make(id, disable_env_checker=True)
        made.reset(seed=0)
        assert made.spec is not None and made.spec.max_episode_steps is not None
        self.time_limit = made.spec.max_episode_steps
        self._env: Any = made.unwrapped
        self._fields = fields

    def step(self, state: Fields, actions: Arrays) -> ReferenceStep:
        """Step one environment after another, in float64."""
        rows = np.stack([state[name] for name in self._fields], 1).astype(np.float64)
        after, seen, rewards, terminated = [], [], [], []
        env = self._env
        for row, action in zip(rows, actions, strict=True):
            env.state = row
            env.steps_beyond_terminated = None  # CartPole warns of steps after an end
            observation, reward, terminal, _, _ = env.step(action)
            after.append(np.array(env.state, np.float64))
            seen.append(observation)
            rewards.append(reward)
            terminated.append(terminal)
        reached = np.stack(after, 1)
        by_name = dict(zip(self._fields, reached, strict=True))
        return ReferenceStep(by_name, np.array(seen), np.array(rewards), np.array(terminated))


class ResidentReference:
    """This environment on another device as a reference; its step must draw nothing.

    Args:
        env: the environment, with one choice or bounded numbers as its action.
    """

    def __init__(self, env: ResidentEnv, device: str, **config: Any) -> None:
        self.time_limit = env.time_limit
        self._env, self._device, self._config = env, device, config
        self._made: ResidentEnvs | None = None

    def step(self, state: Fields, actions: Arrays) -> ReferenceStep:
        """The actions lie within their bounds already."""
        count, made = len(actions), self._made
        if made is None or count > made.num_envs:  # fewer are the first ones: a start takes long
            if made is not None:
                made.close()
            made = ResidentEnvs(self._env, envs=count, device=self._device, config=self._config)
            self._made = made
        made.reset()
        states = made.state()
        for name in states.dtype.names or ():
            states[name][:count] = state[name]
        made.set_state(states)
        sampled = torch.from_numpy(made.spec.action.from_env(list(actions))).to(
            made.buffers.actions
        )
        padded = sampled.new_zeros((made.num_envs, *sampled.shape[1:]))
        padded[:count] = sampled
        seen, rewards, terminated, _ = made.step(padded)
        reached = (tensor[:count].cpu().numpy() for tensor in (seen, rewards, terminated))
        return ReferenceStep(_fields(made.state()[:count]), *reached)


def check_resident(
    env: ResidentEnv | ResidentWorld,
    reference: Reference | WorldReference,
    *,
    tolerance: Mapping[str, float] | float = 1e-5,
    periods: Mapping[str, float] | None = None,
    envs: int = 1000,
    seed: int = 0,
    device: str = "cpu",
    max_steps: int | None = None,
    **config: Any,
) -> ParityReport:
    """Compare each step of `envs` environments with `reference`, over at least one whole episode.

    With several agents their rewards, ends, observations and masks are compared one by one.
    Integers and ends must be equal. Floats must agree to an absolute tolerance. Where the ends
    differ, the reference is asked again from states moved by the tolerance, one field at a time:
    if it then gives the resident answer, the step lies at the threshold and is excluded.

    Args:
        tolerance: absolute, of every field, or by name of a state's field, "observation" and
            "reward"; 1e-5 for those without one.
        periods: name of a field that is an angle → its period.
        max_steps: of every environment; None: the time limit and one more, so that the first
            episode of every environment is whole.

    Raises:
        ParityError: they disagree; names the field, environment, step and both values.
    """
    if reference.time_limit != env.time_limit:
        raise ParityError(
            f"{env.name}: time_limit: the environment has {env.time_limit} steps, the reference "
            f"{reference.time_limit}"
        )
    differences = Differences(env.name, tolerance, periods or {})
    settings: dict[str, Any] = {"envs": envs, "device": device, "seed": seed, "config": config}
    steps = max_steps or env.time_limit + 1
    if isinstance(env, ResidentWorld):
        return check_world(
            env, cast(WorldReference, reference), differences, max_steps=steps, **settings
        )
    check = _Check(env, cast(Reference, reference), differences)
    rng, ended = np.random.default_rng(seed), np.zeros(envs, bool)
    made = ResidentEnvs(env, **settings)
    try:
        made.reset()
        for at in range(steps):
            before = made.state()
            actions = uniform_actions(made.spec.action, envs, rng)
            seen, rewards, terminated, truncated = made.step(torch.from_numpy(actions))
            live = np.flatnonzero(~ended)
            ended = (terminated | truncated).cpu().numpy()
            if not len(live):
                continue
            reached = (tensor.cpu().numpy()[live] for tensor in (seen, rewards, terminated))
            check.compare(
                at,
                live,
                _fields(before[live]),
                np.asarray(made.spec.action.to_env(actions[live])),
                ReferenceStep(_fields(made.state()[live]), *reached),
            )
        episodes = made.take_sums().episodes
    finally:
        made.close()
    return ParityReport(check.steps, episodes, check.excluded, dict(differences.largest))


class _Check:
    def __init__(self, env: ResidentEnv, reference: Reference, differences: Differences) -> None:
        self._env, self._reference, self._differences = env, reference, differences
        self.steps = self.excluded = 0

    def compare(
        self, at: int, live: Arrays, before: Fields, actions: Arrays, found: ReferenceStep
    ) -> None:
        """Compare one step of the environments `live`, whose rows all arrays have."""

        def where(row: int) -> str:
            return f"environment {int(live[row])} after step {at}"

        expected, terminated = self._reference.step(before, actions), found.terminated
        same = np.asarray(expected.terminated, bool) == terminated
        for row in np.flatnonzero(~same).tolist():
            one = {name: values[row : row + 1] for name, values in before.items()}
            if not self._at_threshold(one, actions[row : row + 1], bool(terminated[row])):
                raise self._differences.disagreement(
                    "terminated", terminated[row], expected.terminated[row], where(row)
                )
        self.excluded += int((~same).sum())
        self.steps += int(same.sum())
        pairs = {name: (values, expected.state[name]) for name, values in found.state.items()}
        for index in range(found.observations.shape[1]):
            mine, its = (each.observations[:, index] for each in (found, expected))
            pairs[f"observation[{index}]"] = mine, its
        pairs["reward"] = found.rewards, expected.rewards
        for name, (mine, its) in pairs.items():
            self._differences.compare(name, mine, its, counts=same, where=where)

    def _at_threshold(self, state: Fields, action: Arrays, answer: bool) -> bool:
        return any(
            bool(self._reference.step(moved, action).terminated[0]) == answer
            for moved in moved_states(state, self._differences)
        )


def _fields(states: Arrays) -> Fields:
    return {name: states[name] for name in states.dtype.names or ()}
