"""The figures of one update, and the sums that they are made of."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from typing_extensions import override

#: Prefix of sums that are parts of a figure and no figures themselves.
PART = "part/"
#: Sum over the steps of the power of the effective sample share that scales the step.
STEP_EXPONENT = f"{PART}step_exponent"
#: The number of steps that a chain of correctors keeps, if it can drop any.
KEPT = f"{PART}kept"
#: Places in `Sums.own`.
ENDS, NEW_STEPS, STEPS, APPLIED = 2, 3, 4, 8
_NONE = torch.zeros(0)


class Sums(NamedTuple):
    """Sums over the valid steps of a batch.

    Attributes:
        values: `[len(names)]` float64.
        errors: `[T, B]` of an algorithm that gives them.
        own: `[9]` float64, the numbers of an update: norm of the gradient, learning rate, whether
            it ends the batch, new steps of this rank, steps, and the summands of
            `LearnerState.totals`: squared advantages, their number, new steps, and whether it was
            applied.
    """

    names: tuple[str, ...]
    values: Tensor
    errors: Tensor | None = None
    own: Tensor = _NONE

    def kept(self, steps: Tensor) -> Tensor:
        """`[]`, the number of `steps` that no corrector has dropped."""
        return self.values[self.names.index(KEPT)] if KEPT in self.names else steps

    @classmethod
    def joined(cls, parts: Sequence[Sums]) -> Sums:
        """The sums over neighbouring environments."""
        if len(parts) == 1:
            return parts[0]
        values = torch.stack([each.values for each in parts]).sum(0)
        errors = [each.errors for each in parts if each.errors is not None]
        return cls(parts[0].names, values, torch.cat(errors, dim=1) if errors else None)


@dataclass(frozen=True, eq=False)
class Means(Mapping[str, Tensor]):
    """The means over the steps of an update by name, each computed when it is asked for.

    Args:
        steps: `[]`, number of steps that the sums are over.
    """

    sums: Sums
    steps: Tensor

    @override
    def __getitem__(self, name: str) -> Tensor:
        if name not in self.sums.names:
            raise KeyError(name)
        return self.sums.values[self.sums.names.index(name)] / self.steps.clamp(min=1)

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self.sums.names)

    @override
    def __len__(self) -> int:
        return len(self.sums.names)


def step_scale(sums: Sums, steps: Tensor) -> Tensor | None:
    """`[]` float64, the factor of an update's step that correctors ask for; None: 1.

    Args:
        steps: `[]`, number of steps that the sums are over.
    """
    if STEP_EXPONENT not in sums.names:
        return None
    means = Means(sums, steps)
    ratio, square, exponent = (
        means[name] for name in (f"{PART}ratios", f"{PART}ratio_squares", STEP_EXPONENT)
    )
    return (ratio.square() / square.clamp(min=1e-30)) ** exponent


@dataclass(frozen=True)
class UpdateReport:
    """The figures of one update.

    Attributes:
        applied: False when the gradient was not finite and the weights stayed as they were.
        steps: of all ranks, of which the metrics are.
        new_steps: number of these of this rank that no earlier batch had; 0 after the first pass.
        ends: whether the loss leaves out the rest of the batch.
        metrics: by name: those of the loss and of the correctors, means over the valid steps;
            `behaviour_kl` or `behaviour_kl_estimate`, mean KL(μ ‖ π); `rho_mean`, mean of ρ, not
            clipped; `explained_variance`, 1 − Var(target − value) / Var(target);
            `effective_sample_share`, (Σρ)² / (n Σρ²), 0 to 1; `gradient_norm`, Euclidean,
            of the mean loss's gradient before clipping; `learning_rate`; and `step_scale`, the
            factor in it that a corrector asked for.
        errors: `[T, B]`, the newest size of each step's error in the batch, of an algorithm that
            gives them, once all minibatches have had an update.
    """

    applied: bool
    steps: int
    new_steps: int
    ends: bool
    metrics: Mapping[str, float]
    errors: Tensor | None = None

    def gauges(self) -> dict[str, float]:
        """The finite metrics."""
        return {name: value for name, value in self.metrics.items() if math.isfinite(value)}

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        values: Sequence[float],
        own: Sequence[float],
        errors: Tensor | None = None,
    ) -> UpdateReport:
        """The report of one update from its `Sums`."""
        norm, rate, ends, new_steps, steps, *_, applied = own
        means = {name: value / max(1.0, steps) for name, value in zip(names, values, strict=True)}
        metrics = {name: mean for name, mean in means.items() if not name.startswith(PART)}
        metrics |= _from_parts(means) | {"gradient_norm": norm, "learning_rate": rate}
        return cls(applied > 0, int(steps), int(new_steps), ends > 0, metrics, errors)


def _from_parts(means: Mapping[str, float]) -> dict[str, float]:
    """Figures that are no means themselves."""
    made = {}
    if f"{PART}ratios" in means:
        ratio, square = means[f"{PART}ratios"], means[f"{PART}ratio_squares"]
        # Kish's (Σρ)² / Σρ², as a share of the steps; the sums add up over chunks
        made = {"rho_mean": ratio, "effective_sample_share": ratio**2 / max(square, 1e-30)}
        if STEP_EXPONENT in means:
            made["step_scale"] = made["effective_sample_share"] ** means[STEP_EXPONENT]
    if f"{PART}targets" in means:
        target, squares, error, error_squares = (
            means[f"{PART}{name}"]
            for name in ("targets", "target_squares", "errors", "error_squares")
        )
        variance, others = squares - target**2, error_squares - error**2
        above = variance > 1e-12 * squares  # what float64 leaves of equal numbers
        made["explained_variance"] = 1.0 - others / variance if above else math.nan
    return made
