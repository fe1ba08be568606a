"""Distillation: a student learns, from what actors visit, to act as the original policy does."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from aclearn.errors import ConfigError
from aclearn.policies import (
    ARCHITECTURES,
    Architecture,
    describe_architecture,
    refuse_recurrence,
)
from compress.errors import ChainError, DeadStudent, DivergedTraining, RefusedTensors
from compress.graph import PolicyGraph, Tensors, check_tensors
from compress.link import Link
from compress.policy import Context, Policy

if TYPE_CHECKING:
    from compress.distillation import Student
    from compress.network import GraphNetwork

#: How much more a new student may train in its first call: the first artifact is no random policy.
_FIRST = 10


class Distiller(Link):
    """Knowledge distillation on the observations that actors visited (AcceRL §2.2, eq. 1).

        KL(π_original ‖ π_smaller) + ½ (v_original − v_smaller)² − β H(π_smaller)

    The teacher is the uncompressed policy, whatever links come before: a fixed network, renewed
    every `renew_every` versions, since a target that never rests disturbs the student. The student
    is a smaller preset, or, without one, the policy that the links before made: pruning and
    distillation in pairs. It starts from its last result in every version; network and Adam live
    in the context's memory, where `loss` and `kl` are the last call's means, `steps` the student's
    steps so far and `deaths` the students before it.

    Args:
        student: a preset's name or an architecture, to which the links before contribute nothing;
            None trains the incoming graph, from the incoming tensors whenever that graph is another
            than before.
        steps: steps of Adam a version.
        batch: observations a step.
        learning_rate: of Adam.
        value_cost: weight of (v_original − v_smaller)²; ½ in equation 1.
        entropy_cost: β. 0 lets the student's policy become the original's.
        renew_every: versions between two renewals of the teacher.
        first_steps: steps of a new student's first call; None for ten times `steps`.
        budget_s: seconds that a call may train; the step in which they end is the last one, the
            first step is always made. A new student's first call has ten times as many. None for
            no limit; with one, results depend on the machine's speed.
        hidden: replaces the hidden widths of a preset.
        max_grad_norm: Euclidean norm that gradients are scaled down to.
        amp: "auto" computes in bf16 where the processor has it, "bf16" everywhere, "off" in fp32.

    Raises:
        ChainError: an unknown or recurrent preset, or a wrong value.
    """

    needs_observations = True

    def __init__(
        self,
        student: str | Architecture | None = None,
        *,
        steps: int = 4,
        batch: int = 64,
        learning_rate: float = 5e-4,
        value_cost: float = 0.5,
        entropy_cost: float = 0.0,
        renew_every: int = 1,
        first_steps: int | None = None,
        budget_s: float | None = None,
        hidden: Sequence[int] | None = None,
        max_grad_norm: float = 1.0,
        amp: Literal["auto", "bf16", "off"] = "auto",
    ) -> None:
        _check_student(student, hidden)
        counts = {"steps": steps, "batch": batch, "renew_every": renew_every}
        counts |= {} if first_steps is None else {"first_steps": first_steps}
        for name, count in counts.items():
            if not _is_whole(count) or count < 1:
                raise ChainError(f"distill: {name}: expected a whole number ≥ 1, got {count!r}")
        numbers = {"learning_rate": learning_rate, "max_grad_norm": max_grad_norm}
        numbers |= {} if budget_s is None else {"budget_s": budget_s}
        for name, number in numbers.items():
            if not _is_number(number) or not number > 0.0:
                raise ChainError(f"distill: {name}: expected a number > 0, got {number!r}")
        for name, number in {"value_cost": value_cost, "entropy_cost": entropy_cost}.items():
            if not _is_number(number) or number < 0.0:
                raise ChainError(f"distill: {name}: expected a number ≥ 0, got {number!r}")
        if amp not in ("auto", "bf16", "off"):
            raise ChainError(f"distill: amp: expected auto, bf16 or off, got {amp!r}")
        self._student = student
        self.starts_anew = student is not None
        self._hidden = None if hidden is None else tuple(hidden)
        self._steps, self._batch, self._renew_every = steps, batch, renew_every
        self._first_steps = _FIRST * steps if first_steps is None else first_steps
        self._budget_s, self._amp = budget_s, amp
        self._training = {
            "learning_rate": float(learning_rate),
            "value_cost": float(value_cost),
            "entropy_cost": float(entropy_cost),
            "max_grad_norm": float(max_grad_norm),
        }

    @property
    def id(self) -> str:
        """E.g. "distill", "distill=accerl-net1", "distill=accerl-net1-128"."""
        if self._student is None:
            return "distill"
        if isinstance(self._student, Architecture):
            return f"distill={self._student.digest()}"
        return "-".join([f"distill={self._student}", *map(str, self._hidden or ())])

    def plan(self, graph: PolicyGraph) -> PolicyGraph:
        """The student's graph."""
        self.require_plain(graph)
        if graph.scale_folded:
            raise self.refuse(
                "comes after fuse, which folds 1/255 into weights: Adam's steps would be 255 times "
                "too large for them; put it before"
            )
        if self._student is None:
            return graph
        mine = graph.architecture
        student = self._student
        if isinstance(student, str):
            try:
                student = describe_architecture(
                    student,
                    observation_shape=mine.observation_shape,
                    observation_dtype=mine.observation_dtype,
                    actions=mine.actions,
                    hidden=self._hidden,
                )
            except ConfigError as error:
                raise self.refuse(str(error)) from error
        if _spaces(student) != _spaces(mine):
            raise self.refuse(
                f"the student has {_spaces(student)}, expected those of the policy, {_spaces(mine)}"
            )
        return PolicyGraph(student)

    def compress(self, policy: Policy, context: Context) -> Policy:
        """The student after this version's steps, its value included.

        Raises:
            NeedsObservations: there are none yet.
            DivergedTraining: the training gave numbers that are not finite. The next call goes on
                from the last good student, with a new Adam and a new teacher.
            DeadStudent: no step of this call could change more than its last layers. The next call
                begins a new student.
        """
        started = context.clock()
        graph = self.plan(policy.graph)
        observations = context.need_observations(self.id)
        memory = context.memory(self.owner)
        memory["calls"] = memory.get("calls", 0) + 1
        rng = np.random.default_rng((context.seed, memory["calls"]))
        teacher = self._teacher(context, memory)
        new = memory.get("graph") != graph.digest()
        if new:
            memory.setdefault("deaths", 0)
            memory["student"] = self._make(graph, self._start(graph, policy, context, memory))
            memory |= {"graph": graph.digest(), "steps": 0, "tensors": None}
        factor = _FIRST if new else 1
        until = math.inf if self._budget_s is None else started + factor * self._budget_s
        student: Student = memory["student"]
        losses: list[float] = []
        divergences: list[float] = []
        alive = False
        try:
            for indices in _batches(len(observations), self._batch, rng):
                renewed = not losses and (new or memory["taught"] == 1)
                loss = student.learn(observations[indices], teacher, renewed=renewed)
                alive |= student.alive
                losses.append(loss.total.item())
                divergences.append(loss.kl.item())
                if len(losses) >= (self._first_steps if new else self._steps):
                    break
                if context.clock() >= until:
                    break
            tensors = student.tensors()
            check_tensors(graph, tensors, with_value=True)
        except (DivergedTraining, RefusedTensors) as error:
            self._fall_back(graph, memory)
            raise DivergedTraining(
                f"{self.id}: the training diverged after {len(losses)} steps of this version "
                f"({error}); the last good student stays. Lower learning_rate if it happens again"
            ) from error
        if not alive:
            memory.pop("graph")
            memory["deaths"] += 1
            raise DeadStudent(
                f"{self.id}: the student's units are silent in all states after "
                f"{memory['steps'] + len(losses)} steps; a new one begins with the next version. "
                f"Lower learning_rate if it happens again"
            )
        memory["tensors"] = tensors
        memory["steps"] += len(losses)
        memory["loss"], memory["kl"] = float(np.mean(losses)), float(np.mean(divergences))
        return policy.become(graph, tensors)

    def gauges(self, memory: Mapping[str, Any]) -> dict[str, float]:
        """The last version's mean loss and KL, the student's steps so far and those before it."""
        names = ("loss", "kl", "steps", "deaths")
        return {name: float(memory[name]) for name in names if name in memory}

    def _teacher(self, context: Context, memory: dict[str, Any]) -> GraphNetwork:
        """The kept network, or from time to time that of this version."""
        if "teacher" not in memory or memory["taught"] >= self._renew_every:
            memory["teacher"], memory["taught"] = context.network, 0
        memory["taught"] += 1
        teacher: GraphNetwork = memory["teacher"]
        return teacher

    def _start(
        self, graph: PolicyGraph, policy: Policy, context: Context, memory: Mapping[str, Any]
    ) -> Tensors:
        """What a new student starts from: another than one that has died."""
        if self._student is None:
            return policy.tensors
        # imported here, as below: to read and plan a chain needs no torch
        from aclearn.policies.network import PolicyNetwork, tensors_of

        seed = context.seed + memory["deaths"]
        return tensors_of(PolicyNetwork(graph.architecture, seed=seed))

    def _make(self, graph: PolicyGraph, tensors: Tensors) -> Student:
        from aclearn.learning import choose_amp, choose_device
        from compress.distillation import Student

        amp_dtype = choose_amp(self._amp, choose_device("cpu"))
        return Student(graph, tensors, **self._training, amp_dtype=amp_dtype)

    def _fall_back(self, graph: PolicyGraph, memory: dict[str, Any]) -> None:
        """Back to the last good student, with a new Adam; without one, to none."""
        memory.pop("teacher", None)
        if memory["tensors"] is None:
            memory.pop("graph")
        else:
            memory["student"] = self._make(graph, memory["tensors"])


