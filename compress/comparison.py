"""The distance of compressed policies to their originals (AcceRL eq. 5), measured in parts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from aclearn.distributions import distribution_of
from aclearn.rollout import Executable
from aclearn.types import Visited
from compress.artifact import Fidelity
from compress.errors import RefusedTensors
from compress.graphs.policy_graph import PolicyGraph
from compress.policy import Context
from compress.sequences import answers, finite, network_outputs

if TYPE_CHECKING:
    from compress.graphs.graph_network import GraphNetwork


class Comparison:
    """Compares the newest version's artifact with its original; later versions do not change it.

    Of policies with a memory each goes through whole sequences with a state of its own.

    Args:
        count: number of held-out observations to compare on; all, if there are fewer.
    """

    def __init__(
        self,
        context: Context,
        executable: Executable,
        graph: PolicyGraph,
        *,
        count: int,
        rng: np.random.Generator,
        min_action_prob: float,
    ) -> None:
        assert context.original is not None  # a version has entered the chain
        self._distribution = distribution_of(context.original.graph.architecture.action_spec)
        self._version = context.original.at.version
        self._network, self._executable, self._graph = context.network, executable, graph
        self._visited = context.sample_to_compare(count, rng)
        if not graph.keeps_state(context.original.graph.state):
            # both begin with zeros, so that neither remembers more
            self._visited = replace(self._visited, state=())
        self._min_action_prob, self._done = min_action_prob, 0
        self._originals: list[NDArray[np.float32]] = []
        self._answers: list[NDArray[np.float32]] = []

    def advance(self, count: int) -> None:
        """Compare `count` more observations, or the remaining ones.

        Raises:
            RefusedTensors: outputs are not finite.
        """
        sequences = -(-count // self._visited.length)
        part = self._visited.take(slice(self._done, self._done + sequences))
        self._done += part.sequences
        original = _original_parameters(self._network, part)
        self._originals.append(part.measured(finite(original, "the policy")))
        self._answers.append(part.measured(answers(self._executable, self._graph, part)))

    @property
    def is_over(self) -> bool:
        """Whether all observations were compared."""
        return self._done == self._visited.sequences

    @property
    def fidelity(self) -> Fidelity:
        """The distance on the observations that were compared so far."""
        original, answered = (np.concatenate(p) for p in (self._originals, self._answers))
        done = self._visited.take(slice(self._done))
        masks = None if done.masks is None else done.measured(done.masks)
        original, answered = (self._distribution.mask(p, masks) for p in (original, answered))
        sampled = self._distribution.with_min_action_prob(answered, self._min_action_prob)
        return Fidelity.of(self._distribution, original, sampled, self._version)


class FidelityMeter:
    """Compares versions with their originals in turn; each comparison spans several versions.

    Args:
        observations: number of held-out observations on which a version is compared.
        spread_over: number of versions over which a comparison extends.
        checked: number of further observations on which each version is compared at once.

    Attributes:
        fidelity: the newest whole comparison, or the first one so far; None before it.
    """

    def __init__(
        self, observations: int, *, spread_over: int, checked: int, min_action_prob: float
    ) -> None:
        self._observations, self._checked = observations, checked
        self._at_once = -(-observations // spread_over)
        self._min_action_prob = min_action_prob
        self.forget()

    def forget(self) -> None:
        """Begin a first comparison with the next version."""
        self.fidelity: Fidelity | None = None
        self._running: Comparison | None = None
        self._is_first = True

    def begins(self, context: Context) -> bool:
        """Whether a comparison begins with the next version, whose executable must then stay."""
        return bool(self._checked and context.visited) or self._is_due(context)

    def measure(
        self,
        context: Context,
        executable: Executable,
        graph: PolicyGraph,
        rng: np.random.Generator,
    ) -> Fidelity | None:
        """Continue the comparison, or begin one of this version: an executable of this graph.

        Returns:
            The distance of this version if versions are checked at once, else `fidelity`.

        Raises:
            RefusedTensors: this version's outputs are not finite.
        """
        begun = self._is_due(context)
        compare = partial(
            Comparison, context, executable, graph, rng=rng, min_action_prob=self._min_action_prob
        )
        if begun:
            self._running = compare(count=self._observations)
        if self._running is not None:
            try:
                self._running.advance(self._at_once)
            except RefusedTensors:
                self._running = None
                if begun:
                    raise
                # an earlier version's outputs overflow: the next version begins a comparison
            else:
                if self._running.is_over or self._is_first:
                    self.fidelity = self._running.fidelity
                if self._running.is_over:
                    self._running, self._is_first = None, False
        if not (self._checked and context.visited):
            return self.fidelity
        check = compare(count=self._checked)
        check.advance(self._checked)
        return check.fidelity

    def _is_due(self, context: Context) -> bool:
        return self._observations > 0 and self._running is None and bool(context.visited)


def _original_parameters(network: GraphNetwork, visited: Visited) -> NDArray[np.float32]:
    """The uncompressed policy's parameters `[N, P]`, computed in fp32."""
    import torch  # imported here: to run ONNX artifacts needs no torch

    with torch.inference_mode():
        parameters = network_outputs(network, visited)[network.graph.output]
    result: NDArray[np.float32] = parameters.numpy()
    return result
