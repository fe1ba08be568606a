"""Distillation: a student learns to act like the original policy on visited observations."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, ConfigDict, Field, Strict, model_validator
from typing_extensions import override

from aclearn.config import Group, Whole, got
from aclearn.errors import ConfigError, did_you_mean
from aclearn.policies import Architecture, describe_architecture, halves_pay
from aclearn.policies.architecture import POLICY
from aclearn.policies.layers import needed_by, states
from aclearn.types import ARCHITECTURES, Memory
from compress.errors import DeadStudent, DivergedTraining, RefusedTensors
from compress.graphs.policy_graph import PolicyGraph, Tensors, check_tensors
from compress.policy import Context, Policy
from compress.settings import ConfiguredLink

if TYPE_CHECKING:
    import torch

    from compress.methods.student import DistillationData, Student

_LOGGER = logging.getLogger(__name__)

#: A new student trains this many times longer in its first call: the first artifact must not be a
#: random policy.
_FIRST = 10
#: Settings that `Student` has too.
_TRAINING = {"learning_rate", "value_cost", "entropy_cost", "max_grad_norm", "workers"}


def _known_student(student: Any) -> Any:
    if isinstance(student, str) and student not in ARCHITECTURES:
        near = did_you_mean(student, ARCHITECTURES)
        raise ValueError(f"expected one of {', '.join(ARCHITECTURES)}, got {student!r}{near}")
    if not (student is None or isinstance(student, str | Architecture)):
        raise ValueError(
            f"expected one of {', '.join(ARCHITECTURES)}, an Architecture or null, "
            f"got {got(student)}"
        )
    return student


class DistillerSettings(Group):
    """Settings of `distill`."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    student: Annotated[
        str | Architecture | None,
        BeforeValidator(_known_student, json_schema_input_type=str | None),
    ] = Field(
        default=None,
        description="one of [the networks](networks.md), in Python also an `Architecture`; the "
        "links before it then do not run. null: train the network that they make",
    )
    steps: Whole = Field(default=16, ge=1, description="Adam steps for each version")
    batch: Whole = Field(default=32, ge=1, description="observations in a step of each worker")
    workers: Whole = Field(
        default=1,
        ge=1,
        le=64,
        description="threads of the compressor that train one student together (ND): each step has "
        "the mean gradient of a batch from each; set `compressor.cpu_share` to as many cores",
    )
    observations: Whole = Field(
        default=256,
        ge=1,
        description="recent observations that the teacher computes for each version, ten times as "
        "many for a new student; below `steps` × `batch` × `workers` the student sees each more "
        "than once",
    )
    learning_rate: float = Field(default=1e-3, gt=0.0, description="of Adam")
    value_cost: float = Field(
        default=0.5, ge=0.0, description="weight of the squared difference of the values"
    )
    entropy_cost: float = Field(
        default=0.0,
        ge=0.0,
        description="β, weight of the student's entropy; 0 reproduces the original policy",
    )
    renew_every: Whole = Field(
        default=1,
        ge=1,
        description="versions that use the same observations; a young policy changes within "
        "seconds, and so do the teacher's answers",
    )
    first_steps: Annotated[Whole, Field(ge=1)] | None = Field(
        default=None,
        description="steps of a new student's first version; null: ten times `steps`",
    )
    time_limit_s: Annotated[float, Field(gt=0.0)] | None = Field(
        default=None,
        description="longest training of a version, in seconds, ten times as long for a new "
        "student; at least one step. Results then depend on the machine's speed",
    )
    hidden: Annotated[tuple[Annotated[Whole, Field(ge=1)], ...], Strict(False)] | None = Field(
        default=None, description="hidden widths of a named student"
    )
    memory: bool = Field(
        default=True,
        description="a named student has a memory of the policy's kind and size, if the policy has "
        "one; false: none",
    )
    max_grad_norm: float = Field(
        default=1.0, gt=0.0, description="largest Euclidean norm of the gradient"
    )
    amp: Literal["auto", "bf16", "off"] = Field(
        default="auto",
        description="auto: bf16 for images of 32 × 32 pixels and more, if the CPU has it; bf16: "
        "always; off: fp32",
    )

    @model_validator(mode="after")
    def _hidden_of_a_preset(self) -> DistillerSettings:
        if self.hidden is not None and not isinstance(self.student, str):
            raise ValueError("hidden: replaces widths of a preset; name a student with it")
        if not self.memory and not isinstance(self.student, str):
            raise ValueError("memory: is that of a preset; name a student with it")
        return self


