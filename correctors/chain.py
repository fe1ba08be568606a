"""The corrector chain, its input and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from correctors._checks import check_time_major
from correctors._recursion import bootstrapped


@dataclass(frozen=True, eq=False)
class CorrectionInput:
    """One batch of unrolls; tensors are time-major [T, B], on one device.

    Attributes:
        values: V(x_t) of the observation that step t acted on, float32; Σ_a π(a|x_t) Q(x_t, a)
            where the critic is Q.
        next_values: the same of the observation that step t really reached, float32; not read
            where `discounts` is 0.
        rewards: float32.
        discounts: γ · (1 − terminated), float32.
        done: terminated or truncated, bool.
        log_rhos: log π(a|x) − log μ(a|x) of the actions taken, float32; None where no corrector of
            the chain needs it, as for all that follow.
        log_pi: log π(a|x) of the actions taken, float32.
        kl: KL(π‖μ) at each observation, float32, in nats.
        behaviour_parameters: [T, B, P] float32 of μ's distribution.
        behaviour_probs: μ(a|x) of the actions taken, float32; None too where actions are numbers,
            which have densities.
        log_gaps: log π_v(a|x) − log μ(a|x) of the actions taken, float32 and finite, where π_v is
            the uncompressed policy of the version that acted; 0 where it is not known.
        valid: the steps that count, bool; the others are resets, or of failed episodes.
        measured: what the corrector's own `measure` has found in all steps of the update, of which
            these columns may be a part; set by the chain.
        actions: taken, int64.
        q_next: [T, B, A] float32, Q(x', ·) of the observation that step t really reached; not read
            where `discounts` is 0.
        next_target_probs: [T, B, A] float32, π(·|x') there; likewise.

    Raises:
        ValueError: a wrong rank, shape, dtype or device.
    """

    values: Tensor
    next_values: Tensor
    rewards: Tensor
    discounts: Tensor
    done: Tensor
    log_rhos: Tensor | None = None
    log_pi: Tensor | None = None
    kl: Tensor | None = None
    behaviour_parameters: Tensor | None = None
    behaviour_probs: Tensor | None = None
    log_gaps: Tensor | None = None
    valid: Tensor | None = None
    measured: Tensor | None = None
    actions: Tensor | None = None
    q_next: Tensor | None = None
    next_target_probs: Tensor | None = None

    def __post_init__(self) -> None:
        given = {
            name: tensor
            for name, tensor in vars(self).items()
            if tensor is not None or name not in _OPTIONAL
        }

        def taken(*names: str) -> dict[str, Tensor]:
            return {name: given.pop(name) for name in names if name in given}

        parameters = taken("behaviour_parameters")
        bools, actions = taken("done", "valid"), taken("actions")
        taken("measured")  # of any shape
        vectors = taken("q_next", "next_target_probs")
        check_time_major(floats=given, bools=bools, actions=actions, vectors=vectors)
        if parameters:  # of another length than the other vectors
            check_time_major(floats={"values": self.values}, vectors=parameters)

    def required(self, name: str) -> Tensor:
        """The input `name`; raises `ValueError` if it is None."""
        value: Tensor | None = getattr(self, name)
        if value is None:
            raise ValueError(f"{name}: needed by a corrector of the chain, but the batch has None")
        return value


_INPUT_NAMES = frozenset(field.name for field in fields(CorrectionInput))
_OPTIONAL = frozenset(field.name for field in fields(CorrectionInput) if field.default is None)


@dataclass(frozen=True, eq=False)
class Correction:
    """Targets, advantages and weights for the loss: all float32 [T, B], without gradient.

    The weights are separate from the advantages because a loss may clip its own ratio instead.

    Attributes:
        targets: regression targets of the values.
        advantages: of the actions taken, not weighted.
        weights: of the policy gradient, a product of those of all correctors; 1 without any.
        kept: bool [T, B], the steps to learn; None: all.
        advantage_scale: factor by which the trainer normalises advantages.
        step_exponent: the trainer's step is multiplied by the effective sample share to this power.
        metrics: [T, B] by name; the trainer reports the means over the valid steps.
    """

    targets: Tensor
    advantages: Tensor
    weights: Tensor
    kept: Tensor | None = None
    advantage_scale: float | Tensor = 1.0
    step_exponent: float = 0.0
    metrics: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def weighted_advantages(self) -> Tensor:
        """`weights` · `advantages` · `advantage_scale`: the factor of ∇ log π."""
        return self.weights * self.advantages * self.advantage_scale

    def columns(self, columns: slice | Tensor) -> Correction:
        """The correction of some of the environments, neighbouring ones or by their numbers."""
        return self.taken(lambda tensor: tensor[:, columns])

    def taken(self, take: Callable[[Tensor], Tensor]) -> Correction:
        """The correction of the steps that `take` finds in each of its tensors."""
        return replace(
            self,
            targets=take(self.targets),
            advantages=take(self.advantages),
            weights=take(self.weights),
            kept=None if self.kept is None else take(self.kept),
            metrics={name: take(values) for name, values in self.metrics.items()},
        )


@runtime_checkable
class Corrector(Protocol):
    """A link of the chain: replaces parts of a `Correction`."""

    @property
    def needs(self) -> frozenset[str]:
        """The names of the fields of `CorrectionInput` that it reads."""

    def correct(self, batch: CorrectionInput, correction: Correction) -> Correction:
        """`correction` with some of its fields replaced; nothing is changed in place."""


@runtime_checkable
class Measuring(Corrector, Protocol):
    """A corrector that looks at all steps of an update together."""

    def measure(self, log_rhos: Tensor, log_gaps: Tensor) -> Tensor:
        """What `correct` finds as `batch.measured`, of any shape; computed once for an update.

        Args:
            log_rhos: [N] float32, of all steps of the update; NaN of those that do not count.
            log_gaps: [N] float32, of the same steps.
        """


@dataclass(frozen=True)
class CorrectorChain:
    """Correctors applied in order: `CorrectorChain().add(VTrace()).add(ImportanceSampling())`.

    An empty chain gives one-step temporal-difference targets and advantages, and weights of 1.
    """

    correctors: tuple[Corrector, ...] = ()

    def add(self, corrector: Corrector) -> CorrectorChain:
        """A new chain with `corrector` at the end.

        Raises:
            ValueError: the corrector needs a field that `CorrectionInput` does not have.
        """
        unknown = corrector.needs - _INPUT_NAMES
        if unknown:
            raise ValueError(
                f"{type(corrector).__name__}: expected needs among {sorted(_INPUT_NAMES)}, "
                f"got {sorted(unknown)}"
            )
        return CorrectorChain((*self.correctors, corrector))

    @property
    def needs(self) -> frozenset[str]:
        """Fields of `CorrectionInput` that must not be None."""
        return frozenset[str]().union(*(corrector.needs for corrector in self.correctors))

    @property
    def measures(self) -> bool:
        """Whether a corrector looks at all steps of an update together."""
        return any(isinstance(corrector, Measuring) for corrector in self.correctors)

    def measure(self, log_rhos: Tensor, log_gaps: Tensor) -> tuple[Tensor | None, ...]:
        """What each corrector measures of an update, None of those that do not; see `Measuring`."""
        with torch.no_grad():
            return tuple(
                corrector.measure(log_rhos, log_gaps) if isinstance(corrector, Measuring) else None
                for corrector in self.correctors
            )

    def measure_whole(self, batch: CorrectionInput) -> tuple[Tensor | None, ...]:
        """`measure` of a batch that has all steps of an update."""
        if not self.measures:
            return (None,) * len(self.correctors)
        log_rhos, log_gaps = batch.required("log_rhos"), batch.log_gaps
        if batch.valid is not None:
            log_rhos = log_rhos.masked_fill(~batch.valid, torch.nan)
        if log_gaps is None:
            log_gaps = torch.zeros_like(log_rhos)
        return self.measure(log_rhos.flatten(), log_gaps.flatten())

    def correct(
        self, batch: CorrectionInput, measured: Sequence[Tensor | None] | None = None
    ) -> Correction:
        """The batch's targets, advantages and weights, after all correctors in order.

        Args:
            measured: of `measure`, where the batch is a part of an update's; None: it is whole.

        Raises:
            ValueError: the batch lacks a needed field, or a corrector returns another shape.
        """
        for name in sorted(self.needs):
            batch.required(name)
        with torch.no_grad():
            targets = bootstrapped(batch.rewards, batch.discounts, batch.next_values)
            correction = Correction(
                targets=targets,
                advantages=targets - batch.values,
                weights=torch.ones_like(targets),
            )
        measured = self.measure_whole(batch) if measured is None else measured
        for corrector, found in zip(self.correctors, measured, strict=True):
            seen = batch if found is None else replace(batch, measured=found)
            correction = corrector.correct(seen, correction)
        made = {name: getattr(correction, name) for name in ("targets", "advantages", "weights")}
        kept = {} if correction.kept is None else {"kept": correction.kept}
        check_time_major(floats={"values": batch.values, **made}, bools=kept)
        return correction
