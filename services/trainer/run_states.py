"""The states that a run had, and a repeated one beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aclearn.errors import CheckpointError
from aclearn.learning import Learner
from aclearn.runs import RunFolder, list_checkpoints, load_checkpoint

Tensors = Mapping[str, NDArray[Any]]

#: Tensors of a learner that an update may change, by the beginnings of their names; a generator's
#: state is compared by what it draws.
_COMPARED: Final = ("weights/", "scalars/", "optimiser/", "target", "normaliser/", "totals")
_WEIGHTS: Final = "weights/"


@dataclass(frozen=True)
class Comparison:
    """The repeated state beside the one that the run had after as many updates.

    Attributes:
        what: the file that has the run's.
        equal: whether all bits are.
        distance: of the weights, as a share of the way that they have gone since the first
            recorded batch (Euclidean norms); NaN where they have not moved.
    """

    what: str
    updates: int
    equal: bool
    distance: float


class RunStates:
    """Compares a learner with the states of its run.

    Args:
        learner: repeats the run's updates.
        first: its tensors before the first of them.

    Attributes:
        comparisons: those made so far.
    """

    def __init__(self, learner: Learner, first: Tensors) -> None:
        self._learner = learner
        self._first = _compared(first)
        self._expected: list[tuple[str, int, Tensors]] = []
        self.comparisons: list[Comparison] = []

    @property
    def newest(self) -> int:
        """Updates before the newest expected state; 0 where there is none."""
        return max((its for _, its, _ in self._expected), default=0)

    def expect_checkpoints(
        self, folder: RunFolder, policy: str, generation: int, doubts: list[str]
    ) -> None:
        """Compare with those of this generation that follow the present state, once it is theirs.

        Args:
            doubts: gets why one cannot be read.
        """
        updates = int(self._learner.state.updates)
        for path in list_checkpoints(folder.checkpoints_dir):
            try:
                own = load_checkpoint(path).of_policy(policy)
            except CheckpointError as error:
                doubts.append(f"not compared: {error}")
                continue
            its = int(own.state["counters"]["updates"])
            if own.state["generation"] == generation and its > updates:
                self._expected.append((path.stem, its, _compared(own.tensors)))

    def look(self) -> None:
        """Compare with the checkpoints after this number of updates.

        One may have been copied before or after the batch's observations were counted, so that a
        comparison that has failed within a batch is made again.
        """
        updates = int(self._learner.state.updates)
        for name, its, tensors in self._expected:
            if its == updates:
                self.compare(name, updates, tensors)

    def compare(self, what: str, updates: int, tensors: Tensors) -> None:
        """Compare the present state with that of the run after so many updates.

        Raises:
            CheckpointError: the run's lacks a tensor.
        """
        made = self.comparisons
        if any(each.what == what and each.equal for each in made):
            return
        mine = _compared(self._learner.state_tensors())
        if lacks := sorted(mine.keys() - tensors.keys()):
            raise CheckpointError(f"{what} lacks the tensor {lacks[0]}; it is damaged")
        equal = all(mine[name].tobytes() == np.asarray(tensors[name]).tobytes() for name in mine)
        weights = [name for name in mine if name.startswith(_WEIGHTS)]
        gone = _norm(tensors, self._first, weights)
        distance = _norm(tensors, mine, weights) / gone if gone else float("nan")
        made[:] = [each for each in made if each.what != what]
        made.append(Comparison(what, updates, equal, 0.0 if equal else distance))


def _compared(tensors: Tensors) -> Tensors:
    """Those that are compared; a replay memory, say, has gigabytes of others."""
    return {name: each for name, each in tensors.items() if name.startswith(_COMPARED)}


def _norm(some: Tensors, others: Tensors, names: Sequence[str]) -> float:
    squares = (np.square(some[n].astype(np.float64) - others[n]).sum() for n in names)
    return float(np.sqrt(sum(squares)))
