"""The check of a user's own link: links that pass, and errors that it finds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aclearn.types import PolicyVersion
from compress import ONNX, ChainError, Context, Link, TorchScript, check_compressor
from tests.support.architectures import altered, parts_of
from tests.support.contexts import context_of
from tests.support.waiting import run_python


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


class Noisy(Scale):
    """Draws from the context's seed, and counts its draws in the context."""

    needs_observations = True

    def compress(self, policy, context):
        memory = context.memory(self.state_key)
        memory["calls"] = memory.get("calls", 0) + 1
        rng = np.random.default_rng((context.seed, memory["calls"]))
        observations = context.need_visited(self.id).observations
        noise = np.float32(rng.normal() + observations["observation"].mean())
        return policy.become(policy.graph, {n: t + noise for n, t in policy.tensors.items()})


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


@pytest.mark.parametrize("link", [Scale, Noisy, Wider, Measured, ONNX, TorchScript])
def test_links_that_keep_the_contract_pass(architecture, link) -> None:
    check_compressor(link(), architecture)


def test_without_an_architecture_a_small_preset_is_tried() -> None:
    check_compressor(Scale())


class WritesInto(Scale):
    def compress(self, policy, context):
        policy.tensors["policy.bias"][0] += 1
        return policy


class WritesTheSame(Scale):
    """Fails in the second version only."""

    def compress(self, policy, context):
        if policy.at.version == 2:
            policy.tensors["value.weight"][...] = 0
        return policy


class Stale(Scale):
    def compress(self, policy, context):
        return replace(policy, at=PolicyVersion(0, 1))


class Dice(Scale):
    def compress(self, policy, context):
        noise = np.float32(np.random.default_rng().normal())
        return policy.become(policy.graph, {n: t + noise for n, t in policy.tensors.items()})


class RemembersInItself(Scale):
    calls = 0

    def compress(self, policy, context):
        self.calls += 1
        shift = np.float32(self.calls)
        return policy.become(policy.graph, {n: t + shift for n, t in policy.tensors.items()})


class PromisesMore(Wider):
    def compress(self, policy, context):
        return policy


class MorePrecise(Scale):
    def plan(self, graph):
        return replace(graph, precision="fp16")

    def compress(self, policy, context):
        return policy


class OtherActions(Wider):
    def plan(self, graph):
        return graph.with_architecture(altered(graph.architecture, actions=7))


class OtherObservations(Wider):
    def plan(self, graph):
        architecture = graph.architecture
        dtype = "float32" if architecture.observation.sole.dtype == "uint8" else "uint8"
        return graph.with_architecture(altered(architecture, observation_dtype=dtype))


class ForgetsTheValue(Scale):
    def compress(self, policy, context):
        acting = {name: policy.tensors[name] for name in policy.graph.tensors()}
        return policy.become(policy.graph, acting)


class ReusesItsArrays(Scale):
    """Returns the same arrays for each version."""

    def __init__(self):
        self._room = {}

    def compress(self, policy, context):
        for name, tensor in policy.tensors.items():
            np.multiply(tensor, 0.5, out=self._room.setdefault(name, np.empty_like(tensor)))
        return policy.become(policy.graph, dict(self._room))


class ReusesItsDictionary(Scale):
    def __init__(self):
        self._room = {}

    def compress(self, policy, context):
        self._room.update({n: t * np.float32(0.5) for n, t in policy.tensors.items()})
        return policy.become(policy.graph, self._room)


class GaugesBeforeAnything(Measured):
    def gauges(self, memory):
        return {"mean": memory["mean"]}


class GaugesOfTwoWords(Measured):
    def gauges(self, memory):
        return {"weight mean": 1.0}


class GaugesInWords(Measured):
    def gauges(self, memory):
        return {"loss": "much"} if memory else {}


class GaugesWithoutEnd(Measured):
    def gauges(self, memory):
        return {"loss": float("inf")} if memory else {}


class NoGauges(Measured):
    def gauges(self, memory):
        return None


class WritesIntoObservations(Scale):
    def compress(self, policy, context):
        context.visited.observations["observation"][0] = 0
        return super().compress(policy, context)


class NotFinite(Scale):
    def compress(self, policy, context):
        broken = {
            **policy.tensors,
            "policy.bias": policy.tensors["policy.bias"] * np.float32("nan"),
        }
        return policy.become(policy.graph, broken)


