"""The update of several learners at once: every product is one of a batch of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import grad, vmap

from aclearn.algorithms import Algorithm
from aclearn.learning.batch import Batch
from aclearn.learning.batched.minibatches import MemberMinibatches
from aclearn.learning.batched.networks import NetworksOfMember
from aclearn.learning.batched.optimiser import clip_rows, step_rows
from aclearn.learning.batched.rows import StateRows
from aclearn.learning.batched.scalars import scalars_of, with_scalars
from aclearn.learning.batched.tensors import ForEachMember, of_member
from aclearn.learning.decisions import is_finite
from aclearn.learning.learner_state import running_scale
from aclearn.learning.moments import Moments
from aclearn.learning.networks import Networks
from aclearn.learning.ranks import ALONE
from aclearn.learning.surrogate import ADVANTAGE_SQUARES
from aclearn.learning.update import Learner
from aclearn.learning.update_report import Sums, UpdateReport, step_scale
from aclearn.telemetry import part

_Weights = Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class MemberReports:
    """The figures of the updates of a batch, of all members.

    Attributes:
        names: of the sums.
        values: `[M, n]` of each update, as `Sums.values`.
        own: `[M, 9]` of each update, as `Sums.own`.
    """

    names: tuple[str, ...]
    values: Sequence[NDArray[np.float64]]
    own: Sequence[NDArray[np.float64]]

    def of(self, member: int) -> list[UpdateReport]:
        """The reports of a member's updates, as of `Learner.learn`."""
        made = [
            UpdateReport.of(self.names, values[member].tolist(), own[member].tolist())
            for values, own in zip(self.values, self.own, strict=True)
        ]
        return [report for report in made if report.steps > 0]


