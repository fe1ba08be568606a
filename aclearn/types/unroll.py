"""An unroll: T agent steps of B environments, the unit on the training queue."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from aclearn.types.array_rules import (
    BoolMatrix,
    Count,
    Float32Matrix,
    Frames,
    Int32Matrix,
    Int32Vector,
    Int64Vector,
    Observations,
)


@dataclass(frozen=True, slots=True, eq=False)
class Unroll:
    """T agent steps of B environments, time-major; the envelope's sequence is the unroll's number.

    Attributes:
        env_steps_before: agent steps of this incarnation before the unroll.
        env_steps_after: the same after its last step.
        dropped: agent steps that the actor dropped since its start, by reason (cumulative).
        frames: [T+1, B, ...] the newest frame of each observation; the last one bootstraps.
        history: [B, ...] the older frames of the first observation, None without a frame stack.
        reset_index: int32 [K] flat `t * B + b` (t in 1..T) of observations that begin an episode,
            or None.
        reset_history: [K, ...] the older frames of those observations, or None.
        valid: False for steps that must not be learned (the action was ignored, or the episode was
            dropped).
        versions: int64 [T] the policy version that chose the actions of step t.
        chain: id of the compressor chain whose artifact chose the last action; "none" for the
            uncompressed policy.
    """

    actor: str
    generation: Count
    env_steps_before: Count
    env_steps_after: Count
    dropped: dict[str, Count]
    frames: Frames
    history: Observations | None
    reset_index: Int32Vector | None
    reset_history: Observations | None
    actions: Int32Matrix
    behaviour_log_probs: Float32Matrix
    rewards: Float32Matrix
    terminated: BoolMatrix
    truncated: BoolMatrix
    valid: BoolMatrix
    versions: Int64Vector
    chain: str = "none"


def array_bytes(unroll: Unroll) -> int:
    """Bytes of an unroll's arrays, all together."""
    values = (getattr(unroll, field.name) for field in fields(unroll))
    return sum(value.nbytes for value in values if isinstance(value, np.ndarray))
