"""All updates of a batch in fixed memory, without a wait for the device: one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from aclearn.config import OptimiserConfig
from aclearn.learning.batch import Batch
from aclearn.learning.device_minibatches import DeviceMinibatches
from aclearn.learning.gradient_worker import GradientWorker
from aclearn.learning.learner_state import LearnerState
from aclearn.learning.moments import Moments
from aclearn.learning.objective import Objective
from aclearn.learning.optimiser import clip_gradients
from aclearn.learning.update_report import GradientSums, UpdateReport
from aclearn.policies.cuda_stream import CudaStream, captured

#: Memory of the running mean square of advantages: about a hundred updates.
ADVANTAGE_DECAY = 0.99
#: Columns of a row behind the sums of the gradient: norm, rate, steps, new steps, finite.
_OWN = 5


class DeviceReport(NamedTuple):
    """One update: the number of its pass, its valid steps, the new ones of them, its figures."""

    pass_number: int
    steps: int
    new_steps: int
    report: UpdateReport


class DeviceUpdates:
    """The updates of every minibatch, in passes; `Learner.apply` with its decisions on the device.

    A gradient that is not finite is discarded, as its minibatch is for further passes.

    Args:
        batch: in fixed memory.
        prepare: as `Learner.prepare`.
        worker: for this alone; in place.
        state: of the learner; the optimiser is Adam, fused.
        objective: of the learner.
        config: of the optimiser.
        count: of minibatches in a pass.
        passes: over the batch.
        broken: gives `[]` bool, whether the batch must not be learned; None: it may.

    Attributes:
        ended: whether the loss has left passes out in the last run, after `results`.
    """

    def __init__(
        self,
        batch: Batch,
        *,
        prepare: Callable[[Batch, GradientWorker], Batch],
        worker: GradientWorker,
        state: LearnerState,
        objective: Objective,
        config: OptimiserConfig,
        count: int,
        passes: int,
        broken: Callable[[], Tensor] | None = None,
    ) -> None:
        device = batch.actions.device
        self._batch, self._prepare, self._worker = batch, prepare, worker
        self._learner, self._objective, self._config = state, objective, config
        self._count, self._passes, self._broken = count, passes, broken

        def scalar(dtype: torch.dtype = torch.float64) -> Tensor:
            return torch.zeros((), dtype=dtype, device=device)

        self._learned, self._squares, self._weight = scalar(), scalar(), scalar()
        self._rate, self._seed = scalar(torch.float32), scalar(torch.int64)
        self._asked_to_end, self._ended = scalar(torch.bool), scalar(torch.bool)
        self._refused = scalar(torch.bool)
        self._rows = torch.zeros(0, device=device)
        self._names: list[str] = []
        self._replay: Callable[[], object] | None = None
        self.ended = False

    def begin(self, learned_steps: int, *, seed: int) -> None:
        """Set the counters that a run begins with.

        Args:
            learned_steps: for the schedule of the learning rate.
            seed: of the orders of single steps; below 2⁶².
        """
        self._learned.fill_(learned_steps)
        self._squares.fill_(self._learner.advantage_squares)
        self._weight.fill_(self._learner.advantage_weight)
        self._seed.fill_(seed)

    def run(self, stream: CudaStream | None = None) -> None:
        """All updates; in a stream on a GPU, the current one, as one CUDA graph."""
        if self._replay is None:
            kept = self._memory() if stream is not None else []
            copies = [tensor.clone() for tensor in kept]
            self._replay = captured(stream, self._run, what="update")
            if stream is not None:  # a capture runs the updates before
                known = {id(tensor) for tensor in kept}
                for tensor in self._memory():
                    if id(tensor) not in known:
                        tensor.zero_()  # of an optimiser that had made no update
                for tensor, copy in zip(kept, copies, strict=True):
                    tensor.copy_(copy)
        self._replay()

    def results(self) -> list[DeviceReport]:
        """The reports of the last run; waits for the device.

        Minibatches without valid steps, and those left out of a pass, have no report.
        """
        own = torch.stack([self._squares, self._weight, self._ended.double()])
        rows, (squares, weight, ended) = self._rows.tolist(), own.tolist()
        self._learner.advantage_squares, self._learner.advantage_weight = squares, weight
        self.ended = ended > 0
        reports = []
        for number, row in enumerate(rows):
            norm, rate, steps, new_steps, finite = row[-_OWN:]
            if steps == 0:
                continue
            sums = GradientSums.of(self._names, row[:-_OWN], int(steps))
            report = UpdateReport.of(sums, applied=finite > 0, gradient_norm=norm, rate=rate)
            index = number * self._passes // len(rows)
            reports.append(DeviceReport(index, int(steps), int(new_steps), report))
        return reports

    @torch.no_grad()
    def _memory(self) -> list[Tensor]:
        """All that an update changes and the next one reads."""
        return [*self._learner.memory, self._learned, self._squares, self._weight]

    def _run(self) -> None:
        self._asked_to_end.zero_()
        self._ended.zero_()
        if self._broken is not None:
            self._refused = self._broken()
        batch = self._prepare(self._batch, self._worker)
        minibatches = DeviceMinibatches(batch, count=self._count, seed=self._seed)
        rows: list[Tensor] = []
        observed: list[Mapping[str, Moments]] = []
        for index in range(self._passes):
            for part, refused in minibatches.of_pass(index):
                row, applied = self._update(part, refused, first=index == 0)
                rows.append(row)
                if index == 0:
                    seen = replace(part, valid=part.valid & applied)
                    observed.append(self._learner.normalisers.moments_of(seen, waits=False))
        for moments in observed:
            self._learner.normalisers.add_observations(moments)
        self._rows = torch.stack(rows)

    def _update(self, part: Batch, refused: Tensor, *, first: bool) -> tuple[Tensor, Tensor]:
        """One update; the row of its figures, float64, and whether it changed the weights."""
        learner, parameters = self._learner, self._learner.parameters
        steps = part.valid.sum().masked_fill(refused, 0)
        if not first:
            self._ended |= self._asked_to_end & (steps > 0)
            steps = steps.masked_fill(self._asked_to_end, 0)
        self._worker.refresh(parameters, advantage_scale=self._advantage_scale())
        self._names, sums = self._worker.differentiate_in_place(part, steps=steps.clamp(min=1))
        for parameter, gradient in zip(parameters, self._worker.gradients(), strict=True):
            parameter.grad = gradient
        with torch.no_grad():
            norm = clip_gradients(parameters, self._config.max_grad_norm)
            finite, sums = torch.isfinite(norm), sums.double()
            applied = finite & (steps > 0) & ~self._refused
            self._set_rate()
            self._step(skipped=~applied)
            if learner.target is not None:
                learner.target.follow(parameters, applied)
            refused |= ~finite
            self._ask_to_end(sums, steps, applied)
            new = steps
            if part.new is not None:
                new = (part.valid & part.new).sum().masked_fill(steps == 0, 0)
            if first:
                self._learned += new.masked_fill(~applied, 0)
            self._note_advantages(sums[-1], steps, applied)
            own = [norm, self._rate, steps, new, finite]
            return torch.cat([sums, torch.stack([each.double() for each in own])]), applied

    def _advantage_scale(self) -> Tensor | float:
        """As `Learner._advantage_scale`."""
        if not self._objective.config.normalise_advantages:
            return 1.0 / self._learner.normalisers.target_std
        scale = (self._weight / self._squares).sqrt()
        return torch.where(self._squares > 0.0, scale, torch.zeros_like(scale))

    def _set_rate(self) -> None:
        """As `OptimiserConfig.rate_after`, by the steps that are learned before this update."""
        config = self._config
        self._rate.fill_(config.learning_rate)
        if config.schedule != "constant" and config.schedule_steps is not None:
            self._rate.mul_((1.0 - self._learned / config.schedule_steps).clamp(min=0.0))

    def _step(self, *, skipped: Tensor) -> None:
        """A step of the optimiser, which leaves everything as it was where it is skipped."""
        optimiser, capturing = self._learner.optimiser, False
        if self._rate.is_cuda:
            capturing = torch.cuda.is_current_stream_capturing()
        for group in optimiser.param_groups:
            # torch warns of `capturable` steps that are not captured
            group["lr"], group["capturable"] = self._rate, capturing
        optimiser.found_inf = skipped.float()  # type: ignore[attr-defined]  # as a GradScaler does
        optimiser.step()
        optimiser.found_inf = None  # type: ignore[attr-defined]
        for group in optimiser.param_groups:
            group["capturable"] = False

    def _ask_to_end(self, sums: Tensor, steps: Tensor, applied: Tensor) -> None:
        """As `Learner.ends_batch` after an update that changed the weights."""
        means = dict(zip(self._names, sums / steps.clamp(min=1), strict=False))
        asked = self._objective.loss.ends_batch(means, self._objective.config)
        if asked is not False:
            self._asked_to_end |= applied & asked

    def _note_advantages(self, squares: Tensor, steps: Tensor, applied: Tensor) -> None:
        """Older squares decay, unless the new ones are not finite or nothing is applied."""
        kept = applied & torch.isfinite(squares)
        for total, new in ((self._squares, squares), (self._weight, steps.double())):
            total.copy_(torch.where(kept, ADVANTAGE_DECAY * total + new, total))
