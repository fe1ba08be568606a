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
        at: the version of the policy.
        chain: id of the compressor chain behind it; "none" for the uncompressed policy.
        parameters: `[B, P]` float32 that were sampled from, where the run asks for them.
        state: float32 `[B, …]` each, the policy's memory before the step.
        masks: `[B, A]` bool, the actions that were allowed; None: all.
        next_state: the same memory after the step.
    """

    actions: NDArray[np.int32]
    log_prob: NDArray[np.float32]
    at: PolicyVersion
    chain: str = "none"
    parameters: NDArray[np.float32] | None = None
    state: tuple[NDArray[np.float32], ...] = ()
    masks: NDArray[np.bool_] | None = None
    next_state: tuple[NDArray[np.float32], ...] = ()
