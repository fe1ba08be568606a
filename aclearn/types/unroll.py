"""An unroll: T agent steps of B environments, the unit on the training queue."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.types.array_rules import (
    BoolCube,
    BoolMatrix,
    Count,
    Float32Cube,
    Float32Matrix,
    Frames,
    Int32Matrix,
    Int32Vector,
    Int64Vector,
    Observations,
    PolicyName,
    SampledActions,
    StateArray,
)
from aclearn.types.env_spec import EnvSpec
from aclearn.types.policy_version import DEFAULT_POLICY

#: Bits of a row's number in `Unroll.origins`; the actor's number is before them.
ORIGIN_BITS = 32
#: Number of the actor of steps that a trainer has played itself.
NO_ACTOR = -1


def origins_of(actor: int, rows: int, first_row: int = 0) -> NDArray[np.int64]:
    """`[rows]`, actor · 2³² + row of neighbouring rows of one actor."""
    return (actor << ORIGIN_BITS) + first_row + np.arange(rows, dtype=np.int64)


@dataclass(frozen=True)
class UnrollSpec:
    """Common properties of all unrolls of a run.

    Attributes:
        length: T.
        parameters: P numbers of the behaviour policy's distribution; 0 if they are not needed.
        state: the shape of each part of the policy's state in one environment.
    """

    env: EnvSpec
    length: int
    parameters: int = 0
    state: tuple[tuple[int, ...], ...] = ()
    most_rows: int = 65_536
    policy: str = DEFAULT_POLICY


@dataclass(frozen=True, slots=True, eq=False)
class Unroll:
    """T agent steps of B environments, time-major; the envelope's sequence is the unroll's number.

    Autoreset is at the next step: `observations[t + 1]` is the observation that step t reached,
    also at the end of an episode, for the bootstrap. Step t + 1 is then not valid, its action was
    ignored, and `observations[t + 2]` begins the next episode. An end at T - 1 has its observation
    in the last row.

    Attributes:
        generation: the oldest of the policies'; in a learned unroll, that of every step, since the
            trainer takes only its own generation.
        env_steps_before: agent steps of this incarnation before the unroll.
        env_steps_after: the same after its last step.
        dropped: agent steps that the actor dropped since its start, by reason (cumulative).
        observations: leaf → [T+1, B, ...]; of stacked frames only the newest. The last row is for
            the bootstrap.
        history: leaf → [B, ...], the older frames of the first observation, for each stacked leaf.
        reset_index: int32 [K] flat `t * B + b` (t in 1..T) of observations that begin an episode;
            None without a stacked leaf.
        reset_history: leaf → [K, ...], the older frames of those observations.
        actions: as sampled, [T, B], or [T, B, n] where an action has several numbers; int32, with a
            Box float32.
        behaviour_log_prob: log μ of the actions, recorded when they were chosen.
        valid: False for steps that must not be learned (the action was ignored, or the episode was
            dropped).
        versions: int64 [T] the policy version that chose the actions of step t; of two policies the
            older one.
        chains: ids of the acting policies' compressor chains; "none" for the uncompressed policy.
        chain_index: int32 [T, B], index into `chains` for each action; None if there is one chain.
        behaviour_parameters: [T, B, P] of the behaviour policy, if the run needs them.
        state: [B, ...] each, the policy's state before the first step; () without state.
        masks: [T+1, B, A], the actions that `observations` allow; None: all.
        actor: number of the actor process that played it.
        first_row: number of the first of its B rows among all rows of this actor.
    """

    generation: Count
    env_steps_before: Count
    env_steps_after: Count
    dropped: dict[str, Count]
    observations: dict[str, Frames]
    history: dict[str, Observations]
    reset_index: Int32Vector | None
    reset_history: dict[str, Observations]
    actions: SampledActions
    behaviour_log_prob: Float32Matrix
    rewards: Float32Matrix
    terminated: BoolMatrix
    truncated: BoolMatrix
    valid: BoolMatrix
    versions: Int64Vector
    chains: list[str]
    chain_index: Int32Matrix | None = None
    behaviour_parameters: Float32Cube | None = None
    state: tuple[StateArray, ...] = ()
    masks: BoolCube | None = None
    policy: PolicyName = DEFAULT_POLICY
    actor: Count = 0
    first_row: Count = 0

    def arrays(self) -> Iterator[tuple[str, NDArray[Any]]]:
        """Every array with the names of its field and leaf."""
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, np.ndarray):
                yield name, value
            elif name in ("observations", "history", "reset_history"):
                yield from ((f"{name}.{leaf}", array) for leaf, array in value.items())
            elif name == "state":
                yield from ((f"state.{index}", array) for index, array in enumerate(value))

    @property
    def origins(self) -> NDArray[np.int64]:
        """`[B]`, actor · 2³² + row of each column."""
        return origins_of(self.actor, self.valid.shape[1], self.first_row)

    @property
    def nbytes(self) -> int:
        """Bytes of all its arrays."""
        return sum(array.nbytes for _, array in self.arrays())

    def steps_by_chain(self, *, after: int = 0) -> dict[str, int]:
        """Chain → number of valid steps, without so many first ones, whose actions it chose."""
        index = (
            np.zeros(self.valid.shape, np.int32) if self.chain_index is None else self.chain_index
        )
        counts = np.bincount(index[after:][self.valid[after:]], minlength=len(self.chains))
        return {chain: int(count) for chain, count in zip(self.chains, counts, strict=True)}
