"""Chains in configurations and on command lines."""

from __future__ import annotations

import sys
import types

import pytest

from compress import ONNX, ChainError, CompressorChain, Link, parse_chain, parse_words
from compress.methods.distiller import Distiller
from compress.methods.quantizer import Quantizer, has_vnni

INT8 = "int8" if has_vnni() else "int8-7bit"


@pytest.mark.parametrize(
    ("items", "name"),
    [
        ([], "none"),
        (["onnx"], "onnx"),
        (["int8", "onnx"], f"{INT8}>onnx"),
        (["bf16", "torchscript"], "bf16>torchscript"),
        ([{"quantize": "fp16"}], "fp16"),
        ([{"quantize": {"precision": "int8", "reduced_range": True}}], "int8-7bit"),
        ([{"int8": {"per_channel": True, "reduced_range": True}}], "int8-channels-7bit"),
        ([{"int8": None}], INT8),
        ([{"fp16": {"per_channel": True, "reduced_range": True}}], "fp16"),
        (["quantize"], INT8),
        (["distill", {"distill": "accerl-net1"}], "distill>distill=accerl-net1"),
        ([{"distill": {"student": "accerl-net2", "steps": 8}}], "distill=accerl-net2"),
        ([{"distill": {"student": "mlp", "hidden": [32, 16]}}], "distill=mlp-32-16"),
    ],
)
def test_items_become_links_in_their_order(items, name) -> None:
    assert parse_chain(items).id == name


def test_settings_reach_their_link() -> None:
    link = parse_chain([{"distill": {"steps": 5, "first_steps": 6, "time_limit_s": 0.5}}]).links[0]
    given = link.settings
    assert (given.steps, given.first_steps, given.time_limit_s) == (5, 6, 0.5)


def test_options_reach_the_chain(small) -> None:
    with pytest.raises(ChainError, match=r"min_action_prob: 0\.5 for each of 3 actions"):
        parse_chain(["onnx"], min_action_prob=0.5).plan(small.images)


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        (["onx"], r"the link 'onx' is unknown; expected one of prune, .*; did you mean onnx\?"),
        (["destill"], r"did you mean distill\?"),
        (["INT8"], "the link 'INT8' is unknown"),
        (["sparsify"], "the link 'sparsify' is unknown; expected one of prune, .* or module:Class"),
        ([{"prun": 0.5}], r"did you mean prune\?"),
        ([7], "expected a name or one 'name: setting' per item, got '7'"),
        ([["onnx"]], "expected a name or one 'name: setting' per item"),
        ([{"prune": 0.5, "onnx": None}], "expected a name or one 'name: setting' per item"),
        ([{}], "expected a name or one 'name: setting' per item"),
        ([{7: 8}], "the link '7' is unknown"),
        ([""], "the link '' is unknown"),
        ([{"distill": {"step": 4}}], "distill.step is not a known key; did you mean distill.steps"),
        ([{"distill": "accerl-nett1"}], "student: expected one of nature, .*mean accerl-net1"),
        ([{"int8": 4}], "quantize: too many settings without a name; the main one is precision"),
        ([{"int8": {"precision": "fp16"}}], "quantize: too many settings without a name"),
        ([{"onnx": 17}], "onnx: expected no settings, got .17."),
        ([{"onnx": {"opset": 17}}], "onnx: expected no settings, got .*opset"),
        (["no_such_module:Link"], r"'no_such_module' cannot be imported \(.*No module named"),
        (["compress:Nothing"], "'compress:Nothing': compress has no Nothing"),
        (["compress:"], "expected module:Name, .*got 'compress:'"),
        ([":Link"], "expected module:Name, .*got ':Link'"),
        ([".here:Link"], "'.here' cannot be imported"),
        (["builtins:dict"], "builtins:dict: expected a compress.Link, got dict"),
        (["compress:Link"], "compress:Link: .*abstract"),
    ],
)
def test_what_makes_no_chain_is_refused_with_what_was_expected(items, reason) -> None:
    with pytest.raises(ChainError, match=reason):
        parse_chain(["onnx", *items])


