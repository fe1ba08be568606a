"""The learner: one update of the target policy from one batch."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aclearn.config import LossConfig, OptimiserConfig
from aclearn.errors import CheckpointError
from aclearn.learning.batch import Batch, cut_columns
from aclearn.learning.loss import actor_critic_loss
from aclearn.learning.optimiser import learning_rate, make_optimiser
from aclearn.policies import Architecture
from aclearn.policies.network import PolicyNetwork, load_tensors, tensors_of
from correctors import (
    CorrectionInput,
    CorrectorChain,
    ImportanceSampling,
    VTrace,
    clipped_fraction,
    importance_weights,
)

#: Samples that one worker differentiates at a time. Larger chunks leave the cache, smaller ones
#: pay the framework's overhead a call.
CHUNK_SAMPLES = 320
#: Memory of the running mean square of advantages: about a hundred updates.
_ADVANTAGE_DECAY = 0.99
#: What an optimiser keeps of each weight.
_OPTIMISER_STATE = {
    "adam": {"step", "exp_avg", "exp_avg_sq"},
    "rmsprop": {"step", "square_avg"},
}


@dataclass(frozen=True)
class UpdateReport:
    """What one update did; losses and entropy are means over the valid steps.

    Attributes:
        applied: False when the gradient was not finite and the weights stayed as they were.
    """

    applied: bool
    policy_loss: float
    value_loss: float
    entropy: float
    gradient_norm: float
    effective_sample_share: float
    clipped_rho_share: float
    learning_rate: float

    def gauges(self) -> dict[str, float]:
        """The finite numbers by name, as the metrics name them."""
        values = {
            "policy_loss": self.policy_loss,
            "value_loss": self.value_loss,
            "entropy": self.entropy,
            "gradient_norm": self.gradient_norm,
            "effective_sample_share": self.effective_sample_share,
            "clipped_rho_share": self.clipped_rho_share,
            "learning_rate": self.learning_rate,
        }
        return {name: value for name, value in values.items() if np.isfinite(value)}


class Learner:
    """The target policy, its optimiser, and the update.

    With several workers a batch is cut along B; each worker differentiates its chunks on a replica
    that shares the weights and owns its gradients, then the gradients are added and applied once.
    The result is the gradient of the whole batch.

    Args:
        architecture: of the policy.
        loss: discount, bars and costs.
        optimiser: kind, learning rate and schedule.
        device: where it learns.
        amp_dtype: autocast dtype, None for fp32.
        workers: threads that differentiate at the same time (1 on a GPU).
        channels_last: memory layout of the convolutions.
        compiled: run the network through torch.compile.
        seed: of the first weights.
    """

    def __init__(
        self,
        architecture: Architecture,
        *,
        loss: LossConfig,
        optimiser: OptimiserConfig,
        device: torch.device,
        amp_dtype: torch.dtype | None = None,
        workers: int = 1,
        channels_last: bool = True,
        compiled: bool = False,
        seed: int | None = None,
    ) -> None:
        self.architecture = architecture
        self._loss, self._optimiser_config = loss, optimiser
        self._device, self._amp_dtype = device, amp_dtype
        self.network = self._place(PolicyNetwork(architecture, seed=seed), channels_last)
        self._replicas = [self.network]
        for _ in range(workers - 1):
            replica = self._place(PolicyNetwork(architecture, seed=0), channels_last)
            pairs = zip(replica.parameters(), self.network.parameters(), strict=True)
            for mine, shared in pairs:
                mine.data = shared.data
            self._replicas.append(replica)
        if compiled:
            for replica in self._replicas:
                replica.compile()
        self._optimiser = make_optimiser(self.network.parameters(), optimiser)
        self._scaler = torch.amp.GradScaler(device.type, enabled=amp_dtype is torch.float16)
        # sum and weight of the squared advantages, older ones decayed
        self._advantage_squares = self._advantage_weight = 0.0
        self._pool = ThreadPoolExecutor(workers, "learner") if workers > 1 else None
        self._chain = (
            CorrectorChain()
            .add(VTrace(rho_bar=loss.rho_bar, c_bar=loss.c_bar, lambda_=loss.lambda_))
            .add(ImportanceSampling(rho_bar=loss.pg_rho_bar))
        )

    def update(self, batch: Batch, *, learned_steps: int) -> UpdateReport:
        """One gradient step on `batch`.

        A gradient that is not finite is thrown away: weights and optimiser stay as they were.

        Args:
            batch: at least one valid step.
            learned_steps: agent steps learned before, for the learning-rate schedule.
        """
        for replica in self._replicas:
            replica.zero_grad(set_to_none=True)
        sums = self._differentiate(batch)
        self._add_gradients()
        self._scaler.unscale_(self._optimiser)
        limit = self._optimiser_config.max_grad_norm
        norm = torch.nn.utils.clip_grad_norm_(
            self.network.parameters(), limit if limit > 0 else float("inf")
        )
        rate = learning_rate(self._optimiser_config, learned_steps)
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        finite = bool(torch.isfinite(norm))
        if finite:
            self._scaler.step(self._optimiser)
        self._scaler.update()
        totals = sums.sum(0).tolist()
        policy_loss, value_loss, entropy, rho_sum, rho_square_sum, clipped, squares = totals
        steps = max(1, batch.steps)
        if finite:
            self._advantage_squares = _ADVANTAGE_DECAY * self._advantage_squares + squares
            self._advantage_weight = _ADVANTAGE_DECAY * self._advantage_weight + batch.steps
        return UpdateReport(
            applied=finite,
            policy_loss=policy_loss / steps,
            value_loss=value_loss / steps,
            entropy=entropy / steps,
            gradient_norm=float(norm),
            # Kish's (Σρ)² / Σρ², as a share of the steps; the sums add up over chunks
            effective_sample_share=rho_sum**2 / max(rho_square_sum, 1e-30) / steps,
            clipped_rho_share=clipped / steps,
            learning_rate=rate,
        )

    def close(self) -> None:
        """End the worker threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """A copy of the weights, to publish."""
        return tensors_of(self.network)

    def state_tensors(self) -> dict[str, NDArray[Any]]:
        """Weights and optimiser state under flat names, to save."""
        saved: dict[str, NDArray[Any]] = {
            f"weights/{name}": array for name, array in self.tensors().items()
        }
        for name, parameter in self.network.named_parameters():
            for key, value in self._optimiser.state.get(parameter, {}).items():
                # contiguous: moments of channels-last weights have their memory order
                array = value.detach().cpu().contiguous().numpy().copy()
                saved[f"optimiser/{name}/{key}"] = array
        advantages = [self._advantage_squares, self._advantage_weight]
        saved["normaliser/advantages"] = np.array(advantages, np.float64)
        return saved

    def load_state_tensors(self, saved: dict[str, NDArray[Any]]) -> None:
        """Continue from what `state_tensors` gave.

        Raises:
            CheckpointError: the tensors do not fit this architecture or this optimiser.
        """
        weights = {
            name.removeprefix("weights/"): array
            for name, array in saved.items()
            if name.startswith("weights/")
        }
        try:
            load_tensors(self.network, weights)
        except ValueError as error:
            raise CheckpointError(f"the checkpoint is of another architecture: {error}") from error
        squares, weight = saved.get("normaliser/advantages", np.zeros(2)).tolist()
        self._advantage_squares, self._advantage_weight = squares, weight
        for name, parameter in self.network.named_parameters():
            prefix = f"optimiser/{name}/"
            state = {
                key.removeprefix(prefix): torch.from_numpy(np.array(array))
                for key, array in saved.items()
                if key.startswith(prefix)
            }
            kind = self._optimiser_config.kind
            if state and set(state) != _OPTIMISER_STATE[kind]:
                raise CheckpointError(
                    f"the checkpoint is of another optimiser than optimiser.kind: {kind}: "
                    f"{name} has {sorted(state)}, expected {sorted(_OPTIMISER_STATE[kind])}"
                )
            for key, value in state.items():
                if value.ndim and value.shape != parameter.shape:
                    raise CheckpointError(f"{prefix}{key}: expected shape {parameter.shape}")
                if value.ndim:
                    # the moments must lie in memory as the weights do
                    moment = torch.empty_like(parameter)
                    moment.copy_(value)
                    state[key] = moment
            if "step" in state and self._optimiser.defaults.get("fused"):
                # a fused optimiser counts where it computes, others on the CPU
                state["step"] = state["step"].to(parameter.device)
            if state:
                self._optimiser.state[parameter] = state

    def _place(self, network: PolicyNetwork, channels_last: bool) -> PolicyNetwork:
        network.to(self._device)
        if channels_last and network.architecture.convolutions:
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return network

    def _differentiate(self, batch: Batch) -> Tensor:
        length = batch.actions.shape[0]
        if self._device.type == "cuda":
            chunks = [slice(0, batch.width)]
        else:
            count = max(len(self._replicas), -(-length * batch.width // CHUNK_SAMPLES))
            chunks = cut_columns(batch.width, count)
        if self._pool is None:
            parts = [self._differentiate_chunk(self.network, batch, chunk) for chunk in chunks]
        else:
            # one task a replica, each taking chunks until none is left: who is slowed down by
            # another process takes fewer
            waiting = iter(chunks)  # next() on a list iterator is atomic
            tasks = [
                self._pool.submit(self._differentiate_chunks, replica, batch, waiting)
                for replica in self._replicas
            ]
            parts = [part for task in tasks for part in task.result()]
        return torch.stack(parts)

    def _differentiate_chunks(
        self, network: PolicyNetwork, batch: Batch, waiting: Any
    ) -> list[Tensor]:
        return [self._differentiate_chunk(network, batch, chunk) for chunk in waiting]

    def _differentiate_chunk(self, network: PolicyNetwork, batch: Batch, columns: slice) -> Tensor:
        observations = batch.observations[:, columns]
        actions, valid = batch.actions[:, columns], batch.valid[:, columns]
        length, width = actions.shape
        with torch.autocast(
            self._device.type, self._amp_dtype, enabled=self._amp_dtype is not None
        ):
            logits, values = network(observations[:-1].flatten(0, 1))
            with torch.no_grad():
                _, last_values = network(observations[-1])
        log_probs = torch.log_softmax(logits.float(), dim=-1).view(length, width, -1)
        values = values.float().view(length, width)
        taken = log_probs.gather(2, actions.unsqueeze(2)).squeeze(2)
        log_rhos = taken.detach() - batch.behaviour_log_probs[:, columns]
        terminated = batch.terminated[:, columns]
        correction = self._chain.correct(
            CorrectionInput(
                values=values.detach(),
                next_values=torch.cat([values.detach()[1:], last_values.float().unsqueeze(0)]),
                rewards=batch.rewards[:, columns],
                discounts=self._loss.discount * (~terminated).float(),
                done=terminated | batch.truncated[:, columns],
                log_rhos=log_rhos,
            )
        )
        advantages = correction.weighted_advantages
        loss = actor_critic_loss(
            log_probs=log_probs,
            taken_log_probs=taken,
            values=values,
            targets=correction.targets,
            advantages=advantages * self._advantage_scale,
            valid=valid,
            value_cost=self._loss.value_cost,
            entropy_cost=self._loss.entropy_cost,
        )
        self._scaler.scale(loss.total / max(1, batch.steps)).backward()  # type: ignore[no-untyped-call]
        chunk_steps = valid.sum()
        rhos = importance_weights(log_rhos, rho_bar=None).masked_fill(~valid, 0.0)
        return torch.stack(
            [
                loss.policy,
                loss.value,
                loss.entropy,
                rhos.sum(),
                rhos.square().sum(),
                clipped_fraction(log_rhos, self._loss.rho_bar, valid) * chunk_steps,
                advantages.masked_fill(~valid, 0.0).square().sum(),
            ]
        )

    @property
    def _advantage_scale(self) -> float:
        """1 / root mean square of the advantages up to the last update; 1 before the first."""
        if not self._loss.normalise_advantages or self._advantage_squares <= 0.0:
            return 1.0
        return float((self._advantage_weight / self._advantage_squares) ** 0.5)

    def _add_gradients(self) -> None:
        for replica in self._replicas[1:]:
            for shared, mine in zip(self.network.parameters(), replica.parameters(), strict=True):
                if mine.grad is None:
                    continue
                shared.grad = mine.grad if shared.grad is None else shared.grad.add_(mine.grad)
