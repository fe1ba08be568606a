"""What holds for every link: its contract on every kind of policy, its place, its settings."""

from __future__ import annotations

import pkgutil
from dataclasses import replace

import numpy as np
import pytest

from aclearn.policies import build_architecture
from aclearn.types import ActionSpec, ObservationSpec
from aclearn.types.action_spec import ActionPart
from compress import LINKS, ChainError, PolicyGraph, check_compressor, parse_chain
from compress.methods.distiller import Distiller
from tests.support.architectures import altered
from tests.support.distillation import smaller
from tests.support.sequences import recurrent

_BOX = ActionPart(shape=(2,), dtype="float32", low=(-1.0,) * 2, high=(1.0,) * 2)
#: Policies that go other ways through the links, from the small ones of these tests.
_POLICIES = {
    "images": lambda small: small.images,
    "flat": lambda small: small.flat,
    "residual": lambda small: small.residual,
    "bytes": lambda small: altered(small.flat, observation_dtype="uint8"),
    "q head": lambda small: altered(small.images, critic="q"),
    "action values": lambda small: altered(small.images, critic="q_values"),
    "dueling": lambda small: altered(small.flat, critic="dueling"),
    "lstm": lambda small: recurrent("lstm", preset="small-cnn", layers=2, hidden=(12,)),
    "gru": lambda small: recurrent("gru", hidden=(12, 10)),
    "normalised": lambda small: altered(
        small.flat, normalise_observations=True, normalise_returns=True
    ),
    "without its critic of actions": lambda small: build_architecture(
        "own",
        ObservationSpec.plain((3,), "float32"),
        ActionSpec.of((_BOX,), squash=True),
        hidden=(16, 16),
        critic="actions",
        std_from_observations=True,
    ).acting(),
}
_TRAINING = {"steps": 2, "first_steps": 3, "batch": 16}
_LINKS = {
    "prune": {"prune": {"sparsity": 0.5, "compensate": False, "reselect_every": 1}},
    "prune globally": {"prune": {"sparsity": 0.9, "scope": "global"}},
    "prune by activation": {
        "prune": {"sparsity": 0.3, "importance": "activation", "per_layer": {"hidden.0": 0.7}}
    },
    "low rank": {"low_rank": {"rank": 2, "convolutions": True}},
    "low rank of a share": {"low_rank": 0.5},
    "low rank of one layer": {"low_rank": {"rank": 1, "layers": ["hidden.0"]}},
    "int8": {"int8": {"reduced_range": True, "calibrate_every": 1}},
    "int8 by channel": {"int8": {"per_channel": True}},
    "fp16": "fp16",
    "bf16": "bf16",
    "distill": {"distill": _TRAINING},
    "distill a preset": {"distill": {"student": "mlp", "hidden": [6], **_TRAINING}},
    "fuse": "fuse",
    "torchscript": "torchscript",
    "onnx": "onnx",
}


@pytest.mark.parametrize("policy", _POLICIES)
@pytest.mark.parametrize("link", _LINKS)
def test_every_link_keeps_the_contract(small, link, policy) -> None:
    [made] = parse_chain([_LINKS[link]]).links
    if policy == "q head" and link.startswith("distill"):
        with pytest.raises(ChainError, match=r"distill.*: .* Q head; .* set policy\.critic: v"):
            made.plan(PolicyGraph(_POLICIES[policy](small)))
    else:
        check_compressor(made, _POLICIES[policy](small))


@pytest.mark.parametrize("link", ["prune", "low rank", "int8", "fuse"])
def test_a_preset_is_compressed_where_no_policy_is_given(link) -> None:
    check_compressor(parse_chain([_LINKS[link]]).links[0])


def test_a_student_of_an_architecture_keeps_the_contract(architecture) -> None:
    check_compressor(Distiller(smaller(architecture), **_TRAINING), architecture)


@pytest.mark.parametrize("name", LINKS)
def test_after_quantisation_or_a_static_graph_a_link_says_where_to_put_it(small, name) -> None:
    [link] = parse_chain([name]).links
    graph = PolicyGraph(small.images)
    remedy = "a chain has one static graph" if name in ("onnx", "torchscript") else "put it before"
    with pytest.raises(ChainError, match=f"comes after onnx.*{remedy}"):
        link.plan(replace(graph, runtime="onnx", static=True))
    quantised = replace(graph, precision="fp16")
    if name in ("onnx", "torchscript"):
        assert link.plan(quantised).precision == "fp16"
    else:
        with pytest.raises(ChainError, match=f"after the quantisation to fp16.*{remedy}"):
            link.plan(quantised)


_SETTINGS = {
    (name, key): field
    for name, address in LINKS.items()
    for key, field in pkgutil.resolve_name(address).model.model_fields.items()
}


@pytest.mark.parametrize(("link", "key"), _SETTINGS)
def test_every_setting_has_a_meaning_and_refuses_a_value_of_another_kind(link, key) -> None:
    assert _SETTINGS[link, key].description
    with pytest.raises(ChainError, match=rf"^{link}\.{key}.*: expected .*, got "):
        parse_chain([{link: {key: {"☃": []}}}])


_NO_SHARE = (0, 1, 1.5, -0.1, np.nan, np.inf, True, "0.5", None)


@pytest.mark.parametrize(
    ("link", "key", "values"),
    [
        ("prune", "sparsity", _NO_SHARE),
        ("prune", "per_layer", ({"hidden.0": 1.0}, {"hidden.0": np.nan})),
        ("prune", "round_to", (0, 1.5, True)),
        ("prune", "reselect_every", (0, 1.5)),
        ("prune", "measure_every", (0, True)),
        ("prune", "observations", (0, -1)),
        ("prune", "ridge", (0.0, np.inf, np.nan)),
        ("low_rank", "rank", (0, -1, 0.0, 1.0, 64.0, 1.5, -0.5, np.nan, np.inf, True, "64")),
        ("low_rank", "layers", ([], "hidden.0")),
        ("low_rank", "decide_every", (0, 2.5)),
        ("quantize", "precision", ("int4", "fp32", 8)),
        ("quantize", "calibrate_every", (0, True, None)),
        ("quantize", "calibration_observations", (-1, 2.5, "64")),
        ("distill", "student", ("accerl-nett1", "resnet", "lstm-64", 4)),
        ("distill", "steps", (0, 2.5, "four")),
        ("distill", "batch", (0, True)),
        ("distill", "observations", (0,)),
        ("distill", "renew_every", (-1,)),
        ("distill", "first_steps", (0,)),
        ("distill", "learning_rate", (0.0, np.nan)),
        ("distill", "time_limit_s", (-1.0,)),
        ("distill", "max_grad_norm", (np.inf,)),
        ("distill", "value_cost", (-0.5,)),
        ("distill", "entropy_cost", ("some", -1.0)),
        ("distill", "amp", ("fp16",)),
    ],
)
def test_values_beyond_their_bounds_are_refused_by_their_key(link, key, values) -> None:
    for value in values:
        with pytest.raises(ChainError, match=rf"^{link}\.{key}"):
            parse_chain([{link: {key: value}}])


@pytest.mark.parametrize("hidden", [[0], 16, "16"])
def test_widths_of_a_student_are_whole_numbers_and_of_a_preset(hidden) -> None:
    with pytest.raises(ChainError, match=r"hidden.*: expected list of whole numbers ≥ 1 or null"):
        Distiller("nature", hidden=hidden)
    with pytest.raises(ChainError, match="hidden: replaces widths of a preset; name a student"):
        Distiller(hidden=[16])
