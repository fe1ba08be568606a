"""`aclearn export` and `aclearn compress`: sends a saved policy through a chain."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from aclearn.distributions import distribution_of
from aclearn.rollout import Executable
from aclearn.types import Visited
from compress import (
    Artifact,
    ArtifactRuntime,
    CompressorChain,
    Context,
    Distiller,
    Fidelity,
    Policy,
    PolicyGraph,
    parse_chain,
    parse_words,
)
from compress.graphs.graph_network import GraphNetwork
from compress.policy import random_observations
from compress.sequences import answers, network_outputs
from services.evaluator.play import sequence_length, visit
from services.evaluator.saved_policy import SavedPolicy, SavedRun

_LOGGER = logging.getLogger(__name__)

#: Observations for the links, and as many others for comparisons.
_OBSERVATIONS = 512
#: Batch sizes of the table's latencies.
BATCH_SIZES = (1, 8, 32)
SEED = 1_000_003


def chain_of_words(items: Sequence[Any], *, any_cpu: bool = False) -> CompressorChain:
    """The chain in these items of a configuration."""
    # compared at the end, with observations that the links have not seen
    return parse_chain(items, any_cpu=any_cpu, batch_sizes=BATCH_SIZES, fidelity_observations=0)


def compress_with(
    saved: SavedPolicy, chain: CompressorChain, visited: Halves, passes: int
) -> tuple[Artifact, Executable]:
    """The artifact, compared on other observations than its links', and its runtime."""
    context = Context(visited.for_links, seed=SEED)
    policy = Policy.of(saved.architecture, saved.tensors, saved.at)
    for _ in range(passes):
        artifact = chain.compress(policy, context)
    if passes == 1:
        _warn_of_new_students(chain, context)
    executable = ArtifactRuntime(saved.architecture).load(artifact)
    others = visited.others
    if not artifact.graph.keeps_state(policy.graph.state):
        others = replace(others, state=())  # both begin with zeros, so that neither remembers more
    fidelity = Fidelity.of(
        distribution_of(saved.architecture.action_spec),
        others.measured(torch_parameters(policy.graph, policy.tensors, others)),
        others.measured(answers(executable, artifact.graph, others)),
        saved.at.version,
        None if others.masks is None else others.measured(others.masks),
    )
    compared = replace(artifact, fidelity=fidelity)
    return replace(compared, digest=compared.computed_digest()), executable


def _warn_of_new_students(chain: CompressorChain, context: Context) -> None:
    """Warn of students that trained in one pass only."""
    for link in chain.links:
        if isinstance(link, Distiller) and (steps := context.memory(link.state_key).get("steps")):
            _LOGGER.warning(
                "event=student_is_new chain=%s steps=%d detail='%s has learned in one pass; in a "
                "run it learns in every version, and --passes 100 is as much as 100 of them'",
                chain.id, steps, link.id,
            )  # fmt: skip


class Halves(NamedTuple):
    """Observations for links and for comparisons, from different games."""

    for_links: Visited
    others: Visited


def visit_run(run: SavedRun, policy: str) -> Halves:
    """Observations that a policy visits, for links and for comparisons."""
    saved = run.policies[policy]
    agents = saved.spec.agents
    two_games = 2 * agents * sequence_length(saved)
    visited = visit(run, policy, count=max(2 * _OBSERVATIONS, two_games), seed=SEED)
    # environments take turns, and their number is even; each has rows of all its agents
    second = np.arange(visited.sequences) // agents % 2 == 1
    return Halves(visited.take(~second), visited.take(second))


def sample_spaces(saved: SavedPolicy) -> Halves:
    """Random observations and masks for comparisons, none for links; without the environment."""
    spec, rng = saved.spec, np.random.default_rng(SEED)
    observations = random_observations(spec.observation, _OBSERVATIONS, rng)
    length = sequence_length(saved)
    if not spec.masked:
        return Halves(Visited(), Visited(observations, length=length))
    masks = [rng.random((_OBSERVATIONS, count)) < 0.5 for count in spec.action.counts]
    for mask in masks:  # one choice at least
        mask[np.arange(_OBSERVATIONS), rng.integers(mask.shape[1], size=_OBSERVATIONS)] = True
    return Halves(Visited(), Visited(observations, np.concatenate(masks, axis=1), length))


def torch_parameters(
    graph: PolicyGraph, tensors: Mapping[str, NDArray[Any]], visited: Visited
) -> NDArray[np.float32]:
    """The graph's output `[N, P]` with these tensors, computed by torch in fp32."""
    # tensors stored in halves are computed in fp32, as in the model
    network = GraphNetwork(graph, with_value=False).load(tensors).eval()
    with torch.inference_mode():
        parameters = network_outputs(network, visited)[graph.output]
    result: NDArray[np.float32] = parameters.numpy()
    return result


def with_runtime(words: str) -> list[Any]:
    """The items of the chain, with onnx at the end if they name no runtime."""
    items = parse_words(words)
    if items and items[-1] not in ("onnx", "torchscript"):
        items.append("onnx")
    return items
