"""The numbers of an objective in which members differ: tensors in place of floats."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

from aclearn.learning.surrogate import Surrogate
from correctors import Corrector

#: Keys of the section `loss` that may differ, where an algorithm has them.
LOSS_KEYS: Final = ("discount", "entropy_cost", "value_cost", "clip_range")
#: Argument of a corrector that may differ; its attribute.
LAMBDA: Final = "lambda_"


def scalars_of(objectives: Sequence[Surrogate], device: torch.device) -> dict[str, Tensor]:
    """`[M]` float32 of each number in which they differ, by its name for `with_scalars`."""
    found: dict[str, list[Any]] = {
        f"loss.{key}": [getattr(each.config, key, None) for each in objectives] for key in LOSS_KEYS
    }
    for index in range(len(objectives[0].chain.correctors)):
        each = [getattr(one.chain.correctors[index], LAMBDA, None) for one in objectives]
        found[f"{index}"] = each
    return {
        name: torch.tensor(values, device=device)
        for name, values in found.items()
        if len(set(values)) > 1
    }


def with_scalars(objective: Surrogate, scalars: Mapping[str, Tensor]) -> Surrogate:
    """A copy with these numbers, `[]` each: those of one member."""
    of_loss = {
        name.removeprefix("loss."): number
        for name, number in scalars.items()
        if name.startswith("loss.")
    }
    correctors = tuple(
        _with_lambda(corrector, scalars.get(f"{index}"))
        for index, corrector in enumerate(objective.chain.correctors)
    )
    return replace(
        objective,
        config=objective.config.model_copy(update=of_loss),
        chain=replace(objective.chain, correctors=correctors),
    )


def _with_lambda(corrector: Corrector, number: Tensor | None) -> Corrector:
    if number is None:
        return corrector
    made = copy.copy(corrector)
    object.__setattr__(made, LAMBDA, number)  # checked as a float before
    return made
