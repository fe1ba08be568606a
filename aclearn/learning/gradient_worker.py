"""A worker of the trainer: the gradient of one batch on a copy of the weights."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from aclearn.algorithms import Outputs
from aclearn.distributions import TorchDistribution, torch_distribution_of
from aclearn.learning.advantages import standardised
from aclearn.learning.batch import Batch, FrozenCorrection, assemble_batch
from aclearn.learning.critic import Estimates, estimates_of, learned_values
from aclearn.learning.objective import Objective
from aclearn.learning.staging import HOST, PinnedStaging, Staging
from aclearn.learning.update_report import GradientSums
from aclearn.policies import Architecture
from aclearn.policies.network import PolicyNetwork, target_moments
from aclearn.policies.policy_module import zeroed_state
from aclearn.telemetry import part
from aclearn.types import ObservationSpec, PolicyOutput, Unroll
from correctors import Correction, CorrectionInput, importance_weights
from correctors.importance import MAX_LOG_RHO

#: Samples that are differentiated at a time, of images. Larger chunks exceed the cache, smaller
#: ones pay the framework's overhead per call.
CHUNK_SAMPLES = 320


class GradientWorker:
    """Differentiates batches on its own copy of the weights; one thread at a time.

    On a GPU, batches and gradients are computed in the worker's stream, and the weights are copied
    in the current stream of the thread. A worker that raised must not be used again: its kernels
    may still be running. One that works in place computes in the current stream and, but for
    `differentiate`, waits for nothing, so that its work can be a part of a CUDA graph.

    Args:
        architecture: of the policy.
        objective: the loss and the corrector chain.
        device: where it computes.
        amp_dtype: autocast dtype, None for fp32.
        channels_last: memory layout of the convolutions.
        compiled: run the network through torch.compile.
        chunk_samples: samples that are differentiated at a time on a CPU.
        in_place: has no stream of its own.

    Attributes:
        in_place: as given.
        network: the copy, with the gradients of the last batch.
        loss_scale: factor in those gradients (fp16's; else 1).
        check: called before each chunk; an exception of it ends the work.
    """

    def __init__(
        self,
        architecture: Architecture,
        *,
        objective: Objective,
        device: torch.device,
        amp_dtype: torch.dtype | None = None,
        channels_last: bool = True,
        compiled: bool = False,
        chunk_samples: int = CHUNK_SAMPLES,
        in_place: bool = False,
    ) -> None:
        self._objective, self._device, self._amp_dtype = objective, device, amp_dtype
        self.in_place = in_place
        self._distribution = torch_distribution_of(architecture.action_spec)
        self.network = place(PolicyNetwork(architecture, seed=0), device, channels_last)
        self._values_actions = architecture.values_actions
        if compiled:
            self.network.compile()
        self._chunk_samples = chunk_samples
        self._parameters: list[Tensor] = list(self.network.parameters())
        self._target_moments = target_moments(self.network)
        self._stream: torch.cuda.Stream | None = None
        self._staging: Staging = HOST
        if device.type == "cuda" and not in_place:
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._staging = PinnedStaging(device)
            for parameter in self._parameters:
                # The memory of a discarded worker must not be reused before its stream has ended.
                parameter.record_stream(self._stream)
        self._advantage_scale: float | Tensor = 1.0
        self.loss_scale = 1.0
        self.check: Callable[[], None] = lambda: None

    def watch(self, check: Callable[[], None]) -> None:
        """Set `check`, in every thread."""
        self.check = check

    def close(self) -> None:
        """End the worker's own threads, if any."""

    def refresh(
        self,
        weights: list[Tensor],
        *,
        advantage_scale: float | Tensor = 1.0,
        loss_scale: float = 1.0,
    ) -> None:
        """Copy `weights`, in the order of the network's parameters; no thread may write them now.

        Args:
            weights: of the target policy.
            advantage_scale: factor of the advantages in the policy loss.
            loss_scale: factor of the loss, against underflow of fp16 gradients.
        """
        # In the stream of `weights`, before their next update. `differentiate` has waited for all
        # readers of the copy.
        with torch.no_grad():
            torch._foreach_copy_(self._parameters, weights)
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
        self._advantage_scale, self.loss_scale = advantage_scale, loss_scale

    def assemble(self, unrolls: Sequence[Unroll], observation: ObservationSpec) -> Batch:
        """`assemble_batch` on this worker's device; a GPU copy may still be in progress."""
        with self._on_stream():
            return assemble_batch(unrolls, observation=observation, staging=self._staging)

    def freeze(self, batch: Batch) -> Batch:
        """`batch` with a correction by the current weights, which all its updates use."""
        with torch.no_grad(), self._on_stream(), part("forward"):
            chunks = []
            for chunk in self._cut(batch):
                output = self._unroll(chunk)
                estimates = self._estimates(chunk, output, self._policy(chunk, output.parameters))
                values = learned_values(output, chunk.actions)
                chunks.append((output.parameters, values, estimates))
            parameters, each_values, parts = zip(*chunks, strict=True)
            policy = self._policy(batch, torch.cat(parameters, dim=1))
            log_probs = self._log_probs(batch, policy)
            correction = self._correct(batch, policy, log_probs, Estimates.side_by_side(parts))
            if self._objective.config.normalise_advantages:
                correction = standardised(correction, batch.valid)
            frozen = FrozenCorrection(correction, log_probs, torch.cat(each_values, dim=1))
            if self._stream is not None:
                self._stream.synchronize()  # the next `refresh` overwrites the weights
        return replace(batch, frozen=frozen)

    def differentiate(self, batch: Batch, *, of: int | None = None) -> GradientSums:
        """Leave the gradient of the batch's mean loss, times `loss_scale`, in the network.

        Args:
            batch: one of `assemble`, or made in the current stream before the last `refresh`.
            of: valid steps of the mean, where `batch` is a part of an update's; None: its own.
        """
        for parameter in self._parameters:  # `zero_grad` takes 50 µs for a small network
            parameter.grad = None
        steps = max(1, batch.steps if of is None else of)
        with self._on_stream():
            parts = [self._differentiate_chunk(chunk, steps) for chunk in self._cut(batch)]
            with part("device"):
                # Waits for the stream: afterwards other streams may read the gradients and
                # overwrite batch and weights. On a GPU this includes forward and backward.
                each = [values for _, values in parts]
                sums = (torch.stack(each).sum(0) if len(each) > 1 else each[0]).tolist()
        return GradientSums.of(parts[0][0], sums, batch.steps)

    def differentiate_in_place(self, batch: Batch, *, steps: Tensor) -> tuple[list[str], Tensor]:
        """As `differentiate`, without a wait for the device, of a worker in place.

        The gradients stay in the same memory from call to call.

        Args:
            batch: of tensors whose shapes are the same at each call.
            steps: of the mean, at least 1.

        Returns:
            The names of the metrics, and their sums followed by the other sums of `GradientSums`.
        """
        self.network.zero_grad(set_to_none=False)
        return self._differentiate_chunk(batch, steps)

    def gradients(self) -> list[Tensor | None]:
        """The gradients of the last batch in the order of the parameters."""
        return [parameter.grad for parameter in self._parameters]

    def _on_stream(self) -> contextlib.AbstractContextManager[object]:
        return torch.cuda.stream(self._stream) if self._stream else contextlib.nullcontext()

    def _cut(self, batch: Batch) -> Iterator[Batch]:
        """The batch in chunks on a CPU, whole on a GPU."""
        samples = batch.actions.shape[0] * batch.width
        count = -(-samples // self._chunk_samples) if self._device.type == "cpu" else 1
        for chunk in batch.cut(count):
            self.check()
            yield chunk

    def _differentiate_chunk(self, chunk: Batch, steps: int | Tensor) -> tuple[list[str], Tensor]:
        """The names of the metrics, and their sums followed by the other sums of `GradientSums`."""
        with part("forward"):
            outputs, correction = self._forward(chunk)
            learned = chunk
            if correction.kept is not None:
                learned = replace(chunk, valid=chunk.valid & correction.kept, all_valid=False)
            total, metrics = self._objective.loss(
                learned, outputs, correction, self._objective.config
            )
            mean = total / steps
            scaled = mean * self.loss_scale if self.loss_scale != 1.0 else mean
            sums = {name: value.detach() for name, value in metrics.items()}
            log_rhos = outputs.log_probs.detach() - chunk.behaviour_log_prob
            ratios = chunk.of_valid(importance_weights(log_rhos, rho_bar=None))
            advantages = correction.weights * correction.advantages
            divergence = self._behaviour_kl(chunk, outputs, log_rhos)
            for name, of_steps in {**correction.metrics, **divergence}.items():
                sums[name] = chunk.of_valid(of_steps).sum()
            # float64: variances are differences of large sums, and float32 has no 1e-40
            targets = chunk.of_valid(correction.targets.detach()).double()
            before = chunk.of_valid(outputs.proximal_values).double()
            own = [
                *(total for each in (targets, targets - before) for total in _moments(each)),
                ratios.sum(),
                ratios.square().sum(),
                learned.of_valid(advantages).double().square().sum(),
            ]
            stacked = torch.stack([*sums.values(), *own])
        with part("backward"):
            scaled.backward()  # type: ignore[no-untyped-call]
        return list(sums), stacked

    def _behaviour_kl(self, batch: Batch, outputs: Outputs, log_rhos: Tensor) -> dict[str, Tensor]:
        """KL(μ ‖ π) of each step, from μ's parameters or else estimated from the action taken.

        The estimate ρ − 1 − log ρ is never negative, and its mean over the actions of μ is the
        divergence (k3 of Schulman, "Approximating KL Divergence", 2020).
        """
        with torch.no_grad():
            if batch.behaviour_parameters is None:
                # expm1: ρ − 1 would lose the digits of a ratio near 1
                above_one = log_rhos.clamp(max=MAX_LOG_RHO).expm1()
                return {"behaviour_kl_estimate": above_one - log_rhos}
            behaviour = self._policy(batch, batch.behaviour_parameters)
            # of equal policies rounding may give less than 0
            return {"behaviour_kl": behaviour.kl(outputs.distribution).clamp(min=0.0)}

    def _forward(self, batch: Batch) -> tuple[Outputs, Correction]:
        """The network's outputs, and the correction: the frozen one or a new one."""
        output = self._unroll(batch)
        policy = self._policy(batch, output.parameters)
        log_probs = self._log_probs(batch, policy)
        values, mode_values = learned_values(output, batch.actions), None
        if self._values_actions:
            values, mode_values = self._action_values(batch, output)
        frozen = batch.frozen
        if frozen is None:
            estimates = self._estimates(batch, output, policy)
            correction = self._correct(batch, policy, log_probs.detach(), estimates)
            frozen = FrozenCorrection(correction, log_probs.detach(), values.detach())
        correction, proximal = frozen.correction, frozen.values
        if self._target_moments is not None:
            # the loss regresses in units of the statistics, whose tensors have no gradient
            mean, std = self._target_moments
            values, proximal = (values - mean) / std, (proximal - mean) / std
            correction = replace(correction, targets=(correction.targets - mean) / std)
        made = Outputs(policy, log_probs, values, frozen.log_probs, proximal, mode_values)
        return made, correction

    def _log_probs(self, batch: Batch, policy: TorchDistribution) -> Tensor:
        """Of the actions taken; a deterministic policy has none, so that its ratios π/μ are 1."""
        if self._values_actions:
            return batch.behaviour_log_prob
        return policy.log_prob(batch.actions)

    def _action_values(self, batch: Batch, output: PolicyOutput[Tensor]) -> tuple[Tensor, Tensor]:
        """Q of the actions taken, and of the policy's mode with gradient for the policy alone."""
        length = len(batch.actions)
        leaves = {name: leaf[:length] for name, leaf in batch.observations.items()}
        means, _ = output.parameters.chunk(2, -1)
        with self._autocast():
            (taken,) = self.network.action_values(leaves, batch.actions.tanh())
            (mode,) = self.network.action_values(leaves, means.tanh(), fixed=True)
        return taken, mode

    def _unroll(self, batch: Batch) -> PolicyOutput[Tensor]:
        """The network's output for the batch's T steps."""
        length = len(batch.actions)
        leaves = {name: leaf[:length] for name, leaf in batch.observations.items()}
        with self._autocast():
            return self.network.unroll(leaves, batch.state, batch.starts[:-1])

    def _estimates(
        self, batch: Batch, output: PolicyOutput[Tensor], policy: TorchDistribution
    ) -> Estimates:
        leaves = {name: leaf[-1] for name, leaf in batch.observations.items()}
        with torch.no_grad(), self._autocast():
            last = self.network.step(leaves, zeroed_state(output.state, batch.starts[-1]))
        masks = None if batch.masks is None else batch.masks[-1]
        return estimates_of(output, policy, last, self._distribution(last.parameters, masks))

    def _autocast(self) -> contextlib.AbstractContextManager[object]:
        if self._amp_dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, self._amp_dtype)

    def _policy(self, batch: Batch, parameters: Tensor) -> TorchDistribution:
        return self._distribution(parameters, batch.step_masks)

    def _correct(
        self,
        batch: Batch,
        policy: TorchDistribution,
        log_probs: Tensor,
        estimates: Estimates,
    ) -> Correction:
        chain, kl = self._objective.chain, None
        if "kl" in chain.needs and batch.behaviour_parameters is not None:
            with torch.no_grad():
                kl = policy.kl(self._policy(batch, batch.behaviour_parameters))
        correction = chain.correct(
            CorrectionInput(
                **vars(estimates),
                actions=batch.actions if estimates.q_next is not None else None,
                rewards=batch.rewards,
                discounts=self._objective.config.discount * (~batch.terminated).float(),
                done=batch.terminated | batch.truncated,
                log_rhos=log_probs - batch.behaviour_log_prob,
                log_pi=log_probs,
                kl=kl,
                behaviour_parameters=batch.behaviour_parameters,
            )
        )
        return replace(correction, advantage_scale=self._advantage_scale)


def _moments(values: Tensor) -> tuple[Tensor, Tensor]:
    """The sums of values and of their squares."""
    return values.sum(), values.square().sum()


def place(network: PolicyNetwork, device: torch.device, channels_last: bool) -> PolicyNetwork:
    """Move the network to `device`, its convolutions to channels-last memory where asked."""
    network.to(device)
    if channels_last and network.architecture.convolves:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network
