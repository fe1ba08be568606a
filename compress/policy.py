"""The input of links: a policy, and the context of its chain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from aclearn.policies import Architecture
from aclearn.types import ObservationSpec, PolicyVersion, Visited
from compress.errors import NeedsObservations
from compress.graphs.policy_graph import PolicyGraph, Tensors

if TYPE_CHECKING:
    from compress.graphs.graph_network import GraphNetwork


@dataclass(frozen=True, eq=False)
class Policy:
    """A policy between two links; links return a new one and leave this unchanged.

    Attributes:
        tensors: by the names of `graph.tensors(with_value=True)` while it is fp32. Never written.
        at: the version of its uncompressed weights.
    """

    graph: PolicyGraph
    tensors: Tensors
    at: PolicyVersion = field(default_factory=PolicyVersion)

    @classmethod
    def of(
        cls, architecture: Architecture, tensors: Tensors, at: PolicyVersion | None = None
    ) -> Policy:
        """The uncompressed policy of an architecture and all of its weights."""
        return cls(PolicyGraph(architecture), dict(tensors), at or PolicyVersion())

    def become(self, graph: PolicyGraph, tensors: Tensors) -> Policy:
        """A policy of the same version with another graph and other tensors."""
        return replace(self, graph=graph, tensors=tensors)


@dataclass
class Context:
    """The inputs of links beside the policy; one context serves a chain for its whole life.

    Attributes:
        visited: the observations that actors visited lately, newest last, with their action masks;
            of a policy with a memory, sequences of them.
        held_out: others of them: artifacts are compared on these, and links must not read them,
            since a fit is better on its own data. Without them artifacts are compared on `visited`.
        clock: seconds, for time limits.
        attend: sends the process's heartbeats and answers its clients. A chain calls it after each
            link; a link whose work takes seconds calls it between parts of that.
        original: the uncompressed policy of the current version; the teacher.
        breaks: number of times that a link has changed the meaning of its outputs (other units,
            say), which invalidates measurements of later links.
        restarts: number of times that what enters the links no longer continues what entered them
            before: a new student, or versions that this chain did not compress.
    """

    visited: Visited = field(default_factory=Visited)
    held_out: Visited = field(default_factory=Visited)
    seed: int = 0
    clock: Callable[[], float] = perf_counter
    attend: Callable[[], None] = lambda: None
    original: Policy | None = None
    breaks: int = 0
    restarts: int = 0
    _memory: dict[str, dict[str, Any]] = field(default_factory=dict)
    _network: GraphNetwork | None = None

    def memory(self, state_key: str) -> dict[str, Any]:
        """The state of the link with this key between versions."""
        return self._memory.setdefault(state_key, {})

    def begin(self, original: Policy) -> None:
        """Start a new version."""
        self.original, self._network = original, None

    def need_visited(self, link: str) -> Visited:
        """The visited observations; raises `NeedsObservations` if there are none yet."""
        if not self.visited:
            raise NeedsObservations(f"{link} needs observations that actors visited")
        return self.visited

    def sample(self, link: str, count: int, rng: np.random.Generator) -> Visited:
        """`count` visited observations without repetition, or all; raises `NeedsObservations`.

        Of a policy with a memory they are whole sequences with at least as many.
        """
        return self._drawn(self.need_visited(link), count, rng)

    def sample_to_compare(self, count: int, rng: np.random.Generator) -> Visited:
        """Like `sample`, of the observations for the comparison of an artifact with its policy."""
        if not self.held_out:
            return self.sample("fidelity", count, rng)
        return self._drawn(self.held_out, count, rng)

    def _drawn(self, visited: Visited, count: int, rng: np.random.Generator) -> Visited:
        if visited.valid is not None:
            chosen = visited.needed(count, rng.permutation(visited.sequences))
        elif (most := -(-count // visited.length)) < visited.sequences:
            chosen = rng.choice(visited.sequences, most, replace=False)
        else:
            return visited
        return visited.take(np.sort(chosen))

    @property
    def network(self) -> GraphNetwork:
        """The original policy as an fp32 torch module, made once per version."""
        if self._network is None:
            # imported here: plain data needs no torch
            from compress.graphs.graph_network import GraphNetwork

            if self.original is None:
                raise RuntimeError("context: no policy has entered the chain yet")
            network = GraphNetwork(self.original.graph).load(self.original.tensors)
            for parameter in network.parameters():
                parameter.requires_grad_(False)
            self._network = network.eval()
        return self._network


def random_observations(
    spec: ObservationSpec, count: int, rng: np.random.Generator
) -> dict[str, NDArray[Any]]:
    """Random pixels and normal numbers, leaf → `[count, *shape]`."""
    return {
        name: rng.integers(0, leaf.high + 1, (count, *leaf.shape), np.uint8)
        if leaf.dtype == "uint8"
        else rng.normal(size=(count, *leaf.shape)).astype(np.float32)
        for name, leaf in spec.items()
    }
