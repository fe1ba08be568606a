"""The form of observations in the environment's own space, and where the policy's leaves are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from aclearn.types.nested import Path
from aclearn.types.observation_spec import OBSERVATION, ObservationSpec


@dataclass(frozen=True)
class ObservationPart:
    """A Box, Discrete, MultiDiscrete or MultiBinary space, of which a leaf is made.

    Attributes:
        path: keys of Dict and indices of Tuple spaces that lead to it.
        shape: in the environment's space.
        kind: "numbers" of a Box or "switches" of a MultiBinary, which a flat leaf has in the order
            of C; "choices", which a flat leaf has as one-hot vectors side by side; "image".
        counts: number of values of each choice.
        starts: the environment's first value of each choice.
        channels: axis of an image's channels; None: it has none. The leaf has them first.
        frames: S, of an image: with S > 1, an axis in front of `shape`, the newest frame last. A
            leaf has all channels of the oldest frame first.
    """

    leaf: str
    path: Path = ()
    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    kind: Literal["numbers", "switches", "choices", "image"] = "numbers"
    counts: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()
    channels: Literal["first", "last"] | None = None
    frames: int = 1

    @property
    def stacked_shape(self) -> tuple[int, ...]:
        """`shape`, with the axis of the frames where there is one."""
        return (self.frames, *self.shape) if self.frames > 1 else self.shape


@dataclass(frozen=True)
class ObservationForm:
    """An environment's own form of observations.

    Attributes:
        parts: one for each leaf, in the order of the leaves.
        mask: path of the action mask in an observation; None: observations have none.
    """

    parts: tuple[ObservationPart, ...]
    mask: Path | None = None

    @classmethod
    def of_leaves(cls, observation: ObservationSpec) -> ObservationForm:
        """The form of an environment that shows the leaves themselves, frames stacked already."""
        return cls(
            tuple(
                ObservationPart(
                    name,
                    () if [*observation] == [OBSERVATION] else (name,),
                    leaf.shape,
                    leaf.dtype,
                    "image" if leaf.is_image else "numbers",
                    channels="first" if leaf.is_image else None,
                )
                for name, leaf in observation.items()
            )
        )
