"""Acting: sampling actions from a policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from aclearn.distributions import Distribution, epsilon_greedy
from aclearn.types import ActionBatch, PolicyOutput, PolicyVersion, State


class Executable(Protocol):
    """One version of a policy, ready to run; immutable and thread-safe."""

    def step(
        self, observations: Mapping[str, NDArray[Any]], state: State = ()
    ) -> PolicyOutput[NDArray[np.float32]]:
        """The policy's output.

        Args:
            observations: leaf name → `[B, *shape]`.
            state: of the same B environments after their last step, zeros where an episode starts.
        """


class ActInput(NamedTuple):
    """What a policy chooses actions from, for B environments.

    Attributes:
        observations: leaf → `[B, *shape]`.
        state: of the uncompressed policy, before these observations.
        own_state: of a policy whose state is its own; each begins with zeros where the other acted.
        masks: `[B, A]`, the allowed actions; None: all.
        epsilon: `[B]`, to explore: the best action of Q values with probability 1 − ε, else any;
            None: actions are sampled.
    """

    observations: Mapping[str, NDArray[Any]]
    state: State = ()
    masks: NDArray[np.bool_] | None = None
    epsilon: NDArray[np.float32] | None = None
    own_state: State = ()

    def rows(self, rows: NDArray[np.intp]) -> ActInput:
        """The input of some of the environments."""
        return ActInput(
            {name: leaf[rows] for name, leaf in self.observations.items()},
            tuple(each[rows] for each in self.state),
            None if self.masks is None else self.masks[rows],
            None if self.epsilon is None else self.epsilon[rows],
            tuple(each[rows] for each in self.own_state),
        )


@dataclass(frozen=True, eq=False)
class PolicySnapshot:
    """One acting policy; immutable.

    Attributes:
        chain: id of its compressor chain; "none" for the uncompressed policy.
        min_action_prob: least probability of each allowed action.
        own_state: shapes of its state, in one environment, which means nothing to the uncompressed
            policy; None: it keeps the state of that one.
    """

    executable: Executable
    at: PolicyVersion
    chain: str = "none"
    min_action_prob: float = 0.0
    own_state: tuple[tuple[int, ...], ...] | None = None

    def state_of(self, given: ActInput) -> State:
        """The state that it continues; `()` where it begins with zeros."""
        if self.own_state is None:
            return given.state
        shapes = tuple(part.shape[1:] for part in given.own_state)
        return given.own_state if shapes == self.own_state else ()


def act(
    policy: PolicySnapshot, distribution: Distribution, given: ActInput, rng: np.random.Generator
) -> ActionBatch:
    """Actions that are sampled from the policy's distribution."""
    output = policy.executable.step(given.observations, policy.state_of(given))
    own = policy.own_state is not None
    parameters = distribution.mask(output.parameters, given.masks)
    parameters = distribution.with_min_action_prob(parameters, policy.min_action_prob)
    if given.epsilon is not None:
        parameters = epsilon_greedy(parameters, given.epsilon)
    actions, log_prob = distribution.sample(parameters, rng)
    return ActionBatch(
        actions,
        log_prob,
        policy.at,
        (policy.chain,),
        parameters=parameters,
        state=given.state,
        next_state=() if own else output.state,
        next_own_state=output.state if own else (),
    )


def act_in_parts(
    policies: Sequence[PolicySnapshot],
    which: NDArray[np.int32],
    distribution: Distribution,
    given: ActInput,
    rng: np.random.Generator,
) -> ActionBatch:
    """Actions of several policies; `which` `[B]` is the place of the one that chooses."""
    if (which == which[0]).all():
        return act(policies[which[0]], distribution, given, rng)
    numbers = [number for number in range(len(policies)) if (which == number).any()]
    parts = [np.flatnonzero(which == number) for number in numbers]
    chosen = [
        act(policies[number], distribution, given.rows(rows), rng)
        for number, rows in zip(numbers, parts, strict=True)
    ]
    place = np.argsort(np.concatenate(parts))

    def joined(arrays: Iterable[NDArray[Any] | None]) -> NDArray[Any]:
        return np.concatenate([array for array in arrays if array is not None])[place]

    return ActionBatch(
        joined(batch.actions for batch in chosen),
        joined(batch.log_prob for batch in chosen),
        min(batch.at for batch in chosen),
        tuple(policy.chain for policy in policies),
        which,
        parameters=joined(batch.parameters for batch in chosen),
        state=given.state,
        next_state=_states_of_all([batch.next_state for batch in chosen], parts),
        next_own_state=_states_of_all([batch.next_own_state for batch in chosen], parts),
    )


def _states_of_all(states: Sequence[State], parts: Sequence[NDArray[np.intp]]) -> State:
    """The states of each part of the environments as one; zeros for a part without one."""
    rows = sum(map(len, parts))
    shapes = next(([part.shape[1:] for part in state] for state in states if state), [])
    joined = tuple(np.zeros((rows, *shape), np.float32) for shape in shapes)
    for state, where in zip(states, parts, strict=True):
        for whole, part in zip(joined, state, strict=False):  # `()` stands for zeros
            whole[where] = part
    return joined
