"""Acting: sampling actions from a policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from aclearn.distributions import Distribution
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


@dataclass(frozen=True, eq=False)
class PolicySnapshot:
    """One acting policy; immutable.

    Attributes:
        executable: computes it.
        at: its version.
        chain: id of its compressor chain; "none" for the uncompressed policy.
        min_action_prob: least probability of each action.
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
    """Actions for observations and state `[B, …]`, sampled from the policy's distribution."""
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
