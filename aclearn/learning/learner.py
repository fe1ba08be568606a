"""The learner: one update of the target policy from one batch."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aclearn.config import OptimiserConfig, TargetNetworkConfig
from aclearn.errors import CheckpointError
from aclearn.learning.batch import Batch
from aclearn.learning.device_snapshot import DeviceSnapshot
from aclearn.learning.device_updates import ADVANTAGE_DECAY, DeviceReport, DeviceUpdates
from aclearn.learning.gradient_worker import CHUNK_SAMPLES, GradientSums, GradientWorker, place
from aclearn.learning.losses import Loss
from aclearn.learning.moments import Moments
from aclearn.learning.normalisers import Normalisers
from aclearn.learning.objective import Objective
from aclearn.learning.optimiser import clip_gradients, learning_rate, make_optimiser
from aclearn.learning.parallel_worker import ParallelWorker
from aclearn.learning.target_network import TargetNetwork
from aclearn.learning.update_report import UpdateReport
from aclearn.policies import Architecture
from aclearn.policies.network import PolicyNetwork, load_tensors, tensors_of
from aclearn.telemetry import OTHER_WORKERS, part, waiting

#: Mutable state of torch's GradScaler.
_SCALER_STATE = ("scale", "_growth_tracker")
#: State of each weight by kind of optimiser.
_OPTIMISER_STATE = {
    "adam": {"step", "exp_avg", "exp_avg_sq"},
    "rmsprop": {"step", "square_avg"},
    "rmsprop_tf": {"square_avg"},
}


class Learner:
    """The target policy, its optimiser, and the update.

    Workers differentiate at the same time, each on its own copy of the weights. Their gradients are
    applied in turn, whole, under `lock`, so other workers' updates may come between a gradient
    and its application.

    Args:
        architecture: of the policy.
        objective: the loss and the corrector chain.
        optimiser: kind, learning rate and schedule.
        device: where it learns.
        amp_dtype: autocast dtype, None for fp32.
        channels_last: memory layout of the convolutions.
        compiled: run the network through torch.compile.
        chunk_samples: as of `GradientWorker`.
        seed: of the first weights.

    Attributes:
        network: the target policy; read it under `lock` while workers run.
        parameters: its weights in the order of `architecture.tensor_shapes`; see `lock`.
        lock: guards weights, optimiser and running means; reentrant.
    """

    def __init__(
        self,
        architecture: Architecture,
        *,
        objective: Objective,
        optimiser: OptimiserConfig,
        device: torch.device,
        amp_dtype: torch.dtype | None = None,
        channels_last: bool = True,
        compiled: bool = False,
        chunk_samples: int = CHUNK_SAMPLES,
        seed: int | None = None,
    ) -> None:
        self.architecture = architecture
        self._objective, self._optimiser_config = objective, optimiser
        self._device, self._amp_dtype = device, amp_dtype
        self._channels_last, self._compiled = channels_last, compiled
        self._chunk_samples = chunk_samples
        self.network = place(PolicyNetwork(architecture, seed=seed), device, channels_last)
        self._parameters: list[Tensor] = list(self.network.parameters())
        named = dict(self.network.named_parameters())
        self.parameters: list[Tensor] = [named[name] for name in architecture.tensor_shapes()]
        self._normalisers = Normalisers(self.network)
        self._optimiser = make_optimiser(self.network.parameters(), optimiser)
        self._scaler = torch.amp.GradScaler(device.type, enabled=amp_dtype is torch.float16)
        if self._scaler.is_enabled():
            # it creates its scale with the first loss, which only workers have
            self._scaler.scale(torch.zeros((), device=device))
        loss = objective.config
        self._target: TargetNetwork | None = None
        if isinstance(loss, TargetNetworkConfig):
            every, rate = loss.target_update_every, loss.target_update_rate
            self._target = TargetNetwork(self._parameters, every=every, rate=rate)
        # sum and weight of the squared advantages, older ones decayed
        self._advantage_squares = self._advantage_weight = 0.0
        self.lock = threading.RLock()

    @cached_property
    def own_worker(self) -> GradientWorker:
        """The default worker of `update`, for one thread."""
        return self.make_worker()

    def make_worker(self, threads: int = 1) -> GradientWorker:
        """A worker for one thread; on the CPU it may have several of its own."""
        settings: dict[str, Any] = {
            "objective": self._objective,
            "device": self._device,
            "amp_dtype": self._amp_dtype,
            "channels_last": self._channels_last,
            "compiled": self._compiled,
            "chunk_samples": self._chunk_samples,
        }
        if threads > 1:
            return ParallelWorker(self.architecture, threads=threads, **settings)
        return GradientWorker(self.architecture, **settings)

    def update(
        self, batch: Batch, *, learned_steps: int, worker: GradientWorker | None = None
    ) -> UpdateReport:
        """One gradient step on `batch`: `differentiate`, then `apply`.

        Args:
            batch: at least one valid step.
            learned_steps: agent steps learned before, for the learning-rate schedule.
            worker: of the calling thread; None: `own_worker`.
        """
        if worker is None:
            worker = self.own_worker
        return self.apply(worker, self.differentiate(batch, worker), learned_steps=learned_steps)

    def prepare(self, batch: Batch, worker: GradientWorker) -> Batch:
        """`batch` before its first update, with a frozen correction where the loss asks for one.

        Where returns are normalised, the batch's targets enter the statistics here, so that no
        target of an update is far outside them (van Hasselt et al. 2016, proposition 2).
        """
        recomputed = self._objective.loss.recomputes_targets
        if recomputed and not self._normalisers.of_targets:
            return batch
        self._refresh(worker, target=self._target)
        frozen = worker.freeze(batch)
        assert frozen.frozen is not None
        if not self._normalisers.of_targets:
            return frozen
        with self.turn():
            self._normalisers.add_targets(frozen.frozen.correction.targets[batch.valid])
            scale = self._advantage_scale
        if recomputed:
            return batch
        if self._objective.config.normalise_advantages:
            return frozen  # by themselves
        return replace(frozen, frozen=frozen.frozen.scaled(scale))

    def observed(self, batch: Batch) -> dict[str, Moments]:
        """The moments of the observations of learned steps, for `note_learned`."""
        return self._normalisers.moments_of(batch)

    def note_learned(self, observed: Iterable[Mapping[str, Moments]]) -> None:
        """Take the observations of learned steps into the statistics that the next version has.

        Not before their updates: the target policy would differ from the policy that acted.
        """
        with self.turn():
            for moments in observed:
                self._normalisers.add_observations(moments)

    def differentiate(self, batch: Batch, worker: GradientWorker) -> GradientSums:
        """Copy the newest weights to `worker` and differentiate there, with the lock free."""
        self._refresh(worker)
        return worker.differentiate(batch)

    def ends_batch(self, report: UpdateReport) -> bool:
        """Whether the loss leaves out the remaining epochs of a batch after this update of it."""
        return self._objective.loss.ends_batch(report.metrics, self._objective.config)

    def _refresh(self, worker: GradientWorker, target: TargetNetwork | None = None) -> None:
        """Copy the newest weights, or those of the target network, to `worker`."""
        with self.turn(), part("refresh"):
            worker.refresh(
                self._parameters if target is None else target.weights,
                advantage_scale=self._advantage_scale,
                loss_scale=self._scaler.get_scale(),
            )

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Hold `lock` for a worker; time in which others hold it is measured as waiting."""
        if not self.lock.acquire(blocking=False):
            with waiting(OTHER_WORKERS):
                self.lock.acquire()
        try:
            yield
        finally:
            self.lock.release()

    def apply(
        self, worker: GradientWorker, sums: GradientSums, *, learned_steps: int
    ) -> UpdateReport:
        """One optimiser step with the gradient of `worker`.

        A gradient that is not finite is discarded: weights and optimiser stay as they were.
        """
        with self.lock:
            for parameter, gradient in zip(self._parameters, worker.gradients(), strict=True):
                parameter.grad = gradient
                if gradient is not None and gradient.is_cuda:
                    # The worker's next batch must not reuse this memory before this update ends.
                    gradient.record_stream(torch.cuda.current_stream(self._device))
            self._unscale(worker.loss_scale)
            limit = self._optimiser_config.max_grad_norm
            norm = clip_gradients(self._parameters, limit if limit > 0 else math.inf)
            finite = math.isfinite(norm)
            rate = learning_rate(self._optimiser_config, learned_steps)
            for group in self._optimiser.param_groups:
                group["lr"] = rate
            if finite:
                self._scaler.step(self._optimiser)
                if self._target is not None:
                    self._target.follow(self._parameters)
            self._scaler.update()
            # an overflowed sum would stay in the mean for ever and make each scale 0
            if finite and math.isfinite(sums.advantage_squares):
                kept = ADVANTAGE_DECAY
                self._advantage_squares *= kept
                self._advantage_squares += sums.advantage_squares
                self._advantage_weight = kept * self._advantage_weight + sums.steps
        return UpdateReport.of(sums, applied=finite, gradient_norm=norm, rate=rate)

    def device_updates(self, batch: Batch, *, count: int, passes: int) -> DeviceUpdates | None:
        """All updates of `batch`, which lies in fixed memory, without a wait for the device.

        None where something is computed on the host between them: frozen targets, statistics of
        returns or observations, a target network, half precision, another optimiser than Adam, or
        a loss that ends batches.

        Args:
            batch: in minibatches of neighbouring environments.
            count: of minibatches.
            passes: over the batch.
        """
        loss = self._objective.loss
        plain = (
            loss.recomputes_targets
            and type(loss).ends_batch is Loss.ends_batch
            and not self._normalisers.any
            and self._target is None
            and self._amp_dtype is None
            and isinstance(self._optimiser, torch.optim.Adam)
        )
        if not plain:
            return None
        return DeviceUpdates(
            batch.cut(count),
            worker=self.make_worker(),
            parameters=self._parameters,
            optimiser=self._optimiser,
            config=self._optimiser_config,
            normalises=self._objective.config.normalise_advantages,
            passes=passes,
        )

    def begin_updates(self, updates: DeviceUpdates, *, learned_steps: int) -> None:
        """Give `updates` the counters that the next run begins with."""
        updates.begin(learned_steps, self._advantage_squares, self._advantage_weight)

    def end_updates(self, updates: DeviceUpdates) -> list[DeviceReport]:
        """The reports of the last run, in order; waits for the device."""
        reports, self._advantage_squares, self._advantage_weight = updates.results()
        return reports

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """A copy of the weights; all of one version."""
        with self.lock:
            return tensors_of(self.network)

    def snapshot(self) -> Mapping[str, NDArray[np.float32]]:
        """The weights to publish; from a GPU they are copied to the host on the first read."""
        if self._device.type == "cpu":
            return self.tensors()
        with self.lock:
            return DeviceSnapshot(dict(self.network.named_parameters()))

    def state_tensors(self) -> dict[str, NDArray[Any]]:
        """Weights, optimiser state and running means under flat names, for a checkpoint."""
        with self.lock:
            saved: dict[str, NDArray[Any]] = {
                f"weights/{name}": array for name, array in self.tensors().items()
            }
            for name, parameter in self.network.named_parameters():
                for key, value in self._optimiser.state.get(parameter, {}).items():
                    # contiguous: moments of channels-last weights have their memory order
                    array = value.detach().cpu().contiguous().numpy().copy()
                    saved[f"optimiser/{name}/{key}"] = array
            if self._target is not None:
                names = [name for name, _ in self.network.named_parameters()]
                for name, weight in zip(names, self._target.weights, strict=True):
                    saved[f"target/{name}"] = weight.cpu().contiguous().numpy().copy()
                saved["target_updates"] = np.array(self._target.updates, np.int64)
            advantages = [self._advantage_squares, self._advantage_weight]
            saved["normaliser/advantages"] = np.array(advantages, np.float64)
            saved |= self._normalisers.state()
            if self._scaler.is_enabled():
                scaler = self._scaler.state_dict()
                saved["scaler"] = np.array([scaler[key] for key in _SCALER_STATE], np.float64)
            return saved

    def load_state_tensors(self, saved: dict[str, NDArray[Any]]) -> None:
        """Restore the tensors of `state_tensors`; a missing target network begins at the weights.

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
        if self._target is not None:
            self._load_target(self._target, saved)
        squares, weight = saved.get("normaliser/advantages", np.zeros(2)).tolist()
        self._advantage_squares, self._advantage_weight = squares, weight
        self._normalisers.load_state(saved)
        if self._scaler.is_enabled() and "scaler" in saved:
            scale, growth_tracker = saved["scaler"].tolist()
            mine = dict(zip(_SCALER_STATE, (scale, int(growth_tracker)), strict=True))
            self._scaler.load_state_dict(self._scaler.state_dict() | mine)
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

    def _load_target(self, target: TargetNetwork, saved: Mapping[str, NDArray[Any]]) -> None:
        target.set(self._parameters)
        if "target_updates" in saved:
            names = [name for name, _ in self.network.named_parameters()]
            weights = [torch.from_numpy(np.array(saved[f"target/{name}"])) for name in names]
            target.set(weights, updates=int(saved["target_updates"]))

    def _unscale(self, used: float) -> None:
        """Remove the loss scale; another worker's update may have changed it since."""
        newest = self._scaler.get_scale()
        if used != newest:
            gradients = [p.grad for p in self._parameters if p.grad is not None]
            torch._foreach_mul_(gradients, newest / used)
        self._scaler.unscale_(self._optimiser)

    @property
    def _advantage_scale(self) -> float:
        """1 / root mean square of the advantages up to the last update; 1 before the first.

        Frozen ones are normalised by their batch instead. Where they are not normalised, 1 /
        standard deviation of normalised returns, or 1.
        """
        if not self._objective.config.normalise_advantages:
            return 1.0 / self._normalisers.target_std
        if not self._objective.loss.recomputes_targets or self._advantage_squares <= 0.0:
            return 1.0
        return float((self._advantage_weight / self._advantage_squares) ** 0.5)
