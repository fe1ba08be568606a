"""The check of a user's own link: links that pass, and errors that it finds."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace

import numpy as np
import pytest

from aclearn.types import PolicyVersion
from compress import ChainError, Context, Link, check_compressor, link_check
from correctors import corrector_check
from tests.support.architectures import altered, parts_of
from tests.support.contexts import context_of


class Scale(Link):
    """Multiplies every weight: the smallest link."""

    @property
    def id(self) -> str:
        return "scale=0.5"

    def plan(self, graph):
        return graph

    def compress(self, policy, context):
        halves = {name: tensor * np.float32(0.5) for name, tensor in policy.tensors.items()}
        return policy.become(self.plan(policy.graph), halves)


class Wider(Scale):
    """Promises another width and keeps it."""

    def plan(self, graph):
        return graph.with_architecture(altered(graph.architecture, hidden=(20,)))

    def compress(self, policy, context):
        graph = self.plan(policy.graph)
        specs = graph.tensors(with_value=True)
        return policy.become(graph, {n: np.ones(s.shape, s.dtype) for n, s in specs.items()})


class Measured(Scale):
    """Has gauges once it has made an artifact; needs no observations."""

    def compress(self, policy, context):
        context.memory(self.state_key)["mean"] = np.float32(policy.tensors["policy.weight"].mean())
        return super().compress(policy, context)

    def gauges(self, memory):
        return {"weight_mean": memory["mean"], "versions": 1} if memory else {}


@pytest.mark.parametrize("link", [Scale, Wider, Measured])
def test_links_that_keep_the_contract_pass(architecture, link) -> None:
    check_compressor(link(), architecture)


def _times(policy, factor, dtype=np.float32):
    return {name: tensor.astype(dtype) * dtype(factor) for name, tensor in policy.tensors.items()}


def _gives(tensors_of):
    def compress(link, policy, context):
        return policy.become(policy.graph, tensors_of(policy))

    return {"compress": compress}


def _writes_into_the_policy(link, policy, context):
    if policy.at.version == 2:  # in the second version only
        policy.tensors["policy.bias"][0] += 1
    return policy


def _writes_into_observations(link, policy, context):
    context.visited.observations["observation"][0] = 0
    return policy


def _remembers_in_itself(link, policy, context):
    link.calls = getattr(link, "calls", 0) + 1
    return policy.become(policy.graph, _times(policy, link.calls))


def _reuses_its_arrays(link, policy, context):
    room = vars(link).setdefault("room", {})
    for name, tensor in policy.tensors.items():
        np.multiply(tensor, 0.5, out=room.setdefault(name, np.empty_like(tensor)))
    return policy.become(policy.graph, dict(room))


def _reuses_its_dictionary(link, policy, context):
    room = vars(link).setdefault("room", {})
    room.update(_times(policy, 0.5))
    return policy.become(policy.graph, room)


def _reads_observations(link, policy, context):
    mean = context.visited.observations["observation"].mean()
    return policy.become(policy.graph, _times(policy, mean))


def _is_blind(link, policy, context):
    context.need_visited(link.id)
    return policy


def _is_wider_with_observations(link, policy, context):
    return Wider.compress(link, policy, context) if context.visited else policy


def _as_they_were(link, policy, context):
    return policy


def _altered(graph, **changes):
    return graph.with_architecture(altered(graph.architecture, **changes))


_WIDER = "plan promised another graph .*hidden.0: .*'units': 20.* promised, .*16.* made"
#: A breach → the base, its methods and attributes, and what the check says.
_BREACHES = {
    "writes into the policy": (
        Scale,
        {"compress": _writes_into_the_policy},
        "changed the tensor 'policy.bias' of the policy it was given",
    ),
    "writes into observations": (
        Scale,
        {"compress": _writes_into_observations},
        "changed context.visited, which the other links read too",
    ),
    "reuses its arrays": (
        Scale,
        {"compress": _reuses_its_arrays},
        "changed the tensor 'convolutions.0.weight' of a policy that it had returned",
    ),
    "reuses its dictionary": (
        Scale,
        {"compress": _reuses_its_dictionary},
        "of a policy that it had returned before; make new arrays for each",
    ),
    "gauges before anything": (
        Measured,
        {"gauges": lambda link, memory: {"mean": memory["mean"]}},
        "gauges raised KeyError.*'mean'.* a heartbeat calls it before the first",
    ),
    "gauges of two words": (
        Measured,
        {"gauges": lambda link, memory: {"weight mean": 1.0}},
        "gauges: expected a name without spaces, got 'weight mean'",
    ),
    "gauges in words": (
        Measured,
        {"gauges": lambda link, memory: {"loss": "much"} if memory else {}},
        "gauges.'loss'.: expected a finite number, got 'much'",
    ),
    "gauges without end": (
        Measured,
        {"gauges": lambda link, memory: {"loss": float("inf")} if memory else {}},
        "gauges.'loss'.: expected a finite number, got inf",
    ),
    "no gauges": (Measured, {"gauges": lambda link, memory: None}, "gauges raised TypeError"),
    "stale": (
        Scale,
        {"compress": lambda link, policy, context: replace(policy, at=PolicyVersion(0, 1))},
        "expected version PolicyVersion.generation=0, version=2., got .*version=1",
    ),
    "dice": (
        Scale,
        _gives(lambda policy: _times(policy, np.random.default_rng().normal())),
        "two runs with one seed gave different .*context.seed",
    ),
    "remembers in itself": (
        Scale,
        {"compress": _remembers_in_itself},
        "two runs with one seed gave different",
    ),
    "promises more": (Wider, {"compress": _as_they_were}, _WIDER),
    "promises halves": (
        Scale,
        {"plan": lambda link, graph: replace(graph, precision="fp16"), "compress": _as_they_were},
        "plan promised another .* 'fp16' promised",
    ),
    "other actions": (
        Wider,
        {"plan": lambda link, graph: _altered(graph, actions=7)},
        "observations and actions must stay as they are",
    ),
    "other observations": (
        Wider,
        {"plan": lambda link, graph: _altered(graph, observation_dtype="float32")},
        "observations and actions must stay as they are",
    ),
    "forgets the value": (
        Scale,
        _gives(lambda policy: {name: policy.tensors[name] for name in policy.graph.tensors()}),
        "missing or unknown tensors .*value.bias",
    ),
    "not finite": (
        Scale,
        _gives(lambda policy: _times(policy, np.nan)),
        "weights.'convolutions.0.weight'.: not finite",
    ),
    "doubles": (
        Scale,
        _gives(lambda policy: _times(policy, 1, np.float64)),
        "expected float32 .* got float64",
    ),
    "blind": (
        Scale,
        {"compress": _is_blind},
        "without observations compress raised NeedsObservations.*set needs_obs",
    ),
    "blind without a check": (
        Scale,
        {"compress": _reads_observations},
        "without observations compress raised KeyError",
    ),
    "other without observations": (Wider, {"compress": _is_wider_with_observations}, _WIDER),
    "nameless": (Scale, {"id": ""}, "id: expected one printable word without '>', got ''"),
    "two words": (Scale, {"id": "scale by half"}, "id: expected one printable word"),
    "looks like two": (Scale, {"id": "scale>onnx"}, "id: expected one printable word"),
}


@pytest.mark.parametrize("breach", _BREACHES)
def test_each_breach_of_the_contract_is_found_and_named(small, breach) -> None:
    base, changes, words = _BREACHES[breach]
    with pytest.raises(AssertionError, match=words):
        check_compressor(type("Broken", (base,), changes)(), small.images)


def test_no_breach_is_found_by_a_statement_that_an_optimising_interpreter_takes_out() -> None:
    for module in (link_check, corrector_check):
        tree = ast.parse(inspect.getsource(module))
        assert not [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]


def test_a_refusal_is_no_breach(small) -> None:
    class ForImages(Scale):
        def plan(self, graph):
            if not parts_of(graph.architecture).convolutions:
                raise self.refuse("needs convolutions")
            return graph

    check_compressor(ForImages(), small.images)
    with pytest.raises(ChainError, match=r"scale=0\.5: needs convolutions"):
        check_compressor(ForImages(), small.flat)


def test_samples_of_visited_observations_do_not_repeat(small) -> None:
    visited = np.arange(50, dtype=np.float32)[:, None]
    context = context_of(visited)

    def sample(count, seed):
        return context.sample("me", count, np.random.default_rng(seed)).observations["observation"]

    drawn = [sample(20, seed) for seed in (1, 1, 2)]
    assert all(len(np.unique(d)) == 20 and np.isin(d, visited).all() for d in drawn)
    assert np.array_equal(drawn[0], drawn[1]) and not np.array_equal(drawn[0], drawn[2])
    assert np.array_equal(sample(50, 0), visited)
    assert np.array_equal(sample(99, 0), visited)


def test_the_contexts_network_is_the_policy_that_entered_the_chain(small) -> None:
    import torch

    context = Context()
    with pytest.raises(RuntimeError, match="no policy has entered the chain yet"):
        _ = context.network
    for version in (1, 2):
        policy = small.policy(small.images, seed=version, version=version)
        context.begin(policy)
        network = context.network
        assert network is context.network
        for name, parameter in network.named_parameters():
            assert not parameter.requires_grad
            np.testing.assert_array_equal(parameter.numpy(), policy.tensors[name])
    with torch.no_grad():  # a copy: a link that trains it would not change the policy
        for parameter in network.parameters():
            parameter.zero_()
    assert np.abs(policy.tensors["policy.weight"]).max() > 0
