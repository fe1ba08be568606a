"""The learner: the one way from a batch to the next version of the policy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aclearn.config import OptimiserConfig
from aclearn.learning.batch import Batch
from aclearn.learning.captured_updates import CapturedUpdates
from aclearn.learning.decisions import in_a_row, is_finite, readable, surely
from aclearn.learning.gradient_worker import GradientWorker
from aclearn.learning.learner_state import LearnerState, running_scale
from aclearn.learning.minibatches import Minibatches, most_parts, random_orders
from aclearn.learning.moments import Moments
from aclearn.learning.networks import place
from aclearn.learning.optimiser import clip_gradients, set_rate, step
from aclearn.learning.parallel_worker import ParallelWorker
from aclearn.learning.ranks import ALONE, Group, add_up, joined_moments, least
from aclearn.learning.stop_check import BatchStopped
from aclearn.learning.surrogate import ADVANTAGE_SQUARES, Objective
from aclearn.learning.update_report import Sums, UpdateReport, step_scale
from aclearn.policies import Architecture
from aclearn.policies.cuda_stream import CudaStream
from aclearn.policies.network import PolicyNetwork, tensors_of
from aclearn.telemetry import OTHER_WORKERS, part, waiting


class Learner:
    """The target policy, its optimiser, and the update.

    Workers differentiate at the same time, each on its own copy of the weights. Their gradients are
    applied in turn, whole, under `lock`, so other workers' updates may come between a gradient and
    its application. Decisions are tensors (`aclearn.learning.decisions`): a GPU is read after them.

    Args:
        objective: what is differentiated.
        optimiser: kind, learning rate and schedule.
        device: where it learns.
        group: the ranks whose batches make each update together: sums, counts and moments are of
            all, so that every rank makes the same one. Its workers step one at a time.
        max_updates: number of updates after which nothing changes any more; None: no bound.
        burn_in_steps: first steps of a batch that only bring the state up to date.
        seed: of the first weights and of the order of minibatches.

    Attributes:
        objective, optimiser_config, max_updates: as given; see `set`.
        settings: what `set` has set and `adopt` has put in force.
        wanted: what `set` has set.
        network: the target policy; read it under `lock` while workers run.
        published: the weights that actors get, by the names of `architecture.acting()` and in
            their order; see `lock`.
        state: all that updates change; see `lock`.
        lock: guards the state; reentrant.
        device: where it learns.
    """

    def __init__(
        self,
        architecture: Architecture,
        *,
        objective: Objective,
        optimiser: OptimiserConfig,
        device: torch.device,
        group: Group = ALONE,
        max_updates: int | None = None,
        burn_in_steps: int = 0,
        seed: int | None = None,
        channels_last: bool = True,
        **worker_options: Any,
    ) -> None:
        self.architecture = architecture
        self.objective, self.optimiser_config = objective, optimiser
        self.device, self.max_updates = device, max_updates
        self._group, self._burn_in_steps = group, burn_in_steps
        self.network = place(PolicyNetwork(architecture, seed=seed), device, channels_last)
        named = dict(self.network.named_parameters())
        self.published: dict[str, Tensor] = {
            name: named[name] for name in architecture.acting().tensor_shapes()
        }
        self.state = LearnerState(
            self.network, optimiser=optimiser, objective=objective, seed=seed or 0
        )
        self._worker_options = {
            "objective": objective,
            "device": device,
            "rng": self.state.generators["losses"],
            "channels_last": channels_last,
            "group": group,
            **worker_options,
        }
        self._captured: CapturedUpdates | None = None
        self.settings: dict[str, float] = {}
        self.wanted: dict[str, float] = {}
        self._never = torch.zeros((), dtype=torch.bool, device=device)
        self.lock = threading.RLock()

    @cached_property
    def own_worker(self) -> GradientWorker:
        """The default worker of `learn`, for one thread."""
        return self.make_worker()

    @property
    def freezes(self) -> bool:
        """Whether the updates of a batch share one correction."""
        return self.objective.freezes

    @property
    def splits(self) -> bool:
        """Whether a corrector reads the parts of the ratios."""
        return self.objective.splits

    def make_worker(
        self, threads: int = 1, *, captured: CudaStream | None = None
    ) -> GradientWorker:
        """A worker for one thread, as `GradientWorker`; on the CPU it may have several."""
        if threads > 1:
            return ParallelWorker(self.architecture, threads=threads, **self._worker_options)
        return GradientWorker(self.architecture, captured=captured, **self._worker_options)

    @property
    def has_entropy_cost(self) -> bool:
        """Whether the loss has an entropy bonus."""
        return hasattr(self.objective.config, "entropy_cost")

    def set(self, *, learning_rate: float | None = None, entropy_cost: float | None = None) -> None:
        """Learn with other numbers from the next `adopt` on; None leaves one as it is.

        Args:
            learning_rate: in place of `optimiser.learning_rate`; its schedule goes on.
            entropy_cost: in place of `loss.entropy_cost`; no effect where the loss has none.
        """
        with self.lock:
            given = {"learning_rate": learning_rate, "entropy_cost": entropy_cost}
            new = {name: each for name, each in given.items() if each is not None}
            self.wanted = {**self.wanted, **new}

    def adopt(self) -> None:
        """Put in force what was set; between batches, so that a repeated batch has one setting."""
        with self.lock:
            if self.settings == self.wanted:
                return
            self.settings = self.wanted
            if (rate := self.settings.get("learning_rate")) is not None:
                set_rate(self.state.optimiser, rate)
            entropy_cost = self.settings.get("entropy_cost")
            if entropy_cost is not None and self.has_entropy_cost:
                config = self.objective.config.model_copy(update={"entropy_cost": entropy_cost})
                self.objective = replace(self.objective, config=config)
                self._worker_options["objective"] = self.objective
            self._captured = None  # a CUDA graph has the numbers in it

    def learn(
        self,
        batch: Batch,
        worker: GradientWorker | None = None,
        note: Callable[[UpdateReport], None] = lambda report: None,
        *,
        minibatches: int = 1,
        epochs: int = 1,
    ) -> list[UpdateReport]:
        """Make the updates of a batch: of each minibatch in each pass, unless the loss ends it.

        A gradient that is not finite changes nothing, and its steps are not in further passes.
        Observations of learned steps enter the statistics behind the last update, so that all
        updates compare with the policy that acted.

        Args:
            batch: assembled by the worker, or in its stream.
            worker: of the calling thread; None: `own_worker`.
            note: gets the report of each update while `lock` is held, so that an account of it
                and the weights are of one moment.
            minibatches: number of parts, see `Minibatches`.
            epochs: number of passes.
        """
        worker = worker or self.own_worker
        orders = random_orders(batch, self.state.generators["minibatches"])
        reports: list[UpdateReport] = []

        def take(sums: Sums, values: list[float], own: list[float]) -> None:
            report = UpdateReport.of(sums.names, values, own, sums.errors)
            if report.steps > 0:
                reports.append(report)
                note(report)

        if worker.captured is None:
            # closed, and with it `lock` released, also where `note` raises
            with closing(self._updates(batch, worker, orders, minibatches, epochs)) as rows:
                for sums in rows:
                    take(sums, sums.values.tolist(), sums.own.tolist())
            return reports
        with self.turn(), part("update"):
            made = self._captured_updates(batch, worker, orders, minibatches, epochs)
            values = torch.stack([sums.values for sums in made]).tolist()  # waits for the device
            own = torch.stack([sums.own for sums in made]).tolist()
            for row in zip(made, values, own, strict=True):
                take(*row)
        return reports

    def _updates(
        self,
        batch: Batch,
        worker: GradientWorker,
        orders: Iterator[Tensor],
        minibatches: int,
        epochs: int,
    ) -> Generator[Sums, None, None]:
        """The figures of each update, while `lock` is held; nothing waits for a GPU."""
        asked_to_end = self._never
        observed: list[Mapping[str, Moments]] = []
        with suppress(BatchStopped):  # the updates until then stay
            if self._burn_in_steps:
                self._refresh(worker)
                batch = worker.begin_after(batch, self._burn_in_steps)
            batch = self.prepare(batch, worker)
            if self._group.size > 1:  # every rank must have as many parts
                minibatches = min(minibatches, max(1, least(self._group, most_parts(batch))))
            parts = Minibatches(batch, count=minibatches, passes=epochs, orders=orders)
            for index, minibatch in parts:
                new_here = new_steps = minibatch.new_steps
                steps = new_steps if minibatch.new is None else minibatch.steps
                steps, new_steps = self._of_all(worker, steps, new_steps)
                if index > 0:  # not in the first pass, in which every step is learned
                    if surely(asked_to_end):
                        break
                    steps, new_steps = steps.masked_fill(asked_to_end, 0), torch.zeros_like(steps)
                    new_here = new_steps
                if readable(self.device) and not steps:
                    continue
                sums = self.differentiate(minibatch, worker, steps)
                with self.turn(), part("optimiser"):
                    if self.max_updates is not None:
                        over = self.state.updates >= self.max_updates
                        if surely(over):  # another worker may have made the last one
                            break
                        steps, new_steps, new_here = (
                            n.masked_fill(over, 0) for n in (steps, new_steps, new_here)
                        )
                    ends = self.objective.ends_batch(sums, steps)
                    figures, applied = self.apply(
                        worker,
                        sums,
                        steps,
                        new_steps,
                        ends if parts.any_left else None,
                        new_here=new_here,
                    )
                    parts.refuse_unless(applied)
                    if ends is not None:
                        asked_to_end = asked_to_end | (applied & ends)
                    if index == 0:
                        observed.append(self._moments(minibatch, applied))
                    yield figures._replace(errors=parts.whole(sums.errors))
        with self.turn():
            self.state.normalisers.add_observations(observed, self._group)

    def _of_all(self, worker: GradientWorker, steps: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
        """The numbers of steps of all ranks.

        Raises:
            BatchStopped: the batch of some rank is stopped; it ends the batch of each.
        """
        if self._group.size == 1:
            return steps, new
        counts = torch.stack([steps, new, torch.full_like(steps, worker.stopped)])
        add_up(self._group, [counts])
        if counts[2] > 0:
            raise BatchStopped
        return counts[0], counts[1]

    def _captured_updates(
        self,
        batch: Batch,
        worker: GradientWorker,
        orders: Iterator[Tensor],
        minibatches: int,
        epochs: int,
    ) -> list[Sums]:
        """`_updates` as one CUDA graph."""
        assert worker.captured is not None
        drawn = list(islice(orders, epochs)) if self.freezes else []
        if self._captured is None or not self._captured.fits(batch):
            self._captured = CapturedUpdates(
                batch,
                drawn,
                updates=lambda orders: self._updates(batch, worker, orders, minibatches, epochs),
                memory=self.state.memory,
                generators=[self.state.generators["losses"]],
                stream=worker.captured,
            )
        return self._captured.run(batch, drawn)

    def prepare(self, batch: Batch, worker: GradientWorker) -> Batch:
        """`batch` before its first update, with a frozen correction where the loss asks for one.

        Where returns are normalised, the batch's targets enter the statistics here, so that no
        target of an update is far outside them (van Hasselt et al. 2016, proposition 2).
        """
        normalisers = self.state.normalisers
        if not self.freezes and not normalisers.of_targets:
            return batch
        self._refresh(worker)
        frozen = worker.freeze(batch)
        if frozen.frozen is not None and normalisers.of_targets:
            moments = normalisers.moments_of_targets(frozen.frozen.correction.targets, batch.valid)
            [moments] = joined_moments(self._group, [moments])
            with self.turn():
                normalisers.add_targets(moments)
                scale = 1.0 / normalisers.target_std
            # standardised advantages have no unit
            if self.freezes and not self.objective.config.normalise_advantages:
                frozen = replace(frozen, frozen=frozen.frozen.scaled(scale))
        return frozen if self.freezes else batch

    def differentiate(
        self, batch: Batch, worker: GradientWorker, steps: Tensor | None = None
    ) -> Sums:
        """Copy the newest weights to `worker` and differentiate there, with the lock free.

        With other ranks gradients and sums are those of all their batches; `steps` must be too.
        """
        self._refresh(worker)
        batch = worker.measure(batch)
        sums = worker.differentiate(batch, batch.steps if steps is None else steps)
        with part("exchange") if self._group.size > 1 else nullcontext():
            add_up(self._group, [sums.values, *worker.gradient])
        return sums

    def _refresh(self, worker: GradientWorker) -> None:
        with self.turn(), part("refresh"):
            worker.refresh(
                self.state.parameters,
                targets=self.state.target_weights,
                advantage_scale=self.advantage_scale,
                objective=self.objective,
            )

    def apply(
        self,
        worker: GradientWorker,
        sums: Sums,
        steps: Tensor,
        new_steps: Tensor,
        ends: Tensor | None = None,
        *,
        new_here: Tensor | None = None,
    ) -> tuple[Sums, Tensor]:
        """One optimiser step with the gradient of `worker`, if it is finite and of some steps.

        Args:
            worker: has differentiated.
            steps: `[]` int64, number of steps of the gradient.
            new_steps: number of these that are learned for the first time.
            ends: `[]` bool, whether the loss leaves out the rest of the batch; None: it does not.
            new_here: number of `new_steps` in the batch of this rank; None: all.

        Returns:
            The update's figures, and `[]` bool, whether anything has changed.
        """
        state, config = self.state, self.optimiser_config
        with self.lock, torch.no_grad():
            groups = state.optimiser.param_groups
            for group, gradient in zip(groups, worker.gradient, strict=True):
                [vector] = group["params"]
                vector.grad = gradient
            norm = clip_gradients(state.optimiser)
            applied = is_finite(norm) & (steps > 0)
            rate = step(
                state.optimiser,
                config,
                applied=applied,
                learned=state.learned_steps,
                scale=step_scale(sums, steps),
            )
            if state.target is not None:
                state.target.follow(applied)
            squares = counted = torch.zeros_like(norm)
            if self.objective.scales_advantages:
                squares = sums.values[sums.names.index(ADVANTAGE_SQUARES)]
                counted = sums.kept(steps)
            ended = self._never if ends is None else applied & ends
            here = new_steps if new_here is None else new_here
            report = [norm, rate, ended, here, steps]
            own = in_a_row([*report, squares, counted, new_steps, applied])
            state.count(own[len(report) :], applied)
            return sums._replace(own=own), applied

    @property
    def advantage_scale(self) -> float | Tensor:
        """Factor of advantages that are not standardised by their batch.

        `running_scale` where they are normalised, else 1 / standard deviation of normalised
        returns, or 1.
        """
        if not self.objective.config.normalise_advantages:
            return 1.0 / self.state.normalisers.target_std
        return running_scale(self.state.totals) if self.objective.scales_advantages else 1.0

    def _moments(self, batch: Batch, applied: Tensor) -> dict[str, Moments]:
        """The moments of the observations of a batch, if its update was applied."""
        if not surely(applied):
            batch = replace(batch, valid=batch.valid & applied)
        observed = self.state.normalisers.moments_of(batch)
        if observed and batch.valid.is_cuda and not torch.cuda.is_current_stream_capturing():
            # another stream's next batch may be in the same memory
            torch.cuda.current_stream(self.device).synchronize()
        return observed

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

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """A copy of the weights; all of one version."""
        with self.lock:
            return tensors_of(self.network)

    def state_tensors(self) -> dict[str, NDArray[Any]]:
        """Weights, optimiser state and running means under flat names, for a checkpoint."""
        with self.lock:
            return self.state.saved()

    def load_state_tensors(self, saved: Mapping[str, NDArray[Any]]) -> None:
        """Restore the tensors of `state_tensors`, as `LearnerState.load`."""
        self.state.load(saved)
