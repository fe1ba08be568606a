"""A trained policy that acts in Python."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aclearn.distributions import distribution_of
from aclearn.envs.own_observations import OwnObservations, words_of_arrays
from aclearn.envs.own_spaces import action_space
from aclearn.errors import ArgumentError
from aclearn.types import ActionSpec, ObservationSpec, State, zeroed
from aclearn.types.observation_spec import row_count
from services.api.plain_errors import plain_errors

if TYPE_CHECKING:
    from services.evaluator.saved_policy import SavedPolicy


class Policy:
    """The policy of a checkpoint, made by `load`. It needs no environment.

    All methods take an observation as the environment's own space has it: an array, a number of a
    Discrete space, a Dict or a Tuple. With one more axis in front of each array it is a batch of B,
    as gymnasium's vector environments give it. `env.ignore`d parts may be left out. With
    `env.frame_stack` S a picture is a stack of the last S pictures, the newest last, as
    `gymnasium.wrappers.FrameStackObservation` makes it. An Atari game's is prepared (`env.atari`),
    which `make_env` does.

    A policy with a memory (`policy.memory`, or a recurrent network of your own) remembers what
    `act` has shown it, of one environment or of the B of a batch: `reset` begins an episode. The
    other methods answer for the next observation and change nothing.

    Attributes:
        observation_space: of gymnasium, of the observations.
        action_space: of gymnasium, of the actions.
        observation: leaf name → shape and dtype, as the network reads it.
        updates: number of updates in its weights.
    """

    def __init__(self, saved: SavedPolicy, *, seed: int | None = None) -> None:
        self.observation: ObservationSpec = saved.spec.observation
        self.action: ActionSpec = saved.spec.action
        self.action_space = action_space(self.action)
        self.updates = saved.updates
        self._saved, self._chooser = saved, saved.chooser()
        self._own = OwnObservations(self.observation, saved.spec.form)
        self.observation_space = self._own.space
        self._executable = saved.executable()
        self._state: State = ()
        self._distribution = distribution_of(self.action)
        self._rng = np.random.default_rng(seed)

    @plain_errors
    def act(self, observation: Any, *, greedy: bool = False, mask: ArrayLike | None = None) -> Any:
        """The action for an observation, or the actions for a batch, as the environment takes them.

        A policy with a memory remembers the observation until `reset`.

        Args:
            observation: of the environment's space, or a batch; see the class.
            greedy: take the most probable action instead of sampling.
            mask: `[A]` or `[B, A]` bool, the allowed actions, or an array for each choice; None:
                those that the observation itself allows (`env.action_mask`), or all.

        Returns:
            For one observation an action as `action_space.sample()` gives it. For a batch an array
            `[B, …]`, or B Dicts or Tuples.

        Raises:
            ArgumentError: the observation or the mask has another shape or dtype, or the policy
                remembers another number of environments.
        """
        parameters, batched, self._state = self._output(observation, mask)
        if greedy:
            sampled = self._distribution.mode(parameters)
        else:
            sampled, _ = self._distribution.sample(parameters, self._rng)
        actions = self.action.to_env(sampled)
        if not batched:
            return actions[0]
        nested = any(part.path for part in self.action.parts)
        return actions if nested else np.asarray(actions)

    @plain_errors
    def reset(self, rows: ArrayLike | None = None) -> None:
        """Forget all that the policy remembers; call it where an episode begins.

        Only `reset` lets another number of environments follow. A policy without a memory has
        nothing to forget.

        Args:
            rows: `[B]` bool, the environments of a batch whose episode begins; None: all.

        Raises:
            ArgumentError: the rows are not those of the last batch.
        """
        if rows is None:
            self._state = ()
            return
        which = np.asarray(rows)
        if which.dtype != np.bool_ or which.ndim != 1:
            raise ArgumentError(f"rows: expected bool (B,), got {words_of_arrays(which)}")
        self._check_rows(len(which), "rows")
        self._state = zeroed(self._state, which)

    @plain_errors
    def parameters(
        self, observation: Any, *, mask: ArrayLike | None = None
    ) -> dict[str, NDArray[np.float32] | tuple[NDArray[np.float32], ...]]:
        """The parameters of the distribution of actions, by name.

        Returns:
            `probabilities` of choices: an array `[A]` for a single one, else a tuple with an array
            for each. `mean` and `std` of numbers `[n]`, before the bounds: −1 and 1 stand for the
            bounds, and with `env.squash_actions` a number goes through tanh first. For a batch each
            array has an axis B in front.

        Raises:
            ArgumentError: as of `act`.
        """
        given, batched, _ = self._output(observation, mask)
        named = self._distribution.named(given)
        if batched:
            return named
        return {
            name: tuple(part[0] for part in value) if isinstance(value, tuple) else value[0]
            for name, value in named.items()
        }

    @plain_errors
    def probabilities(self, observation: Any, *, mask: ArrayLike | None = None) -> Any:
        """The probability of each choice, as `parameters` gives it.

        Raises:
            ArgumentError: as of `act`, or the actions are numbers only, which have densities.
        """
        if not self.action.counts:
            raise ArgumentError(
                f"probabilities: the actions are {self.action}, which have no probabilities; "
                "`parameters` gives their means and standard deviations"
            )
        return self.parameters(observation, mask=mask)["probabilities"]

    @plain_errors
    def value(self, observation: Any) -> Any:
        """The critic's value of an observation, in units of rewards. Loads torch at the first call.

        It is the expected discounted return; of a critic of action values (`policy.critic: q`) the
        mean over the policy's actions, without a mask.

        Returns:
            A float; for a batch `[B]` float32.

        Raises:
            ArgumentError: the observation has another shape or dtype, or it is an ensemble of
                policies without values of states.
            ConfigError: a network of your own cannot be imported.
        """
        leaves, _, batched = self._own.read(observation)
        self._check_rows(row_count(leaves), "observation")
        values = self._valued.values(leaves, self._state)
        return values if batched else float(values[0])

    def _output(self, observation: Any, mask: Any) -> tuple[NDArray[np.float32], bool, State]:
        """Masked parameters `[B, P]`, whether the observation was a batch, and the next state."""
        leaves, shown, batched = self._own.read(observation)
        count = row_count(leaves)
        self._check_rows(count, "observation")
        masks = self._masks(shown if mask is None else mask, count, batched)
        output = self._executable.step(leaves, self._state)
        return self._chooser.parameters(output.parameters, masks), batched, output.state

    def _check_rows(self, count: int, what: str) -> None:
        """Raise unless there are as many rows as the policy remembers environments."""
        remembered = len(self._state[0]) if self._state else count
        if count != remembered:
            raise ArgumentError(
                f"{what}: expected {remembered} as before, one for each environment that the "
                f"policy remembers, got {count}; call reset() before another number of environments"
            )

    def _masks(self, mask: Any, count: int, batched: bool) -> NDArray[np.bool_] | None:
        if mask is None:
            return None
        try:
            parts = mask if isinstance(mask, tuple) else (mask,)
            joined = np.concatenate([np.atleast_1d(np.asarray(part)) for part in parts], axis=-1)
        except ValueError as error:
            raise ArgumentError(f"mask: it is no array: {error}") from error
        shape = (count, self.action.mask_width) if batched else (self.action.mask_width,)
        if joined.shape != shape or joined.dtype.kind not in "bui":
            raise ArgumentError(f"mask: expected bool {shape}, got {words_of_arrays(mask)}")
        rows = joined.astype(np.bool_).reshape(count, -1)
        if not self.action.allow_something(rows).all():
            raise ArgumentError("mask: it leaves no action; each choice needs an allowed one")
        return rows

    @cached_property
    def _valued(self) -> Any:
        # imported here: only the value needs torch
        from services.evaluator.saved_value import SavedValue

        return SavedValue(self._saved)

    def __repr__(self) -> str:
        return f"Policy({self.action}, {self.updates} updates)"
