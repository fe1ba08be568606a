"""`check_compressor`: tests the contract of a link."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.policies import Architecture, describe_architecture
from aclearn.types import ObservationSpec, PolicyVersion, Visited
from compress.errors import RefusedTensors
from compress.graphs.policy_graph import PolicyGraph, Tensors, check_tensors
from compress.link import Link, is_id, is_word
from compress.policy import Context, Policy, random_observations

#: Observations that a link gets, and those of a sequence.
_OBSERVATIONS, _LENGTH = 64, 8


def check_compressor(link: Link, architecture: Architecture | None = None) -> None:
    """Run a link of your own on small random policies and check the contract of `Link`.

    A policy with a memory gets sequences, as in a run.

    Args:
        architecture: the policy's; without it `accerl-net3` for 84 × 84 images and 6 actions.

    Raises:
        AssertionError: the link breaks the contract; says what was expected.
        ChainError: the link refuses this architecture.
    """
    architecture = architecture or describe_architecture(
        "accerl-net3", observation=ObservationSpec.plain((4, 84, 84), "uint8"), actions=6
    )
    rng = np.random.default_rng(0)
    seen = _visited(architecture, rng)
    observations = seen.observations
    policies = [_random_policy(architecture, version) for version in (1, 2)]
    kept = [_copied(policy) for policy in policies]
    name = link.id
    _require(is_id(name), f"id: expected one printable word without '>', got {name!r}")
    planned = link.plan(policies[0].graph)
    _check_gauges(link, {})
    visited = {name: leaf.copy() for name, leaf in observations.items()}
    results, made = [], []
    for _ in range(2):
        context = Context(seen, seed=3)
        for policy in policies:
            context.begin(policy)
            results.append(link.compress(policy, context))
            made.append(_copied(results[-1]))
            _check_gauges(link, context.memory(link.state_key))
    for policy, before in zip(policies, kept, strict=True):
        _require_same(policy, before, f"{name}: compress changed {{}} of the policy it was given")
    _require(
        all(np.array_equal(leaf, visited[name]) for name, leaf in observations.items()),
        f"{name}: compress changed context.visited, which the other links read too",
    )
    for i, result in enumerate(results):
        _check_result(link, architecture, planned, result, policies[i % 2].at)
    for result, before in zip(results, made, strict=True):
        breach = f"{name}: compress changed {{}} of a policy that it had returned before; make new "
        _require_same(result, before, breach + "arrays for each version")
    for first, again in zip(results[:2], results[2:], strict=True):
        breach = f"{name}: two runs with one seed gave different {{}}; draw random numbers from "
        _require_same(again, first.tensors, breach + "context.seed")
    if not link.needs_observations:
        result = _without_observations(link, policies[0])
        _check_result(link, architecture, planned, result, policies[0].at)


def _visited(architecture: Architecture, rng: np.random.Generator) -> Visited:
    observations = random_observations(architecture.observation, _OBSERVATIONS, rng)
    if not architecture.state:
        return Visited(observations)
    count = _OBSERVATIONS // _LENGTH
    state = (rng.normal(size=(count, units)) for units in architecture.state)
    return Visited(
        observations,
        length=_LENGTH,
        valid=rng.random(_OBSERVATIONS) < 0.9,
        state=tuple(part.astype(np.float32) for part in state),
    )


def _require(kept: bool, breach: str) -> None:
    if not kept:  # not by `assert`, which `python -O` takes out
        raise AssertionError(breach)


def _copied(policy: Policy) -> dict[str, NDArray[Any]]:
    return {name: np.array(tensor) for name, tensor in policy.tensors.items()}


def _require_same(policy: Policy, before: Tensors, breach: str) -> None:
    for name, old in before.items():
        now = policy.tensors.get(name)
        _require(
            now is not None and np.array_equal(now, old), breach.format(f"the tensor {name!r}")
        )


def _check_gauges(link: Link, memory: Mapping[str, Any]) -> None:
    try:
        gauges = dict(link.gauges(memory))
    except Exception as error:
        # whatever the user's own code raises
        raise AssertionError(
            f"{link.id}: gauges raised {error!r} with the memory {sorted(memory)}; a heartbeat "
            "calls it before the first version"
        ) from error
    for gauge, value in gauges.items():
        _require(
            is_word(gauge), f"{link.id}: gauges: expected a name without spaces, got {gauge!r}"
        )
        _require(
            isinstance(value, Real) and math.isfinite(value),
            f"{link.id}: gauges[{gauge!r}]: expected a finite number, got {value!r}",
        )


def _without_observations(link: Link, policy: Policy) -> Policy:
    context = Context(seed=3)
    context.begin(policy)
    try:
        return link.compress(policy, context)
    except Exception as error:
        # whatever the user's own code raises
        raise AssertionError(
            f"{link.id}: without observations compress raised {error!r}; if it needs them, set "
            "needs_observations = True"
        ) from error


def _check_result(
    link: Link,
    architecture: Architecture,
    planned: PolicyGraph,
    result: Policy,
    at: PolicyVersion,
) -> None:
    made = result.graph
    if link.widths_from_weights:
        planned = planned.with_architecture(made.architecture)
    promised, kept = _facts(planned), _facts(made)
    broken = {
        name: f"{name}: {promised.get(name)!r} promised, {kept.get(name)!r} made"
        for name in (*promised, *kept)
        if promised.get(name) != kept.get(name)
    }
    _require(
        not broken,
        f"{link.id}: plan promised another graph than compress made: {'; '.join(broken.values())}",
    )
    spaces = (made.architecture.spaces, architecture.spaces)
    _require(spaces[0] == spaces[1], f"{link.id}: observations and actions must stay as they are")
    _require(result.at == at, f"{link.id}: expected version {at}, got {result.at}")
    try:
        # quantised and static graphs leave the value out
        with_value = made.precision == "fp32" and not made.static
        check_tensors(made, result.tensors, with_value=with_value)
    except RefusedTensors as error:
        raise AssertionError(f"{link.id}: {error}") from error


def _facts(graph: PolicyGraph) -> dict[str, Any]:
    """A graph's properties by name, without ranks, which the weights may decide."""
    facts = graph.to_dict()
    architecture = facts.pop("architecture")
    layers = {layer.pop("name"): layer for layer in architecture.pop("layers")}
    return {**facts, **architecture, **layers, "ranks": ()}


def _random_policy(architecture: Architecture, version: int) -> Policy:
    rng = np.random.default_rng(version)
    tensors = {}
    for name, shape in architecture.tensor_shapes().items():
        spread = 0.1 if len(shape) == 1 else float(np.prod(shape[1:])) ** -0.5
        tensors[name] = rng.normal(0.0, spread, shape).astype(np.float32)
    return Policy.of(architecture, tensors, PolicyVersion(0, version))
