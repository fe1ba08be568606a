"""Acting: the policy of the moment gives the parameters from which actions are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from aclearn.distributions import Distribution
from aclearn.types import ActionBatch, PolicyOutput, PolicyVersion, State


class Executable(Protocol):
    """One version of a policy, ready to run: never changes, any number of threads may use it."""

    def step(
        self, observations: Mapping[str, NDArray[Any]], state: State = ()
    ) -> PolicyOutput[NDArray[np.float32]]:
        """What the policy says of observations.

        Args:
            observations: leaf name → `[B, *shape]`.
            state: of the same B environments after their last step, zeros where an episode starts.
        """


@dataclass(frozen=True, eq=False)
class PolicySnapshot:
    """One policy that acts: never changes, so that what it computes is by what it names.

    Attributes:
        executable: computes it.
        at: its version.
        chain: id of the compressor chain behind it; "none" for the uncompressed policy.
        min_action_prob: least probability that each action keeps when one is drawn.
    """

    executable: Executable
    at: PolicyVersion
    chain: str = "none"
    min_action_prob: float = 0.0


def act(
    policy: PolicySnapshot,
    distribution: Distribution,
    observations: Mapping[str, NDArray[Any]],
    state: State,
    rng: np.random.Generator,
) -> ActionBatch:
    """Actions for observations and state `[B, …]`, drawn from the policy's distribution."""
    output = policy.executable.step(observations, state)
    parameters = distribution.with_min_action_prob(output.parameters, policy.min_action_prob)
    actions, log_prob = distribution.sample(parameters, rng)
    return ActionBatch(
        actions,
        log_prob,
        policy.at,
        (policy.chain,),
        parameters=parameters,
        state=state,
        next_state=output.state,
    )