class Mine(Link):
    """A user's link."""

    def __init__(self, strength: float = 1.0, *, colour: str = "red") -> None:
        self.strength, self.colour = strength, colour

    @property
    def id(self) -> str:
        return f"mine={self.strength}"

    def plan(self, graph):
        return graph

    def compress(self, policy, context):
        return policy


def test_a_link_of_ones_own_is_named_by_its_module_and_class(monkeypatch) -> None:
    module = types.SimpleNamespace(Mine=Mine)
    monkeypatch.setitem(sys.modules, "somebodys_links", module)
    chain = parse_chain(
        [
            "somebodys_links:Mine",
            {"somebodys_links:Mine": 0.5},
            {"somebodys_links:Mine": {"strength": 2, "colour": "blue"}},
        ]
    )
    assert chain.id == "mine=1.0>mine=0.5>mine=2"
    assert [link.colour for link in chain.links] == ["red", "red", "blue"]
    assert parse_chain(parse_words("somebodys_links:Mine=3,onnx")).id == "mine=3>onnx"
    with pytest.raises(ChainError, match=r"somebodys_links:Mine: .*'taste'"):
        parse_chain([{"somebodys_links:Mine": {"taste": "sour"}}])


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("strength: expected a number"), "Picky: strength: expected a number$"),
        (ValueError(), r"Picky: ValueError\(\)$"),
        (KeyError("strength"), r"Picky: KeyError\('strength'\)$"),
        (ChainError("picky: not with this"), "^picky: not with this$"),
    ],
    ids=repr,
)
def test_what_a_link_of_ones_own_raises_when_it_is_made_is_a_refusal(
    monkeypatch, error, reason
) -> None:
    class Picky(Mine):
        def __init__(self) -> None:
            raise error

    module = types.SimpleNamespace(Picky=Picky)
    monkeypatch.setitem(sys.modules, "somebodys_links", module)
    with pytest.raises(ChainError, match=reason):
        parse_chain(["somebodys_links:Picky"])


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("", []),
        (" ", []),
        ("onnx", ["onnx"]),
        (
            "prune=0.5,distill=accerl-net1,int8,onnx",
            [{"prune": 0.5}, {"distill": "accerl-net1"}, "int8", "onnx"],
        ),
        (" low_rank=64 , fp16", [{"low_rank": 64}, "fp16"]),
        ("low_rank=1e-1", [{"low_rank": 0.1}]),
        ("distill=", [{"distill": ""}]),
        ("a:B=c=d", [{"a:B": "c=d"}]),
        ("fuse, prune: 0.5,onnx", ["fuse", {"prune": 0.5}, "onnx"]),
        (
            "prune: {sparsity: 0.75, per_layer: {convolutions: 0}}, onnx",
            [{"prune": {"sparsity": 0.75, "per_layer": {"convolutions": 0}}}, "onnx"],
        ),
    ],
)
def test_words_of_a_command_line_become_items(text, items) -> None:
    found = parse_words(text)
    assert found == items
    kinds = [[type(v) for v in i.values()] for i in found if isinstance(i, dict)]
    assert kinds == [[type(v) for v in i.values()] for i in items if isinstance(i, dict)]


@pytest.mark.parametrize("text", [",", " , ,", "int8,", "prune=0.5,,int8", "prune: {sparsity: 1"])
def test_words_that_are_no_chain_are_refused(text) -> None:
    reason = "is not YAML" if ":" in text else r"a comma without a link; expected e\.g\. prune"
    with pytest.raises(ChainError, match=f"chain: '{text}' .*{reason}"):
        parse_words(text)


def test_a_chain_in_words_is_the_chain_in_python() -> None:
    written = parse_chain(parse_words("distill=accerl-net2,int8,onnx"))
    built = CompressorChain().add(Distiller("accerl-net2")).add(Quantizer("INT8")).add(ONNX())
    assert written.id == built.id
    assert [link.state_key for link in written.links] == [link.state_key for link in built.links]
