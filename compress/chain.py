"""The compressor chain: links in order, and the artifact they make (AcceRL §2.2, Code 1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from time import perf_counter

import numpy as np

from aclearn.policies import Architecture
from aclearn.rollout import Executable
from aclearn.types import Visited
from aclearn.types.bounds import MOST_CHAIN_BYTES
from aclearn.types.observation_spec import Observations
from compress.artifact import Artifact, Fidelity
from compress.comparison import FidelityMeter
from compress.errors import ChainError
from compress.graphs.policy_graph import PolicyGraph, check_tensors
from compress.link import Link, is_id
from compress.policy import Context, Policy, random_observations
from compress.runtimes.graph_cache import GraphCache
from compress.sequences import answers

#: Observations that travel with an artifact, for the check before a swap.
_PROBES = 2
#: Calls that a latency is the median of.
_LATENCY_CALLS = 15


class CompressorChain:
    """Links in order of execution.

    Args:
        min_action_prob: least probability of every allowed action when an actor samples.
        batch_sizes: for which an artifact's latency is measured.
        fidelity_observations: on which a version is compared with its original.
        fidelity_every: versions over which the work of a comparison is spread.
        checked_observations: observations on which each version is compared at once beside that.

    Attributes:
        meter: compares artifacts with their originals.
        seconds: duration of each step and link of the last version.

    Raises:
        ChainError: `min_action_prob` is not in [0, 1).
    """

    def __init__(
        self,
        *,
        min_action_prob: float = 0.0,
        batch_sizes: Sequence[int] = (1,),
        fidelity_observations: int = 64,
        fidelity_every: int = 1,
        checked_observations: int = 0,
    ) -> None:
        if not 0.0 <= min_action_prob < 1.0:
            raise ChainError(
                f"min_action_prob: expected at least 0, below 1; got {min_action_prob}"
            )
        self._min_action_prob, self._batch_sizes = min_action_prob, tuple(batch_sizes)
        self.meter = FidelityMeter(
            fidelity_observations,
            spread_over=fidelity_every,
            checked=checked_observations,
            min_action_prob=min_action_prob,
        )
        self.links: tuple[Link, ...] = ()
        self._graphs = GraphCache()
        self._measured: tuple[str, dict[int, float]] | None = None
        self._versions = 0
        self.seconds: dict[str, float] = {}

    def add(self, link: Link) -> CompressorChain:
        """Append a link; returns the chain."""
        link.state_key = f"{len(self.links)}:{link.id}"
        self.links += (link,)
        self.meter.forget()
        return self

    @property
    def id(self) -> str:
        """The links' ids in order; "none" without links."""
        return ">".join(link.id for link in self.links) or "none"

    @property
    def without_effect(self) -> tuple[Link, ...]:
        """Links before the last one that ignores its input: planned, but not run."""
        last = (i for i, link in enumerate(self.links) if link.ignores_input)
        return self.links[: max(last, default=0)]

    @property
    def _working(self) -> tuple[Link, ...]:
        return self.links[len(self.without_effect) :]

    def plan(self, architecture: Architecture) -> PolicyGraph:
        """The graph of this architecture's artifacts.

        Raises:
            ChainError: the order is wrong, a link refuses, or no message can carry an id; says why.
        """
        graph = PolicyGraph(architecture)
        for link in self.links:
            planned = link.plan(graph)
            # of what it is given at last; the first call refuses a wrong order
            graph = link.plan(PolicyGraph(architecture)) if link.ignores_input else planned
        self._check_ids()
        if graph.precision == "int8" and graph.runtime != "onnx":
            raise ChainError(
                f"{self.id}: int8 computes in ONNX Runtime only; end the chain in onnx"
            )
        choices = max(architecture.action_spec.counts, default=0)
        if self._min_action_prob * choices >= 1.0:
            raise ChainError(
                f"min_action_prob: {self._min_action_prob} for each of {choices} "
                f"actions leaves the policy nothing; "
                f"expected less than {1 / choices:.3g}"
            )
        return graph

    def _check_ids(self) -> None:
        for link in self.links:
            if not is_id(link.id):
                raise ChainError(
                    f"{type(link).__name__}: id: expected one printable word without '>', got "
                    f"{link.id!r:.80}"
                )
        if (size := len(self.id.encode())) > MOST_CHAIN_BYTES:
            raise ChainError(
                f"chain: an id of {size} bytes, at most {MOST_CHAIN_BYTES} are allowed: "
                f"{self.id:.80}…"
            )

    def load_modules(self) -> None:
        """Import what the links and the comparison need, so that the first version is no slower."""
        # imported here: running ONNX artifacts needs no torch
        import compress.graphs.graph_network  # noqa: F401

        for link in self._working:
            link.load_modules()

    def gauges(self, context: Context) -> dict[str, float]:
        """The links' gauges of the last version, as `<method>_<gauge>`: "distill_kl"."""
        found = {}
        for link in self._working:
            method = link.id.split("=")[0]
            for name, value in link.gauges(context.memory(link.state_key)).items():
                found[f"{method}_{name}"] = value
        return found

    def compress(self, policy: Policy, context: Context) -> Artifact:
        """The artifact of this version.

        Args:
            context: the same one for every version: it holds the links' state.

        Raises:
            RefusedTensors: weights do not fit, or weights or outputs are not finite.
            NeedsObservations: a link needs observations and there are none yet.
            DivergedTraining: a student's training gave numbers that are not finite.
            DeadStudent: a student cannot learn any more; the next version starts another one.
            Exception: any error of a user's own link.
        """
        self.seconds = {}
        with self._timed("check"):
            check_tensors(policy.graph, policy.tensors, with_value=True)
        context.begin(policy)
        for link in self._working:
            if link.needs_observations:
                # checked before the first link computes
                context.need_visited(link.id)
        current = policy
        for link in self._working:
            with self._timed(link.id):
                current = link.compress(current, context)
            context.attend()
        return self._artifact(policy, current, context)

    @contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        started = perf_counter()
        yield
        self.seconds[step] = self.seconds.get(step, 0.0) + perf_counter() - started

    def _artifact(self, original: Policy, compressed: Policy, context: Context) -> Artifact:
        graph, given = compressed.graph, compressed.tensors
        tensors = {name: given[name] for name in graph.tensors() if name in given}
        self._versions += 1
        compared = self.meter.begins(context)
        timed = self._measured is None or self._measured[0] != graph.digest()
        with self._timed("session"):
            check_tensors(graph, tensors)
            # a dedicated session costs more than the probe alone
            executable = self._graphs.executable(graph, tensors, brief=not (compared or timed))
        rng = np.random.default_rng((context.seed, self._versions))
        probe = self._observations(graph.architecture, context, _PROBES, rng)
        context.attend()
        with self._timed("fidelity"):
            fidelity = self.meter.measure(context, executable, graph, rng)
        context.attend()
        with self._timed("probe"):
            probe_parameters = answers(executable, graph, Visited.probe(probe, graph.state))
        artifact = Artifact(
            at=original.at,
            chain=self.id,
            original=original.graph.architecture.digest(),
            graph=graph,
            tensors=tensors,
            probe_observations=probe,
            probe_parameters=probe_parameters,
            fidelity=fidelity or Fidelity(version=original.at.version),
            latency_ms=self._latency(graph, executable, context, rng),
            min_action_prob=self._min_action_prob,
        )
        with self._timed("digest"):
            return replace(artifact, digest=artifact.computed_digest())

    def _observations(
        self, architecture: Architecture, context: Context, count: int, rng: np.random.Generator
    ) -> Observations:
        """Visited observations; random ones before there are any."""
        if visited := context.visited:
            rows = rng.integers(len(visited), size=count)
            return {name: leaf[rows] for name, leaf in visited.observations.items()}
        return random_observations(architecture.observation, count, rng)

    def _latency(
        self,
        graph: PolicyGraph,
        executable: Executable,
        context: Context,
        rng: np.random.Generator,
    ) -> dict[int, float]:
        """Measured once per graph: its duration does not depend on the weights."""
        if self._measured is None or self._measured[0] != graph.digest():
            found = {}
            threads: AbstractContextManager[None] = nullcontext()  # sessions have one
            if graph.runtime != "onnx":
                # imported here: running ONNX artifacts needs no torch
                from compress.runtimes.torch_runtime import one_thread

                threads = one_thread()
            with threads:
                for size in self._batch_sizes:
                    batch = self._observations(graph.architecture, context, size, rng)
                    found[size] = median_ms(executable, batch)
            self._measured = (graph.digest(), found)
        return self._measured[1]


def median_ms(executable: Executable, observations: Observations) -> float:
    """Median milliseconds of a call, after two warm-up calls."""
    times = []
    state = executable.step(observations).state
    for _ in range(_LATENCY_CALLS + 2):
        started = perf_counter()
        executable.step(observations, state)
        times.append(1000 * (perf_counter() - started))
    return float(np.median(times[2:]))
