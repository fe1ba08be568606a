"""Distillation: a student learns, from what actors visit, to act as the original policy does."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from aclearn.errors import ConfigError
from aclearn.policies import Architecture, describe_architecture
from aclearn.types import ARCHITECTURES, refuse_recurrence
from compress.errors import ChainError, DeadStudent, DivergedTraining, RefusedTensors
from compress.graphs.policy_graph import PolicyGraph, Tensors, check_tensors
from compress.link import Link
from compress.policy import Context, Policy

if TYPE_CHECKING:
    import torch

    from compress.methods.student import DistillationData, Student

#: How much more a new student may train in its first call: the first artifact is no random policy.
_FIRST = 10


class Distiller(Link):
    """Knowledge distillation on the observations that actors visited (AcceRL §2.2, eq. 1).

        KL(π_original ‖ π_smaller) + ½ (v_original − v_smaller)² − β H(π_smaller)

    The teacher is the uncompressed policy, whatever links come before. It gives lessons: some of
    what was visited lately, and what it says there, asked once of each, since to ask the large
    network costs more than to teach the small one. A young policy moves as a whole within seconds,
    so that every version has a lesson of its own unless `renew_every` says otherwise. The student
    is a smaller preset, or, without one, the policy that the links before made: pruning and
    distillation in pairs. It starts from its last result in every version; network and Adam
    live in the context's memory, where `loss` and `kl` are the last call's means, `steps` the
    student's steps so far and `deaths` the students before it.

    Args:
        student: a preset's name or an architecture, to which the links before contribute nothing;
            None trains the incoming graph, from the incoming tensors whenever that graph is another
            than before.
        steps: steps of Adam a version.
        batch: observations a step.
        observations: of a lesson, drawn from what was visited; fewer than `steps` × `batch` are
            learned from more than once. A new student's first lesson has ten times as many.
        learning_rate: of Adam.
        value_cost: weight of (v_original − v_smaller)²; ½ in equation 1.
        entropy_cost: β. 0 lets the student's policy become the original's.
        renew_every: versions that a lesson serves; a shorter time when it could have twice as many
            observations.
        first_steps: steps of a new student's first call; None for ten times `steps`.
        time_limit_s: seconds that a call may train; the step in which they end is the last one, the
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
        steps: int = 16,
        batch: int = 32,
        observations: int = 256,
        learning_rate: float = 1e-3,
        value_cost: float = 0.5,
        entropy_cost: float = 0.0,
        renew_every: int = 1,
        first_steps: int | None = None,
        time_limit_s: float | None = None,
        hidden: Sequence[int] | None = None,
        max_grad_norm: float = 1.0,
        amp: Literal["auto", "bf16", "off"] = "auto",
    ) -> None:
        _check_student(student, hidden)
        first_steps = _FIRST * steps if first_steps is None else first_steps
        counts = {"steps": steps, "first_steps": first_steps, "batch": batch}
        counts |= {"observations": observations, "renew_every": renew_every}
        for name, count in counts.items():
            if not _is_whole(count) or count < 1:
                raise ChainError(f"distill: {name}: expected a whole number ≥ 1, got {count!r}")
        numbers = {"learning_rate": learning_rate, "max_grad_norm": max_grad_norm}
        numbers |= {} if time_limit_s is None else {"time_limit_s": time_limit_s}
        for name, number in numbers.items():
            if not _is_number(number) or not number > 0.0:
                raise ChainError(f"distill: {name}: expected a number > 0, got {number!r}")
        for name, number in {"value_cost": value_cost, "entropy_cost": entropy_cost}.items():
            if not _is_number(number) or number < 0.0:
                raise ChainError(f"distill: {name}: expected a number ≥ 0, got {number!r}")
        if amp not in ("auto", "bf16", "off"):
            raise ChainError(f"distill: amp: expected auto, bf16 or off, got {amp!r}")
        self._student = student
        self.ignores_input = student is not None
        self._hidden = None if hidden is None else tuple(hidden)
        self._steps, self._first_steps, self._batch = steps, first_steps, batch
        self._observations, self._renew_every = observations, renew_every
        self._time_limit_s, self._amp = time_limit_s, amp
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
        memory = context.memory(self.owner)
        new = memory.get("graph") != graph.digest()
        factor = _FIRST if new else 1
        calls = memory.get("calls", 0) + 1
        rng = np.random.default_rng((context.seed, calls))
        data = self._distillation_data(factor * self._observations, context, memory, rng)
        memory["calls"] = calls
        if new:
            memory.setdefault("deaths", 0)
            memory["student"] = self._make(graph, self._start(graph, policy, context, memory))
            memory |= {"graph": graph.digest(), "steps": 0, "tensors": None}
        until = math.inf if self._time_limit_s is None else started + factor * self._time_limit_s
        student: Student = memory["student"]
        losses: list[float] = []
        divergences: list[float] = []
        alive = False
        try:
            for part in data.parts(self._batch, rng):
                renewed = not losses and (new or memory["served"] == 1)
                loss = student.learn(*part, renewed=renewed)
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

    def _distillation_data(
        self, most: int, context: Context, memory: dict[str, Any], rng: np.random.Generator
    ) -> DistillationData:
        """The kept one, or from time to time one by this version on at most so many visited."""
        from compress.methods.student import (
            DistillationData,  # as below: to read and plan needs no torch
        )

        count = min(most, len(context.need_observations(self.id)))
        data: DistillationData | None = memory.get("data")
        over = data is None or memory["served"] >= self._renew_every
        if data is None or over or count >= 2 * len(data):
            observations = context.sample(self.id, count, rng)
            data = DistillationData(observations, context.network, self._amp_dtype())
            memory |= {"data": data, "served": 0}
        memory["served"] += 1
        return data

    def _start(
        self, graph: PolicyGraph, policy: Policy, context: Context, memory: Mapping[str, Any]
    ) -> Tensors:
        """What a new student starts from: another than one that has died."""
        if self._student is None:
            return policy.tensors
        from aclearn.policies.network import PolicyNetwork, tensors_of

        seed = context.seed + memory["deaths"]
        return tensors_of(PolicyNetwork(graph.architecture, seed=seed))

    def _make(self, graph: PolicyGraph, tensors: Tensors) -> Student:
        from compress.methods.student import Student

        return Student(graph, tensors, **self._training, amp_dtype=self._amp_dtype())

    def _amp_dtype(self) -> torch.dtype | None:
        from aclearn.policies.devices import choose_amp, choose_device

        return choose_amp(self._amp, choose_device("cpu"))

    def _fall_back(self, graph: PolicyGraph, memory: dict[str, Any]) -> None:
        """Back to the last good student, with a new Adam; without one, to none."""
        memory.pop("data", None)
        if memory["tensors"] is None:
            memory.pop("graph")
        else:
            memory["student"] = self._make(graph, memory["tensors"])


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