class Distiller(ConfiguredLink[DistillerSettings]):
    """Knowledge distillation on the observations that actors visited (AcceRL §2.2, eq. 1).

        KL(π_original ‖ π_smaller) + ½ (v_original − v_smaller)² − β H(π_smaller)

    Actions that were masked do not count.

    The teacher is the uncompressed policy, whatever links come before. The student is a named
    network or, without a name, the network that the links before make, with its weights as a
    start. In each version it continues from its last result, with the same Adam state. Gradients
    of layers that read no negative inputs are centred, which keeps units from dying. A student
    that died is replaced.

    A student with a memory learns along sequences, with its own state from each one's beginning.
    So does the teacher. A student without one may learn from a policy with one: it then imitates
    what the policy does on average in a state that it cannot tell apart.

    Gauges: `loss` and `kl` are means of the last version, `steps` the student's steps so far,
    `deaths` the students before it.
    """

    name = "distill"
    model = DistillerSettings
    needs_observations = True

    def __init__(self, *main: Any, **settings: Any) -> None:
        super().__init__(*main, **settings)
        self.ignores_input = self.settings.student is not None

    @property
    def id(self) -> str:
        """E.g. "distill", "distill=accerl-net1-128", "distill=mlp-memoryless"."""
        if self.settings.student is None:
            return "distill"
        if isinstance(self.settings.student, Architecture):
            return f"distill={self.settings.student.digest()}"
        marks = [f"distill={self.settings.student}", *map(str, self.settings.hidden or ())]
        marks += ["memoryless"] * (not self.settings.memory)
        return "-".join(marks)

    def plan(self, graph: PolicyGraph) -> PolicyGraph:
        """The student's graph."""
        self.require_fp32(graph)
        if graph.scale_folded:
            raise self.refuse(
                "comes after fuse, which folds the division of images into weights: Adam's steps "
                "would be too large for them; put it before"
            )
        if graph.architecture.critic == "q":
            raise self.refuse(
                "distils the value of a state, and the policy has a Q head; take another link, or "
                "set policy.critic: v"
            )
        if self.settings.student is None:
            self.require_layers(graph)
            # it has learned on in earlier versions: its memory has parted from the policy's
            return replace(graph, own_state=bool(graph.state))
        mine = graph.architecture
        student = self.settings.student
        if isinstance(student, str):
            try:
                student = describe_architecture(
                    student,
                    observation=mine.observation,
                    actions=mine.action_spec,
                    hidden=self.settings.hidden,
                    std_from_observations=mine.std_from_observations,
                    normalise_observations=mine.normalises_observations,
                    normalise_returns=mine.normalises_returns,
                    memory=self._memory_of(mine),
                )
            except ConfigError as error:
                raise self.refuse(str(error)) from error
        if mine.critic is None:  # the policy alone is distilled
            student = replace(student, layers=needed_by(student.layers, POLICY))
        if student.spaces != mine.spaces:
            raise self.refuse(
                f"the student has {student.spaces}, expected those of the policy, {mine.spaces}"
            )
        known = {layer.name for layer in mine.layers if layer.is_normaliser}
        for layer in student.layers:
            if layer.is_normaliser and layer.name not in known:
                raise self.refuse(
                    f"the student's layer {layer.name!r} needs statistics of the policy's layer of "
                    f"this name; the policy has {', '.join(sorted(known)) or 'none'}"
                )
        return PolicyGraph(student, own_state=bool(states(student.layers)))

    def _memory_of(self, policy: Architecture) -> Memory | None:
        """The memory of a named student of this policy."""
        if not policy.state or not self.settings.memory:
            return None
        cells = [layer for layer in policy.layers if layer.kind in ("gru", "lstm_output")]
        if not cells:
            raise self.refuse(
                "the policy's memory is neither an lstm nor a gru of ours, and a preset has no "
                "other; set memory: false, or give an Architecture in Python"
            )
        units = {state.next: state.units for state in states(policy.layers)}
        kind = "gru" if cells[0].kind == "gru" else "lstm"
        return Memory(kind, units[cells[0].name], len(cells))

    def compress(self, policy: Policy, context: Context) -> Policy:
        """The student after this version's steps, with its value.

        Raises:
            NeedsObservations: there are none yet.
            DivergedTraining: the training gave numbers that are not finite. The next call continues
                from the last good student, with a new Adam and a new teacher.
            DeadStudent: no step of this call could change more than the student's last layers. The
                next call starts a new student.
        """
        started = context.clock()
        graph = self.plan(policy.graph)
        memory = context.memory(self.state_key)
        new = memory.get("graph") != graph.digest()
        factor = _FIRST if new else 1
        calls = memory.get("calls", 0) + 1
        rng = np.random.default_rng((context.seed, calls))
        data = self._distillation_data(
            factor * self.settings.observations, graph, context, memory, rng
        )
        memory["calls"] = calls
        if new:
            if "deaths" not in memory and policy.graph.state and not graph.state:
                _LOGGER.warning(
                    "event=student_without_memory chain_link=%s detail='the policy has a memory, "
                    "and this student has none'",
                    self.id,
                )
            memory.setdefault("deaths", 0)
            context.restarts += "student" in memory
            memory["student"] = self._make(graph, self._start(graph, policy, context, memory))
            memory |= {"graph": graph.digest(), "steps": 0, "tensors": None}
        limit_s = self.settings.time_limit_s
        until = math.inf if limit_s is None else started + factor * limit_s
        student: Student = memory["student"]
        assert context.original is not None  # the teacher
        student.take_statistics(context.original.tensors)
        steps = self.settings.steps
        if new:
            steps = self.settings.first_steps or _FIRST * steps
        losses: list[float] = []
        divergences: list[float] = []
        alive = False
        try:
            parts = data.parts(self.settings.batch, rng)
            while True:
                renewed = not losses and (new or memory["served"] == 1)
                batches = list(islice(parts, self.settings.workers))
                loss = student.learn(batches, renewed=renewed)
                alive |= student.alive
                losses.append(loss.total.item())
                divergences.append(loss.kl.item())
                context.attend()
                if len(losses) >= steps or context.clock() >= until:
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

    @override
    def load_modules(self) -> None:
        import torch

        import compress.methods.student  # noqa: F401

        torch.set_flush_denormal(True)  # as in a trainer: Adam's moments fade
        torch.optim.Adam(
            [torch.zeros(1, requires_grad=True)]
        )  # the first one loads torch's compiler

    def gauges(self, memory: Mapping[str, Any]) -> dict[str, float]:
        """Loss and KL of the last version, steps of the student, and `deaths`."""
        names = ("loss", "kl", "steps", "deaths")
        return {name: float(memory[name]) for name in names if name in memory}

    def _distillation_data(
        self,
        most: int,
        graph: PolicyGraph,
        context: Context,
        memory: dict[str, Any],
        rng: np.random.Generator,
    ) -> DistillationData:
        """The stored data, or new data of at most `most` observations where they are due."""
        # imported here, as below: reading and planning a chain needs no torch
        from compress.methods.student import DistillationData

        count = min(most, len(context.need_visited(self.id)))
        data: DistillationData | None = memory.get("data")
        over = data is None or memory["served"] >= self.settings.renew_every
        if data is None or over or count >= 2 * len(data):
            visited = context.sample(self.id, count, rng)
            assert context.original is not None  # the teacher
            if not graph.keeps_state(context.original.graph.state):
                # both begin with zeros, so that the teacher remembers no more
                visited = replace(visited, state=())
            data = DistillationData(visited, context.network, self._amp_dtype(graph.architecture))
            memory |= {"data": data, "served": 0}
        memory["served"] += 1
        return data

    def _start(
        self, graph: PolicyGraph, policy: Policy, context: Context, memory: Mapping[str, Any]
    ) -> Tensors:
        """The first tensors of a new student; another seed after each death."""
        if self.settings.student is None:
            return policy.tensors
        from compress.methods.student import first_tensors

        first = first_tensors(graph.architecture, seed=context.seed + memory["deaths"])
        # those that do not follow the observations: learning them takes hundreds of versions
        assert context.original is not None
        deviations = {
            name: given
            for name, given in context.original.tensors.items()
            if name.endswith(".log_std") and name in first and given.shape == first[name].shape
        }
        return {**first, **deviations}

    def _make(self, graph: PolicyGraph, tensors: Tensors) -> Student:
        from compress.methods.student import Student

        how = self.settings.model_dump(include=_TRAINING)
        return Student(graph, tensors, **how, amp_dtype=self._amp_dtype(graph.architecture))

    def _amp_dtype(self, architecture: Architecture) -> torch.dtype | None:
        from aclearn.policies.devices import choose_amp, choose_device

        pays = halves_pay(architecture.observation)
        return choose_amp(self.settings.amp, choose_device("cpu"), pays=pays)

    def _fall_back(self, graph: PolicyGraph, memory: dict[str, Any]) -> None:
        """Restore the last good student with a new Adam, or forget it if there is none."""
        memory.pop("data", None)
        if memory["tensors"] is None:
            memory.pop("graph")
        else:
            memory["student"] = self._make(graph, memory["tensors"])