class MemberLearners:
    """Learners of one architecture that make their updates together.

    Their states become rows of shared tensors (`StateRows`): what reads a learner, saves it or
    loads it finds its own weights. None may learn alone any more. Weights after some updates are
    those of learners that learn apart, but for rounding.

    Args:
        learners: of surrogate losses, with one group of weights and no learned scalars; they may
            differ in weights, generators, learning rate, `scalars.LOSS_KEYS` and λ.

    Attributes:
        rows: their states.
    """

    def __init__(self, learners: Sequence[Learner]) -> None:
        first = learners[0]
        objectives = [each.objective for each in learners]
        self._learners, self._device = learners, first.device
        self._objective: Any = first.objective
        self._config, self._max_updates = first.optimiser_config, first.max_updates
        self._scalars = scalars_of(objectives, first.device)  # type: ignore[arg-type]
        self.rows = StateRows([each.state for each in learners])
        networks = first.make_worker().networks
        self._networks = NetworksOfMember(networks)
        [group] = first.state.optimiser.param_groups
        self._limit: float = group["max_grad_norm"]
        self._rates = torch.tensor(
            [each.state.optimiser.param_groups[0]["first_lr"] for each in learners],
            dtype=torch.float64,
            device=first.device,
        )
        self._generators = [each.state.generators["minibatches"] for each in learners]
        self._rng = first.state.generators["losses"]  # which no surrogate reads
        self._decay = first.state.decay
        self._names: tuple[str, ...] = ()
        self._frozen = ForEachMember(self._freeze_of)
        self._gradient = ForEachMember(self._gradient_of)
        self._single_steps = ForEachMember(Batch.single_steps)
        self._masked_moments = ForEachMember(Moments.masked)

    def learn(
        self, batch: Batch, learns: Tensor, *, minibatches: int = 1, epochs: int = 1
    ) -> MemberReports:
        """Make the updates of each member's batch, as `Learner.learn`; each gets its reports.

        Args:
            batch: its tensors have the members in front: `[M, T, B, …]`.
            learns: `[M]` bool; the others stay as they are, and report nothing.
        """
        batch = self._prepared(batch)
        parts = MemberMinibatches(
            batch,
            count=minibatches,
            passes=epochs,
            generators=self._generators,
            single_steps=self._single_steps,
        )
        made: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
        observed: list[dict[str, Moments]] = []
        asked_to_end = torch.zeros_like(learns)
        for index, minibatch in parts:
            steps = minibatch.valid.sum((1, 2)).masked_fill(~learns, 0)
            over = asked_to_end & (index > 0)
            if self._max_updates is not None:
                over = over | (self.rows.totals[:, 3] >= self._max_updates)
            steps = steps.masked_fill(over, 0)
            new_steps = steps if index == 0 else torch.zeros_like(steps)
            gradients, values = self._gradients(minibatch, steps)
            with part("optimiser"):
                ends = self._ends(values, steps)
                own, applied = self._apply(
                    gradients, values, steps, new_steps, ends if parts.any_left else None
                )
                parts.refuse_unless(applied)
                if ends is not None:
                    asked_to_end = asked_to_end | (applied & ends)
                if index == 0:
                    observed.append(self._moments(minibatch, applied))
                made.append((values.cpu().numpy(), own.cpu().numpy()))
        if any(observed):
            for member, learner in enumerate(self._learners):
                seen = [
                    {name: of_member(each, member) for name, each in m.items()} for m in observed
                ]
                learner.state.normalisers.add_observations(seen, ALONE)
        return MemberReports(self._names, [sums for sums, _ in made], [own for _, own in made])

    def _prepared(self, batch: Batch) -> Batch:
        """As `Learner.prepare`, of each member."""
        normalisers = [each.state.normalisers for each in self._learners]
        objective = self._objective
        if not objective.freezes and not normalisers[0].of_targets:
            return batch

        with part("forward"):
            found = self._frozen(batch, self._scalars, self.rows.targets)
        assert found.frozen is not None
        if normalisers[0].of_targets:
            targets = found.frozen.correction.targets
            for each, mine, valid in zip(normalisers, targets, batch.valid, strict=True):
                each.add_targets(each.moments_of_targets(mine, valid))
            if objective.freezes and not objective.config.normalise_advantages:
                scale = self._advantage_scales()
                found = replace(found, frozen=found.frozen.scaled(scale))
        return found if objective.freezes else batch

    def _freeze_of(self, batch: Batch, scalars: _Weights, weights: _Weights) -> Batch:
        """The batch of one member with what all its updates share."""
        objective = with_scalars(self._objective, scalars)
        return objective.frozen(batch, [batch], self._networks(weights), ALONE)

    def _gradient_of(
        self,
        learned: _Weights,
        others: _Weights,
        scalars: _Weights,
        scale: Tensor,
        steps: Tensor,
        batch: Batch,
    ) -> tuple[_Weights, Tensor]:
        """The gradients of one member by name, and the sums of its losses `[n]` float64."""

        def loss(learned: _Weights) -> tuple[Tensor, Tensor]:
            networks: Networks = self._networks({**others, **learned}, scale)
            objective = with_scalars(self._objective, scalars)
            total, sums = objective.losses(batch, networks, networks, self._rng)
            self._names = sums.names
            return total / steps.clamp(min=1), sums.values

        made: tuple[_Weights, Tensor] = grad(loss, has_aux=True)(learned)
        return made

    def _gradients(self, batch: Batch, steps: Tensor) -> tuple[Tensor, Tensor]:
        """`[M, P]` and the sums of the losses `[M, n]` float64."""
        learned = self.rows.learned.named
        others = {name: each for name, each in self.rows.weights.items() if name not in learned}
        scales = self._advantage_scales()
        with part("forward"):
            found, values = self._gradient(learned, others, self._scalars, scales, steps, batch)
        return torch.cat([found[name].flatten(1) for name in learned], 1), values

    def _ends(self, values: Tensor, steps: Tensor) -> Tensor | None:
        """`[M]` bool, as `Objective.ends_batch` of each member."""
        objective = self._objective
        if type(objective.algorithm).ends_batch is Algorithm.ends_batch:
            return None
        if objective.ends_batch(Sums(self._names, values[0]), steps[0]) is None:
            return None
        ends: Tensor = vmap(lambda row, count: objective.ends_batch(Sums(self._names, row), count))(
            values, steps
        )
        return ends

    def _apply(
        self,
        gradients: Tensor,
        values: Tensor,
        steps: Tensor,
        new_steps: Tensor,
        ends: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """As `Learner.apply`, of each member: `own` `[M, 9]`, and `[M]` bool, what has changed."""
        rows, config = self.rows, self._config
        norms = clip_rows(gradients, self._limit)
        applied = is_finite(norms) & (steps > 0)
        left = torch.zeros_like(self._rates) + config.share_left(rows.totals[:, 2])
        left = left.clamp(min=0.0)
        sums = Sums(self._names, values.T)
        scale = step_scale(sums, steps)
        rates = self._rates * (left if scale is None else left * scale)
        step_rows(rows, config, gradients, rates=rates.float(), applied=applied)
        for learner, changed in zip(self._learners, applied, strict=True):
            if learner.state.target is None:
                break
            learner.state.target.follow(changed)
        squares = counted = torch.zeros_like(norms)
        if self._objective.scales_advantages:
            squares = values[:, self._names.index(ADVANTAGE_SQUARES)]
            counted = sums.kept(steps)
        ended = torch.zeros_like(applied) if ends is None else applied & ends
        report = [norms, rates, ended, new_steps, steps]
        added = [squares, counted, new_steps, applied]
        own = torch.stack([each.double() for each in (*report, *added)], 1)
        after = torch.addcmul(own[:, len(report) :], self._decay, rows.totals)
        kept = applied.unsqueeze(1) & is_finite(after)
        rows.totals.copy_(torch.where(kept, after, rows.totals))
        return own, applied

    def _advantage_scales(self) -> Tensor:
        """`[M]` float32, `Learner.advantage_scale` of each."""
        if self._objective.scales_advantages:
            return running_scale(self.rows.totals).float()
        scales = [torch.as_tensor(each.advantage_scale) for each in self._learners]
        return torch.stack(scales).float().to(self._device)

    def _moments(self, batch: Batch, applied: Tensor) -> dict[str, Moments]:
        """Moments of observations `[M, …]` by layer, of those whose update was applied."""
        valid = batch.valid & applied[:, None, None]
        length = valid.shape[1]
        return {
            name: self._masked_moments(batch.observations[leaf][:, :length], valid)
            for name, leaf in self._learners[0].state.normalisers.leaves.items()
        }