def _batches(count: int, batch: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Indices of one batch after the other, for ever; none comes twice in one pass over all."""
    size = min(batch, count)
    while True:
        order = rng.permutation(count)
        for start in range(0, count - size + 1, size):
            yield order[start : start + size]


def _spaces(architecture: Architecture) -> str:
    shape, dtype = architecture.observation_shape, architecture.observation_dtype
    return f"{dtype} observations {shape} and {architecture.actions} actions"


def _check_student(student: Any, hidden: Any) -> None:
    if isinstance(student, str) and (refusal := refuse_recurrence(student)) is not None:
        raise ChainError(f"distill: student: {refusal}")
    if isinstance(student, str) and student not in ARCHITECTURES:
        near = difflib.get_close_matches(student, ARCHITECTURES, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise ChainError(
            f"distill: the student {student!r} is unknown; expected one of "
            f"{', '.join(ARCHITECTURES)}{meant}"
        )
    if not (student is None or isinstance(student, str | Architecture)):
        raise ChainError(
            f"distill: student: expected one of {', '.join(ARCHITECTURES)}, or none to train the "
            f"policy that the links before made, got {student!r}"
        )
    if hidden is None:
        return
    if not isinstance(student, str):
        raise ChainError("distill: hidden: replaces widths of a preset; name a student with it")
    whole = isinstance(hidden, Sequence) and all(_is_whole(width) for width in hidden)
    if not whole or min(hidden, default=1) < 1:
        raise ChainError(f"distill: hidden: expected whole numbers ≥ 1, got {hidden!r}")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