class Doubles(Scale):
    def compress(self, policy, context):
        return policy.become(
            policy.graph, {n: t.astype(np.float64) for n, t in policy.tensors.items()}
        )


class Blind(Scale):
    def compress(self, policy, context):
        context.need_visited(self.id)
        return super().compress(policy, context)


class BlindWithoutACheck(Scale):
    def compress(self, policy, context):
        shift = np.float32(context.visited.observations["observation"].mean())
        return policy.become(policy.graph, {n: t + shift for n, t in policy.tensors.items()})


class OtherwiseWithoutObservations(Wider):
    def compress(self, policy, context):
        return policy if not context.visited else super().compress(policy, context)


class Nameless(Scale):
    id = ""


class TwoWords(Scale):
    id = "scale by half"


class LooksLikeTwo(Scale):
    id = "scale>onnx"


_OTHER_WIDTH = "plan promised another graph .*hidden.0: .*'units': 20.* promised, .*16.* made"
_BREACHES = {
    WritesInto: "changed the tensor 'policy.bias' of the policy it was given",
    WritesTheSame: "changed the tensor 'value.weight' of the policy it was given",
    WritesIntoObservations: "changed context.visited, which the other links read too",
    ReusesItsArrays: "changed the tensor 'convolutions.0.weight' of a policy that it had returned",
    ReusesItsDictionary: "of a policy that it had returned before; make new arrays for each",
    GaugesBeforeAnything: "gauges raised KeyError.*'mean'.* a heartbeat calls it before the first",
    GaugesOfTwoWords: "gauges: expected a name without spaces, got 'weight mean'",
    GaugesInWords: "gauges.'loss'.: expected a finite number, got 'much'",
    GaugesWithoutEnd: "gauges.'loss'.: expected a finite number, got inf",
    NoGauges: "gauges raised TypeError",
    Stale: "expected version PolicyVersion.generation=0, version=2., got .*version=1",
    Dice: "two runs with one seed gave different .*context.seed",
    RemembersInItself: "two runs with one seed gave different",
    PromisesMore: _OTHER_WIDTH,
    MorePrecise: "plan promised another .* 'fp16' promised",
    OtherActions: "observations and actions must stay as they are",
    OtherObservations: "observations and actions must stay as they are",
    ForgetsTheValue: "missing or unknown tensors .*value.bias",
    NotFinite: "weights.'policy.bias'.: not finite",
    Doubles: "expected float32 .* got float64",
    Blind: "without observations compress raised NeedsObservations.*set needs_obs",
    BlindWithoutACheck: "without observations compress raised KeyError",
    OtherwiseWithoutObservations: _OTHER_WIDTH,
    Nameless: "id: expected one printable word without '>', got ''",
    TwoWords: "id: expected one printable word",
    LooksLikeTwo: "id: expected one printable word",
}


@pytest.mark.parametrize("link", _BREACHES, ids=lambda link: link.__name__)
def test_each_breach_of_the_contract_is_found_and_named(small, link) -> None:
    with pytest.raises(AssertionError, match=_BREACHES[link]):
        check_compressor(link(), small.images)


def test_breaches_are_found_by_an_interpreter_that_takes_out_assertions() -> None:
    program = """
from compress import Link, check_compressor


class Nameless(Link):
    id = ""
    plan = compress = None


try:
    check_compressor(Nameless())
except AssertionError as error:
    assert False  # which is not even looked at
    print(error)
"""
    result = run_python("-O", "-c", program)
    assert result.stdout == "id: expected one printable word without '>', got ''\n", result.stderr


def test_a_refusal_is_no_breach(small) -> None:
    class ForImages(Scale):
        def plan(self, graph):
            if not parts_of(graph.architecture).convolutions:
                raise self.refuse("needs convolutions")
            return graph

    check_compressor(ForImages(), small.images)
    with pytest.raises(ChainError, match=r"scale=0\.5: needs convolutions"):
        check_compressor(ForImages(), small.flat)


def test_memory_belongs_to_one_link_at_one_place() -> None:
    context = Context()
    context.memory("0:scale")["mask"] = 1
    assert context.memory("0:scale") == {"mask": 1}
    assert context.memory("1:scale") == {} == Context().memory("0:scale")


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
