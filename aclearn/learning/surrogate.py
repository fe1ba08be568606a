"""What is differentiated of a batch: the losses of an algorithm, or of a surrogate loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from aclearn.algorithms import Algorithm, Loss, Outputs, TargetCopies
from aclearn.config import LossConfig
from aclearn.distributions import TorchDistribution
from aclearn.errors import ConfigError
from aclearn.learning.batch import Batch, FrozenCorrection
from aclearn.learning.critic import Estimates, estimates_of, learned_values
from aclearn.learning.moments import RESOLUTION, Moments, at_least
from aclearn.learning.networks import Networks
from aclearn.learning.ranks import ALONE, Group, joined_moments
from aclearn.learning.update_report import KEPT, PART, STEP_EXPONENT, Means, Sums
from aclearn.policies.policy_module import zeroed_state
from aclearn.types import PolicyOutput
from correctors import Correction, CorrectionInput, CorrectorChain, importance_weights
from correctors.importance import MAX_LOG_RHO

#: Sum of squared weighted advantages, before they are normalised.
ADVANTAGE_SQUARES = f"{PART}advantage_squares"


@dataclass(frozen=True)
class Objective:
    """An algorithm with its configuration."""

    algorithm: Algorithm
    config: LossConfig

    #: Whether the updates of a batch share one correction.
    freezes = False
    #: Whether a corrector looks at all steps of an update together.
    measures = False
    #: Whether a corrector reads the parts of the ratios.
    splits = False
    #: Whether advantages are divided by their running root mean square.
    scales_advantages = False

    @property
    def scalars(self) -> Mapping[str, float]:
        """Learned numbers beside the weights, with their first values."""
        return self.algorithm.scalars(self.config)

    @property
    def targets(self) -> TargetCopies | None:
        """The weights that follow slowly."""
        return self.algorithm.targets(self.config)

    def optimiser_groups(self, weights: Mapping[str, Tensor]) -> list[dict[str, Any]]:
        """Groups of the optimiser, as `make_optimiser` takes them.

        Raises:
            ConfigError: a weight that learns is in none of the algorithm's groups, or in several.
        """
        groups = self.algorithm.groups(self.config)
        made: list[dict[str, Any]] = []
        for group in groups.values():
            rates = {"lr": group.learning_rate, "max_grad_norm": group.max_grad_norm}
            given = {key: value for key, value in rates.items() if value is not None}
            made.append({"params": [], **given})
        for name, weight in weights.items():
            if not weight.requires_grad:
                continue
            lengths = [
                max((len(prefix) for prefix in group.names if name.startswith(prefix)), default=-1)
                for group in groups.values()
            ]
            count = lengths.count(longest) if (longest := max(lengths)) >= 0 else 0
            if count != 1:
                raise ConfigError(
                    f"loss.kind {self.config.kind!r}: {count} of its groups ({', '.join(groups)}) "
                    f"name the weight {name} by the longest prefix; expected one"
                )
            made[lengths.index(longest)]["params"].append(weight)
        return [group for group in made if group["params"]]

    def losses(
        self, batch: Batch, networks: Networks, targets: Networks, rng: torch.Generator
    ) -> tuple[Tensor, Sums]:
        """The total of the losses of a part of a batch `[]`, with gradient, and their sums."""
        made = self.algorithm.losses(batch, networks, targets, rng, self.config).values()
        metrics = {name: value for each in made for name, value in each.metrics.items()}
        errors = [each.errors for each in made if each.errors is not None]
        with torch.no_grad():
            values = torch.stack(list(metrics.values())).double()
        total = reduce(torch.add, (each.total for each in made))
        return total, Sums(tuple(metrics), values, errors[0] if errors else None)

    def frozen(
        self, batch: Batch, chunks: Sequence[Batch], networks: Networks, group: Group
    ) -> Batch:
        """`batch` with what all its updates share.

        Args:
            chunks: neighbouring environments of `batch`, all of them.
            networks: those of the target network, if there is one.
            group: the ranks with batches of the same updates.
        """
        return batch

    def log_probs(self, batch: Batch, networks: Networks) -> Tensor:
        """`[T, B]`, log π(a) of the actions taken; those of μ where no loss asks for ratios."""
        return batch.behaviour_log_prob

    def measured(self, batch: Batch, log_probs: Tensor, group: Group) -> Batch:
        """`batch` with `measured`, for correctors that look at all steps of an update together.

        Args:
            log_probs: `[T, B]`, log π(a) of the actions taken.
            group: as for `frozen`.
        """
        return batch

    def ends_batch(self, sums: Sums, steps: Tensor) -> Tensor | None:
        """`[]` bool, whether the rest of a batch is left out after an update; None: never."""
        if type(self.algorithm).ends_batch is Algorithm.ends_batch:
            return None
        ends = self.algorithm.ends_batch(Means(sums, sums.kept(steps)), self.config)
        return None if ends is False else torch.as_tensor(ends, device=steps.device)


@dataclass(frozen=True)
class Surrogate(Objective):
    """A loss of the policy's outputs and of a corrector chain's result, in one group of weights."""

    algorithm: Loss
    chain: CorrectorChain

    @property
    def freezes(self) -> bool:  # type: ignore[override]
        """Whether the updates of a batch share one correction."""
        return not self.algorithm.recomputes_targets

    @property
    def scales_advantages(self) -> bool:  # type: ignore[override]
        """Whether advantages are divided by their running root mean square."""
        return self.config.normalise_advantages and not self.freezes

    @override
    def losses(
        self, batch: Batch, networks: Networks, targets: Networks, rng: torch.Generator
    ) -> tuple[Tensor, Sums]:
        outputs, correction = self._forward(batch, networks)
        learned = batch
        if correction.kept is not None:
            learned = replace(batch, valid=batch.valid & correction.kept, all_valid=False)
        made = self.algorithm(learned, outputs, correction, self.config)
        with torch.no_grad():
            log_rhos = outputs.log_probs - batch.behaviour_log_prob
            figures = self._figures(batch, networks, outputs, log_rhos, correction)
            squared = {
                "target": correction.targets,
                "error": correction.targets - outputs.proximal_values,
                "ratio": importance_weights(log_rhos, rho_bar=None),
                "advantage": learned.of_valid(correction.weights * correction.advantages),
            }
            # float64: variances are differences of large sums, and float32 has no 1e-40
            rows = torch.stack([*figures.values(), *squared.values()])
            rows = batch.of_valid(rows).double()
            values = torch.cat([rows, rows[len(figures) :].square()]).sum((1, 2))
            own = {name: value for name, value in made.metrics.items() if name not in figures}
            if own:
                values = torch.cat([torch.stack(list(own.values())), values])
            if correction.kept is not None:
                values = torch.cat([values, learned.valid.sum(dtype=values.dtype)[None]])
        names = [*own, *figures, *(f"{PART}{name}s" for name in squared)]
        names += [f"{PART}{name}_squares" for name in squared]
        names += [] if correction.kept is None else [KEPT]
        return made.total, Sums(tuple(names), values, made.errors)

    @override
    @torch.no_grad()
    def frozen(
        self, batch: Batch, chunks: Sequence[Batch], networks: Networks, group: Group
    ) -> Batch:
        parts = []
        for chunk in chunks:
            output = _unroll(chunk, networks)
            policy = networks.distribution(output.parameters, chunk.step_masks)
            estimates = _estimates(chunk, output, policy, networks)
            parts.append((output.parameters, learned_values(output, chunk.actions), estimates))
        parameters, values, each = zip(*parts, strict=True)
        policy = networks.distribution(torch.cat(parameters, dim=1), batch.step_masks)
        log_probs = _log_probs(batch, policy, networks)
        estimates = Estimates.side_by_side(each)
        whole = self.measured(batch, log_probs, group)
        correction = self._correct(whole, policy, log_probs, estimates, networks)
        if self.config.normalise_advantages:
            correction = standardised(correction, batch.valid, group)
        frozen = FrozenCorrection(correction, log_probs, torch.cat(values, dim=1))
        return replace(batch, frozen=frozen)

    @override
    @torch.no_grad()
    def log_probs(self, batch: Batch, networks: Networks) -> Tensor:
        policy = networks.distribution(_unroll(batch, networks).parameters, batch.step_masks)
        return _log_probs(batch, policy, networks)

    @override
    @torch.no_grad()
    def measured(self, batch: Batch, log_probs: Tensor, group: Group) -> Batch:
        if not self.measures:
            return batch

        def of_all(values: Tensor) -> Tensor:
            counted = values.masked_fill(~batch.valid, torch.nan).flatten()
            return torch.cat(group.gather(counted))

        log_rhos = of_all(log_probs - batch.behaviour_log_prob)
        return replace(batch, measured=self.chain.measure(log_rhos, of_all(_log_gaps(batch))))

    @property
    def measures(self) -> bool:  # type: ignore[override]
        """Whether a corrector looks at all steps of an update together."""
        return self.chain.measures

    @property
    def splits(self) -> bool:  # type: ignore[override]
        """Whether a corrector reads the parts of the ratios."""
        return "log_gaps" in self.chain.needs

    def _forward(self, batch: Batch, networks: Networks) -> tuple[Outputs, Correction]:
        output = _unroll(batch, networks)
        policy = networks.distribution(output.parameters, batch.step_masks)
        log_probs = _log_probs(batch, policy, networks)
        values, mode_values = learned_values(output, batch.actions), None
        if networks.values_actions:
            leaves = _acted_on(batch)
            means, _ = output.parameters.chunk(2, -1)
            [values] = networks.action_values(leaves, batch.actions.tanh())
            [mode_values] = networks.action_values(leaves, means.tanh(), fixed=True)
        frozen = batch.frozen
        if frozen is None:
            estimates = _estimates(batch, output, policy, networks)
            correction = self._correct(batch, policy, log_probs.detach(), estimates, networks)
            frozen = FrozenCorrection(correction, log_probs.detach(), values.detach())
        correction, proximal = frozen.correction, frozen.values
        if networks.target_moments is not None:
            # the loss regresses in units of the statistics, whose tensors have no gradient
            mean, std = networks.target_moments
            values, proximal = (values - mean) / std, (proximal - mean) / std
            correction = replace(correction, targets=(correction.targets - mean) / std)
        made = Outputs(policy, log_probs, values, frozen.log_probs, proximal, mode_values)
        return made, correction

    def _figures(
        self,
        batch: Batch,
        networks: Networks,
        outputs: Outputs,
        log_rhos: Tensor,
        correction: Correction,
    ) -> dict[str, Tensor]:
        """`[T, B]` by name, whose sums over the valid steps are reported beside those of the loss.

        Among them KL(μ ‖ π) of each step, from μ's parameters or else estimated from the action
        taken. The estimate ρ − 1 − log ρ is never negative, and its mean over the actions of μ is
        the divergence (k3 of Schulman, "Approximating KL Divergence", 2020).
        """
        found = dict(correction.metrics)
        if batch.behaviour_parameters is None:
            found["behaviour_kl_estimate"] = _k3(log_rhos)
        else:
            behaviour = networks.distribution(batch.behaviour_parameters, batch.step_masks)
            # of equal policies rounding may give less than 0
            found["behaviour_kl"] = behaviour.kl(outputs.distribution).clamp(min=0.0)
        if correction.step_exponent:
            found[STEP_EXPONENT] = torch.full_like(log_rhos, correction.step_exponent)
        return found | _parts(batch, log_rhos)

    @torch.no_grad()
    def _correct(
        self,
        batch: Batch,
        policy: TorchDistribution,
        log_probs: Tensor,
        estimates: Estimates,
        networks: Networks,
    ) -> Correction:
        kl = None
        if "kl" in self.chain.needs and batch.behaviour_parameters is not None:
            kl = policy.kl(networks.distribution(batch.behaviour_parameters, batch.step_masks))
        actions_are_numbers = batch.actions.is_floating_point()
        correction = self.chain.correct(
            CorrectionInput(
                **vars(estimates),
                actions=batch.actions if estimates.q_next is not None else None,
                rewards=self.algorithm.rewards(batch, self.config),
                discounts=batch.discounts_of(self.config.discount),
                done=batch.terminated | batch.truncated,
                log_rhos=log_probs - batch.behaviour_log_prob,
                log_pi=log_probs,
                kl=kl,
                behaviour_parameters=batch.behaviour_parameters,
                behaviour_probs=None if actions_are_numbers else batch.behaviour_log_prob.exp(),
                log_gaps=_log_gaps(batch),
                valid=batch.valid,
            ),
            batch.measured,
        )
        return replace(correction, advantage_scale=networks.advantage_scale)


def _k3(log_ratios: Tensor) -> Tensor:
    """ρ − 1 − log ρ."""
    # expm1: ρ − 1 would lose the digits of a ratio near 1
    return log_ratios.clamp(max=MAX_LOG_RHO).expm1() - log_ratios


def _parts(batch: Batch, log_rhos: Tensor) -> dict[str, Tensor]:
    """Of each step whose version's weights are kept, how far the ratio's two parts are from 1."""
    if batch.acting_log_prob is None:
        return {}
    known, gaps = ~batch.acting_log_prob.isnan(), _log_gaps(batch)
    parts = {"gap_kl": _k3(gaps), "drift_kl": _k3(log_rhos - gaps).masked_fill(~known, 0.0)}
    return {**parts, "split_share": known.float()}


def _acted_on(batch: Batch) -> Mapping[str, Tensor]:
    """The observations of the T steps."""
    return {name: leaf[: len(batch.actions)] for name, leaf in batch.observations.items()}


def _unroll(batch: Batch, networks: Networks) -> PolicyOutput[Tensor]:
    return networks.unroll(_acted_on(batch), batch.state, batch.starts[:-1])


def _log_probs(batch: Batch, policy: TorchDistribution, networks: Networks) -> Tensor:
    """Log-probabilities of the actions; those of μ for a deterministic policy: ratios are 1."""
    if networks.values_actions:
        return batch.behaviour_log_prob
    return policy.log_prob(batch.actions)


def _log_gaps(batch: Batch) -> Tensor:
    """The logarithm of the implementation gap, `[T, B]`, finite; 0 where it is not known."""
    if batch.acting_log_prob is None:
        return torch.zeros_like(batch.behaviour_log_prob)
    gaps = (batch.acting_log_prob - batch.behaviour_log_prob).clamp(-MAX_LOG_RHO, MAX_LOG_RHO)
    return gaps.nan_to_num(0.0)


@torch.no_grad()
def _estimates(
    batch: Batch, output: PolicyOutput[Tensor], policy: TorchDistribution, networks: Networks
) -> Estimates:
    leaves = {name: leaf[-1] for name, leaf in batch.observations.items()}
    last = networks.step(leaves, zeroed_state(output.state, batch.starts[-1]))
    masks = None if batch.masks is None else batch.masks[-1]
    return estimates_of(output, policy, last, networks.distribution(last.parameters, masks))


def standardised(correction: Correction, valid: Tensor, group: Group = ALONE) -> Correction:
    """`correction` with advantages less their mean, and the scale 1 / their standard deviation.

    Over a whole batch, not over each minibatch as some do: then all its updates, and minibatches of
    any size, weigh a step alike. Nothing waits for the device. Deviations below what float32 can
    resolve of the targets, whose differences to values advantages are, count as rounding.

    Args:
        valid: `[T, B]` bool, the steps that count, as far as the correction keeps them.
        group: the ranks whose batches are one.
    """
    learned = valid if correction.kept is None else valid & correction.kept
    # in double precision equal advantages have no deviation
    advantages = correction.advantages.double()
    mine = (Moments.masked(each, learned) for each in (advantages, correction.targets))
    counted, targets = joined_moments(group, list(mine))
    size = (targets.variance + targets.mean.square()).sqrt()
    scale = 1.0 / at_least(counted.variance.sqrt(), RESOLUTION * size)
    return replace(
        correction, advantages=(advantages - counted.mean).float(), advantage_scale=scale
    )
