"""Actions that a policy chose for a group of environments."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aclearn.types.policy_version import PolicyVersion


class ActionBatch(NamedTuple):
    """One action for each of B environments, and what chose it.

    Attributes:
        actions: `[B]` int32, as sampled.
        log_prob: `[B]` float32, log μ of those actions.
        at: the version of the policy; the older one where two policies chose.
        chains: ids of the compressor chains behind the policies; "none" for the trainer's weights.
        chain_index: `[B]` int32, each action's place in `chains`; None where there is one.
        parameters: `[B, P]` float32 that were sampled from, where the run asks for them.
        state: float32 `[B, …]` each, the policy's memory before the step.
        masks: `[B, A]` bool, the actions that were allowed; None: all.
        next_state: the same memory after the step.
    """

    actions: NDArray[np.int32]
    log_prob: NDArray[np.float32]
    at: PolicyVersion
    chains: tuple[str, ...] = ("none",)
    chain_index: NDArray[np.int32] | None = None
    parameters: NDArray[np.float32] | None = None
    state: tuple[NDArray[np.float32], ...] = ()
    masks: NDArray[np.bool_] | None = None
    next_state: tuple[NDArray[np.float32], ...] = ()
