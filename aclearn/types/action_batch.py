"""Actions of a policy for a group of environments."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aclearn.types.policy_output import State
from aclearn.types.policy_version import PolicyVersion


class ActionBatch(NamedTuple):
    """One action for each of B environments, and the policy that chose it.

    Attributes:
        actions: `[B, *shape]` int32 or float32, as sampled.
        log_prob: `[B]` float32, log μ of those actions.
        at: the version of the policy; of two policies the older one.
        chains: ids of the policies' compressor chains; "none" for the trainer's weights.
        chain_index: `[B]` int32, index into `chains` for each action; None if there is one chain.
        parameters: `[B, P]` float32 of the behaviour policy, if the run needs them.
        state: float32 `[B, …]` each, the uncompressed policy's state before the step; `()` stands
            for zeros, and zeros for a state that only `own_state` of another policy knows.
        next_state: the same after the step.
        next_own_state: after the step, of a policy whose state is its own; `()` stands for zeros.
    """

    actions: NDArray[Any]
    log_prob: NDArray[np.float32]
    at: PolicyVersion
    chains: tuple[str, ...] = ("none",)
    chain_index: NDArray[np.int32] | None = None
    parameters: NDArray[np.float32] | None = None
    state: State = ()
    next_state: State = ()
    next_own_state: State = ()
