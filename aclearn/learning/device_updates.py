"""All updates of a batch in fixed memory, without a wait for the device: one CUDA graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from aclearn.config import OptimiserConfig
from aclearn.learning.batch import Batch
from aclearn.learning.gradient_worker import GradientSums, GradientWorker
from aclearn.learning.update_report import UpdateReport
from aclearn.policies.cuda_stream import CudaStream, captured

#: Memory of the running mean square of advantages: about a hundred updates.
ADVANTAGE_DECAY = 0.99
#: Columns of a row behind the sums of the gradient.
_NORM, _RATE, _STEPS, _FINITE = range(4)


class DeviceReport(NamedTuple):
    """One update: the number of its pass, its valid steps, and its figures."""

    pass_number: int
    steps: int
    report: UpdateReport


class DeviceUpdates:
    """The updates of every minibatch, in passes; `Learner.apply` with its decisions on the device.

    A gradient that is not finite is discarded, as its minibatch is for further passes.

    Args:
        parts: minibatches, in fixed memory.
        worker: for this alone.
        parameters: weights of the target policy.
        optimiser: of these; Adam, fused.
        config: of the optimiser.
        normalises: whether advantages are divided by their running root mean square.
        passes: over the batch.
    """

    def __init__(
        self,
        parts: Sequence[Batch],
        *,
        worker: GradientWorker,
        parameters: list[Tensor],
        optimiser: torch.optim.Optimizer,
        config: OptimiserConfig,
        normalises: bool,
        passes: int,
    ) -> None:
        device = parameters[0].device
        self._parts, self._worker, self._parameters = parts, worker, parameters
        self._optimiser, self._config = optimiser, config
        self._normalises, self._passes = normalises, passes

        def scalar(dtype: torch.dtype = torch.float64) -> Tensor:
            return torch.zeros((), dtype=dtype, device=device)

        self._learned, self._squares, self._weight = scalar(), scalar(), scalar()
        self._rate = scalar(torch.float32)
        self._left_out = torch.zeros(len(parts), dtype=torch.bool, device=device)
        self._rows = torch.zeros(0, device=device)
        self._names: list[str] = []
        self._replay: Callable[[], object] | None = None

    @property
    def most(self) -> int:
        """Largest number of updates of a run."""
        return self._passes * len(self._parts)

    def begin(self, learned_steps: int, squares: float, weight: float) -> None:
        """Set the counters that a run begins with.

        Args:
            learned_steps: for the schedule of the learning rate.
            squares: decayed sum of squared advantages.
            weight: decayed number of these.
        """
        self._learned.fill_(learned_steps)
        self._squares.fill_(squares)
        self._weight.fill_(weight)

    def run(self, stream: CudaStream | None = None) -> None:
        """All updates; in a stream on a GPU, the current one, as one CUDA graph."""
        if self._replay is None:
            kept = self._state() if stream is not None else []
            copies = [tensor.clone() for tensor in kept]
            self._replay = captured(stream, self._run, what="update")
            if stream is not None:  # a capture runs the updates before
                known = {id(tensor) for tensor in kept}
                for tensor in self._state():
                    if id(tensor) not in known:
                        tensor.zero_()  # of an optimiser that had made no update
                for tensor, copy in zip(kept, copies, strict=True):
                    tensor.copy_(copy)
        self._replay()

    def results(self) -> tuple[list[DeviceReport], float, float]:
        """The reports of the last run, and both sums of advantages; waits for the device.

        Minibatches without valid steps, and those left out of a pass, have no report.
        """
        own = torch.stack([self._squares, self._weight])
        rows, (squares, weight) = self._rows.tolist(), own.tolist()
        reports = []
        for number, row in enumerate(rows):
            norm, rate, steps, finite = row[-4:]
            *metrics, ratios, ratio_squares, advantage_squares = row[:-4]
            if steps == 0:
                continue
            named = dict(zip(self._names, metrics, strict=True))
            sums = GradientSums(named, ratios, ratio_squares, advantage_squares, int(steps))
            report = UpdateReport.of(sums, applied=finite > 0, gradient_norm=norm, rate=rate)
            reports.append(DeviceReport(number // len(self._parts), int(steps), report))
        return reports, squares, weight

    @torch.no_grad()
    def _state(self) -> list[Tensor]:
        """All that an update changes."""
        moments = [value for state in self._optimiser.state.values() for value in state.values()]
        own = [self._learned, self._squares, self._weight]
        return [*(weight.detach() for weight in self._parameters), *moments, *own]

    def _run(self) -> None:
        self._left_out.zero_()
        rows = []
        for index in range(self._passes):
            for number, part in enumerate(self._parts):
                rows.append(self._update(part, self._left_out[number], first=index == 0))
        self._rows = torch.stack(rows)

    def _update(self, part: Batch, left_out: Tensor, *, first: bool) -> Tensor:
        """One update; the row of its figures, float64."""
        steps = part.valid.sum().masked_fill(left_out, 0)
        self._names, sums = self._worker.differentiate_in_place(
            part, self._parameters, steps=steps.clamp(min=1), advantage_scale=self._scale()
        )
        for parameter, gradient in zip(self._parameters, self._worker.gradients(), strict=True):
            parameter.grad = gradient
        with torch.no_grad():
            limit = self._config.max_grad_norm
            norm = torch.nn.utils.clip_grad_norm_(
                self._parameters, limit if limit > 0 else math.inf
            )
            finite = torch.isfinite(norm)
            self._set_rate()
            self._step(skipped=~finite | (steps == 0))
            left_out |= ~finite
            applied = finite & (steps > 0)
            if first:
                self._learned += steps.masked_fill(~applied, 0)
            self._note_advantages(sums[-1].double(), steps, applied)
            own = [norm.double(), self._rate.double(), steps.double(), finite.double()]
            return torch.cat([sums.double(), torch.stack(own)])

    def _scale(self) -> Tensor:
        """As `Learner._advantage_scale`."""
        one = torch.ones_like(self._squares)
        if not self._normalises:
            return one.float()
        scale = (self._weight / self._squares).sqrt()
        return torch.where(self._squares > 0.0, scale, one).float()

    def _set_rate(self) -> None:
        """As `optimiser.learning_rate`, by the steps that are learned before this update."""
        config = self._config
        self._rate.fill_(config.learning_rate)
        if config.schedule != "constant" and config.schedule_steps is not None:
            self._rate.mul_((1.0 - self._learned / config.schedule_steps).clamp(min=0.0))

    def _step(self, *, skipped: Tensor) -> None:
        """A step of the optimiser, which leaves everything as it was where it is skipped."""
        optimiser, capturing = self._optimiser, False
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

    def _note_advantages(self, squares: Tensor, steps: Tensor, applied: Tensor) -> None:
        """Older squares decay, unless the new ones are not finite or nothing is applied."""
        kept = applied & torch.isfinite(squares)
        for total, new in ((self._squares, squares), (self._weight, steps.double())):
            total.copy_(torch.where(kept, ADVANTAGE_DECAY * total + new, total))
