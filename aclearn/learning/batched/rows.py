"""The states of several learners as rows of shared tensors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod

import torch
from torch import Tensor, nn

from aclearn.learning.learner_state import LearnerState


def shared_rows(tensors: Sequence[Tensor]) -> Tensor:
    """`[M, …]`, a copy of tensors of one shape, which become its rows: they share its memory."""
    rows = torch.stack([tensor.detach() for tensor in tensors])
    for tensor, row in zip(tensors, rows, strict=True):
        if isinstance(tensor, nn.Parameter):
            tensor.data = row
        else:
            tensor.set_(row)
    return rows


class FlatRows:
    """Named tensors of M members, all of a member in one row `[M, P]`.

    Attributes:
        flat: `[M, P]`.
        named: `[M, *shape]` by name, as views of `flat`.
    """

    def __init__(self, members: Sequence[dict[str, Tensor]]) -> None:
        first = members[0]
        sizes = [prod(tensor.shape) for tensor in first.values()]
        stops = list(accumulate(sizes))
        self.flat = torch.empty(len(members), stops[-1], device=next(iter(first.values())).device)
        self.named = {
            name: self.flat[:, stop - size : stop].view(len(members), *tensor.shape)
            for (name, tensor), size, stop in zip(first.items(), sizes, stops, strict=True)
        }
        for row, tensors in enumerate(members):
            for name, tensor in tensors.items():
                mine = self.named[name][row]
                mine.copy_(tensor.detach())
                if isinstance(tensor, nn.Parameter):
                    tensor.data = mine
                else:
                    tensor.set_(mine)  # type: ignore[call-overload]


class StateRows:
    """All that updates change, of M members.

    The members' own states keep working: they read and write their rows. Their optimisers, of
    which these rows take the place, do not.

    Attributes:
        learned: weights that learn, flat.
        weights: `[M, *shape]` of every weight by name, in the network's order.
        targets: the same of the target network; `weights` without one.
        moments: those of the optimiser by name, flat as `learned`.
        steps: `[M]`, steps of the optimiser; None where it counts none.
        totals: `[M, 4]`, of `LearnerState.totals`.
    """

    def __init__(self, states: Sequence[LearnerState]) -> None:
        named = [dict(state.network.named_parameters()) for state in states]
        learns = [name for name, weight in named[0].items() if weight.requires_grad]
        self.learned = FlatRows([{name: each[name] for name in learns} for each in named])
        self.weights = {
            name: self.learned.named[name]
            if name in self.learned.named
            else shared_rows([each[name] for each in named])
            for name in named[0]
        }
        self.targets = self.weights
        if states[0].target is not None:
            copies = [state.target.copies for state in states if state.target is not None]
            self.targets = self.weights | {
                name: shared_rows([each[name] for each in copies]) for name in copies[0]
            }
        kinds = states[0].moments[learns[0]].keys()
        self.moments = {
            kind: FlatRows(
                [{name: state.moments[name][kind] for name in learns} for state in states]
            ).flat
            for kind in kinds - {"step"}
        }
        self.steps: Tensor | None = None
        if "step" in kinds:
            # one number for all weights of a member
            self.steps = shared_rows([state.moments[learns[0]]["step"] for state in states])
        self.totals = shared_rows([state.totals for state in states])
