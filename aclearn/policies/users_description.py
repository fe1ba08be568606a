"""A network of the user's own, checked and described for processes without torch."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from aclearn.errors import ConfigError
from aclearn.extensions import load_extension
from aclearn.policies.module_spec import MOST_ONNX_CHARACTERS, ModuleSpec, arguments_text, packed
from aclearn.policies.policy_check import PolicyWarning, check_policy
from aclearn.policies.users_network import KEY, UsersNetwork, seeded, state_shapes
from aclearn.policies.users_onnx import exported
from aclearn.types import ObservationSpec


def describe_module(
    name: str,
    arguments: Mapping[str, Any],
    observation: ObservationSpec,
    parameters: int,
    critic: str,
) -> tuple[ModuleSpec, list[str]]:
    """The specification of a module of the user's own, and warnings.

    Raises:
        ConfigError: it cannot be made or breaks the contract of `check_policy`; one line.
    """
    network = load_extension(name, key=KEY)
    try:
        text = arguments_text(arguments)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"policy.arguments: {error}; use numbers, texts, lists") from error
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        try:
            check_policy(network, observation, parameters, critic=critic, arguments=arguments)
        except AssertionError as error:
            raise ConfigError(f"{KEY} {name!r}: {' '.join(str(error).split())}") from error
    said = [str(each.message) for each in found if issubclass(each.category, PolicyWarning)]
    spec = ModuleSpec(name, text, observation, parameters, critic, ())
    with seeded(0):
        module = UsersNetwork(spec).module
    tensors = tuple((name, tuple(weight.shape)) for name, weight in module.named_parameters())
    spec = replace(spec, tensors=tensors, state=state_shapes(module, observation, critic=critic))
    model, reason = exported(module, spec)
    onnx = "" if reason else packed(model)
    if len(onnx) > MOST_ONNX_CHARACTERS:
        said.append(
            f"{KEY} {name!r}: its ONNX graph without weights has {len(onnx)} characters, more than "
            f"the {MOST_ONNX_CHARACTERS} of a message, so that actors export each version again, "
            "which needs torch; make large constants nn.Parameter(…, requires_grad=False)"
        )
        onnx = ""
    return replace(spec, onnx=onnx), said
