"""The learner: one update of the target policy from one batch."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aclearn.config import OptimiserConfig
from aclearn.learning.batch import Batch
from aclearn.learning.device_updates import ADVANTAGE_DECAY, DeviceUpdates
from aclearn.learning.gradient_worker import CHUNK_SAMPLES, GradientWorker, place
from aclearn.learning.learner_state import LearnerState
from aclearn.learning.moments import Moments
from aclearn.learning.objective import Objective
from aclearn.learning.optimiser import clip_gradients
from aclearn.learning.parallel_worker import ParallelWorker
from aclearn.learning.update_report import GradientSums, UpdateReport
from aclearn.policies import Architecture
from aclearn.policies.network import PolicyNetwork, tensors_of
from aclearn.telemetry import OTHER_WORKERS, part, waiting


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
        published: the weights that actors get, by the names of `architecture.acting()` and in
            their order; see `lock`.
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
        self.device, self._amp_dtype, self._chunk_samples = device, amp_dtype, chunk_samples
        self._channels_last, self._compiled = channels_last, compiled
        self.network = place(PolicyNetwork(architecture, seed=seed), device, channels_last)
        named = dict(self.network.named_parameters())
        self.published: dict[str, Tensor] = {
            name: named[name] for name in architecture.acting().tensor_shapes()
        }
        scaler = torch.amp.GradScaler(device.type, enabled=amp_dtype is torch.float16)
        if scaler.is_enabled():
            # it creates its scale with the first loss, which only workers have
            scaler.scale(torch.zeros((), device=device))
        self._state = LearnerState(
            self.network, optimiser=optimiser, loss=objective.config, scaler=scaler
        )
        self.lock = threading.RLock()

    @cached_property
    def own_worker(self) -> GradientWorker:
        """The default worker of `update`, for one thread."""
        return self.make_worker()

    @property
    def freezes(self) -> bool:
        """Whether the updates of a batch share one correction."""
        return not self._objective.loss.recomputes_targets

    def make_worker(self, threads: int = 1, *, in_place: bool = False) -> GradientWorker:
        """A worker for one thread, as `GradientWorker`; on the CPU it may have several."""
        settings: dict[str, Any] = {
            "objective": self._objective,
            "device": self.device,
            "amp_dtype": self._amp_dtype,
            "channels_last": self._channels_last,
            "compiled": self._compiled,
            "chunk_samples": self._chunk_samples,
        }
        if threads > 1:
            return ParallelWorker(self.architecture, threads=threads, **settings)
        return GradientWorker(self.architecture, in_place=in_place, **settings)

    def update(
        self, batch: Batch, *, learned_steps: int, worker: GradientWorker | None = None
    ) -> UpdateReport:
        """One gradient step on `batch`: `differentiate`, then `apply`.

        Args:
            batch: at least one valid step.
            learned_steps: agent steps learned before, for the learning-rate schedule.
            worker: of the calling thread; None: `own_worker`.
        """
        worker = worker or self.own_worker
        return self.apply(worker, self.differentiate(batch, worker), learned_steps=learned_steps)

    def prepare(self, batch: Batch, worker: GradientWorker) -> Batch:
        """`batch` before its first update, with a frozen correction where the loss asks for one.

        Where returns are normalised, the batch's targets enter the statistics here, so that no
        target of an update is far outside them (van Hasselt et al. 2016, proposition 2).
        """
        recomputed = self._objective.loss.recomputes_targets
        normalisers, target = self._state.normalisers, self._state.target
        if recomputed and not normalisers.of_targets:
            return batch
        with self.turn(), part("refresh"):
            worker.refresh(self._state.parameters if target is None else target.weights)
        frozen = worker.freeze(batch)
        assert frozen.frozen is not None
        if not normalisers.of_targets:
            return frozen
        targets = frozen.frozen.correction.targets
        with self.turn():
            normalisers.add_targets(targets, batch.valid, waits=not worker.in_place)
            scale = 1.0 / normalisers.target_std
        if recomputed:
            return batch
        if self._objective.config.normalise_advantages:
            return frozen  # by themselves
        return replace(frozen, frozen=frozen.frozen.scaled(scale))

    def observed(self, batch: Batch) -> dict[str, Moments]:
        """The moments of the observations of learned steps, for `note_learned`."""
        observed = self._state.normalisers.moments_of(batch)
        if observed and self.device.type == "cuda":
            # another stream's next batch may be in the same memory
            torch.cuda.current_stream(self.device).synchronize()
        return observed

    def note_learned(self, observed: Iterable[Mapping[str, Moments]]) -> None:
        """Take the observations of learned steps into the statistics that the next version has.

        Not before their updates: the target policy would differ from the policy that acted.
        """
        with self.turn():
            for moments in observed:
                self._state.normalisers.add_observations(moments)

    def differentiate(self, batch: Batch, worker: GradientWorker) -> GradientSums:
        """Copy the newest weights to `worker` and differentiate there, with the lock free."""
        with self.turn(), part("refresh"):
            worker.refresh(
                self._state.parameters,
                advantage_scale=self._advantage_scale,
                loss_scale=self._state.scaler.get_scale(),
            )
        return worker.differentiate(batch)

    def ends_batch(self, report: UpdateReport) -> bool:
        """Whether the loss leaves out the remaining epochs of a batch after this update of it."""
        return bool(self._objective.loss.ends_batch(report.metrics, self._objective.config))

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
        state, optimiser, scaler = self._state, self._state.optimiser, self._state.scaler
        with self.lock:
            for parameter, gradient in zip(state.parameters, worker.gradients(), strict=True):
                parameter.grad = gradient
                if gradient is not None and gradient.is_cuda:
                    # The worker's next batch must not reuse this memory before this update ends.
                    gradient.record_stream(torch.cuda.current_stream(self.device))
            self._unscale(worker.loss_scale)
            norm = float(clip_gradients(state.parameters, self._optimiser_config.max_grad_norm))
            finite = math.isfinite(norm)
            rate = self._optimiser_config.rate_after(learned_steps)
            for group in optimiser.param_groups:
                group["lr"] = rate
            if finite:
                scaler.step(optimiser)
                if state.target is not None:
                    state.target.follow(state.parameters)
            scaler.update()
            # an overflowed sum would stay in the mean for ever and make each scale 0
            if finite and math.isfinite(sums.advantage_squares):
                kept = ADVANTAGE_DECAY
                state.advantage_squares *= kept
                state.advantage_squares += sums.advantage_squares
                state.advantage_weight = kept * state.advantage_weight + sums.steps
        return UpdateReport.of(sums, applied=finite, gradient_norm=norm, rate=rate)

    @property
    def waits_for_each_update(self) -> str | None:
        """The setting that keeps `device_updates` from being used; None: nothing does."""
        if self._amp_dtype is torch.float16:
            return "trainer.amp: fp16"
        kind = self._optimiser_config.kind
        return None if kind == "adam" else f"optimiser.kind: {kind}"

    def device_updates(
        self,
        batch: Batch,
        *,
        worker: GradientWorker,
        count: int,
        passes: int,
        broken: Callable[[], Tensor] | None = None,
    ) -> DeviceUpdates:
        """All updates of `batch`, which lies in fixed memory, without a wait for the device.

        Only where `waits_for_each_update` is None.

        Args:
            batch: of a policy without state.
            worker: for these alone; in place.
            count: of minibatches.
            passes: over the batch.
            broken: gives `[]` bool on the device, whether the batch must not be learned.
        """
        return DeviceUpdates(
            batch,
            prepare=self.prepare,
            worker=worker,
            state=self._state,
            objective=self._objective,
            config=self._optimiser_config,
            count=count,
            passes=passes,
            broken=broken,
        )

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """A copy of the weights; all of one version."""
        with self.lock:
            return tensors_of(self.network)

    def state_tensors(self) -> dict[str, NDArray[Any]]:
        """Weights, optimiser state and running means under flat names, for a checkpoint."""
        with self.lock:
            return self._state.saved()

    def load_state_tensors(self, saved: Mapping[str, NDArray[Any]]) -> None:
        """Restore the tensors of `state_tensors`, as `LearnerState.load`."""
        self._state.load(saved)

    def _unscale(self, used: float) -> None:
        """Remove the loss scale; another worker's update may have changed it since."""
        scaler = self._state.scaler
        newest = scaler.get_scale()
        if used != newest:
            gradients = [p.grad for p in self._state.parameters if p.grad is not None]
            torch._foreach_mul_(gradients, newest / used)
        scaler.unscale_(self._state.optimiser)

    @property
    def _advantage_scale(self) -> float | Tensor:
        """1 / root mean square of the advantages up to the last update; 0 before the first.

        Their unit is unknown then, and one update of the critic alone costs less than a step of
        the policy that is a million times too large. Frozen ones are normalised by their batch
        instead. Where they are not normalised, 1 / standard deviation of normalised returns, or 1.
        """
        state = self._state
        if not self._objective.config.normalise_advantages:
            return 1.0 / state.normalisers.target_std
        if not self._objective.loss.recomputes_targets:
            return 1.0
        if state.advantage_squares <= 0.0:
            return 0.0
        return float((state.advantage_weight / state.advantage_squares) ** 0.5)
