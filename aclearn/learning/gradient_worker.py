"""A trainer worker's part: the gradient of one batch, on a copy of the weights."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from aclearn.config import LossConfig
from aclearn.learning.batch import Batch, assemble_batch, cut_columns
from aclearn.learning.losses.actor_critic import actor_critic_loss
from aclearn.learning.staging import HOST, PinnedStaging, Staging
from aclearn.policies import Architecture
from aclearn.policies.network import PolicyNetwork
from aclearn.telemetry import part
from aclearn.types import Unroll
from correctors import (
    CorrectionInput,
    CorrectorChain,
    ImportanceSampling,
    VTrace,
    clipped_fraction,
    importance_weights,
)

#: Samples that are differentiated at a time. Larger chunks leave the cache, smaller ones pay the
#: framework's overhead a call.
CHUNK_SAMPLES = 320


@dataclass(frozen=True)
class GradientSums:
    """What a gradient comes with: sums over the valid steps of its batch.

    Attributes:
        policy: −log π(a) · weighted advantage.
        value: ½ (target − value)².
        entropy: of π.
        rho: importance ratios, not clipped.
        rho_square: their squares.
        clipped: number of ratios above ρ̄.
        advantage_square: squared weighted advantages.
        steps: number of valid steps.
    """

    policy: float
    value: float
    entropy: float
    rho: float
    rho_square: float
    clipped: float
    advantage_square: float
    steps: int


class GradientWorker:
    """Differentiates batches on its own copy of the weights; one thread at a time.

    On a GPU its batches and its gradients are made in a stream of its own, and the copy of the
    weights in the stream of the weights, the current one of the thread. Who raised is not used
    again: what it was doing may still be going on.

    Args:
        architecture: of the policy.
        loss: discount, bars and costs.
        device: where it computes; on a GPU in a stream of its own.
        amp_dtype: autocast dtype, None for fp32.
        channels_last: memory layout of the convolutions.
        compiled: run the network through torch.compile.

    Attributes:
        network: the copy, with the gradients of the last batch.
        loss_scale: factor in those gradients (fp16's; else 1).
    """

    def __init__(
        self,
        architecture: Architecture,
        *,
        loss: LossConfig,
        device: torch.device,
        amp_dtype: torch.dtype | None = None,
        channels_last: bool = True,
        compiled: bool = False,
    ) -> None:
        self._loss, self._device, self._amp_dtype = loss, device, amp_dtype
        self.network = place(PolicyNetwork(architecture, seed=0), device, channels_last)
        if compiled:
            self.network.compile()
        self._parameters: list[Tensor] = list(self.network.parameters())
        self._stream: torch.cuda.Stream | None = None
        self._staging: Staging = HOST
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._staging = PinnedStaging(device)
            for parameter in self._parameters:
                # Made in the current stream and used in the worker's: when a worker that failed is
                # thrown away, its memory must not be given to others before that use has ended.
                parameter.record_stream(self._stream)
        self._chain = (
            CorrectorChain()
            .add(VTrace(rho_bar=loss.rho_bar, c_bar=loss.c_bar, lambda_=loss.lambda_))
            .add(ImportanceSampling(rho_bar=loss.pg_rho_bar))
        )
        self._advantage_scale = 1.0
        self.loss_scale = 1.0

    def refresh(
        self, weights: list[Tensor], *, advantage_scale: float = 1.0, loss_scale: float = 1.0
    ) -> None:
        """Copy `weights`, in the order of the network's parameters; nobody may write to them now.

        Args:
            weights: of the target policy.
            advantage_scale: factor of the advantages in the policy loss.
            loss_scale: factor of the loss, for fp16 gradients that would vanish.
        """
        # In the stream of `weights`, where their next update comes after it. Nothing reads the copy
        # now: `differentiate` has waited for what did.
        with torch.no_grad():
            torch._foreach_copy_(self._parameters, weights)
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
        self._advantage_scale, self.loss_scale = advantage_scale, loss_scale

    def assemble(self, unrolls: Sequence[Unroll], *, frame_stack: int) -> Batch:
        """The unrolls side by side as a batch for this worker alone, on its device.

        On a GPU it is still on its way when this returns.

        Raises:
            ValueError: unrolls of different lengths.
        """
        with self._on_stream():
            return assemble_batch(unrolls, frame_stack=frame_stack, staging=self._staging)

    def differentiate(self, batch: Batch) -> GradientSums:
        """Leave the gradient of the batch's mean loss, times `loss_scale`, in the network.

        Args:
            batch: one that `assemble` made, or that was made in the current stream before the last
                `refresh`.
        """
        self.network.zero_grad(set_to_none=True)
        length = batch.actions.shape[0]
        count = -(-length * batch.width // CHUNK_SAMPLES) if self._stream is None else 1
        with self._on_stream():
            parts = [
                self._differentiate_chunk(batch, columns)
                for columns in cut_columns(batch.width, count)
            ]
            with part("device"):
                # waits for the stream, so that gradients and sums are there for any other one, and
                # nobody reads the batch or the weights any more: on a GPU, forward and backward
                # have only been asked for so far, and this is where their time goes
                sums = torch.stack(parts).sum(0).tolist()
        policy, value, entropy, rho, rho_square, clipped, square = sums
        return GradientSums(policy, value, entropy, rho, rho_square, clipped, square, batch.steps)

    def gradients(self) -> list[Tensor | None]:
        """The gradients of the last batch in the order of the parameters."""
        return [parameter.grad for parameter in self._parameters]

    def _on_stream(self) -> contextlib.AbstractContextManager[object]:
        """Enqueue in the worker's stream, on its device; nothing on a CPU."""
        return torch.cuda.stream(self._stream) if self._stream else contextlib.nullcontext()

    def _differentiate_chunk(self, batch: Batch, columns: slice) -> Tensor:
        with part("forward"):
            loss, sums = self._forward(batch, columns)
        with part("backward"):
            loss.backward()  # type: ignore[no-untyped-call]
        return sums

    def _forward(self, batch: Batch, columns: slice) -> tuple[Tensor, Tensor]:
        """The scaled mean loss of the columns, and the sums that `GradientSums` is made of."""
        observations = batch.observations[:, columns]
        actions, valid = batch.actions[:, columns], batch.valid[:, columns]
        length, width = actions.shape
        with torch.autocast(
            self._device.type, self._amp_dtype, enabled=self._amp_dtype is not None
        ):
            logits, values = self.network(observations[:-1].flatten(0, 1))
            with torch.no_grad():
                _, last_values = self.network(observations[-1])
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
        mean = loss.total / max(1, batch.steps)
        scaled = mean * self.loss_scale if self.loss_scale != 1.0 else mean
        chunk_steps = valid.sum()
        rhos = importance_weights(log_rhos, rho_bar=None).masked_fill(~valid, 0.0)
        sums = torch.stack(
            [
                loss.policy.detach(),
                loss.value.detach(),
                loss.entropy.detach(),
                rhos.sum(),
                rhos.square().sum(),
                clipped_fraction(log_rhos, self._loss.rho_bar, valid) * chunk_steps,
                advantages.masked_fill(~valid, 0.0).square().sum(),
            ]
        )
        return scaled, sums


def place(network: PolicyNetwork, device: torch.device, channels_last: bool) -> PolicyNetwork:
    """The network on `device`, its convolutions laid out channels-last where asked."""
    network.to(device)
    if channels_last and network.architecture.convolves:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network
