"""Policies: architectures as plain data (free of torch); `network` builds the torch module.

`PolicyModule` and `check_policy`, for networks of your own, load torch when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from aclearn.policies.architecture import Architecture
from aclearn.policies.choice import choose_architecture, halves_pay
from aclearn.policies.layers import Layer
from aclearn.policies.module_spec import ModuleSpec
from aclearn.policies.presets import build_architecture, describe_architecture
from aclearn.policies.users_architecture import users_architecture
from aclearn.types import Convolution, ResidualSection

if TYPE_CHECKING:
    from aclearn.policies.policy_check import PolicyWarning, check_policy
    from aclearn.policies.policy_module import PolicyModule

__all__ = [
    "Architecture",
    "Convolution",
    "Layer",
    "ModuleSpec",
    "PolicyModule",
    "PolicyWarning",
    "ResidualSection",
    "build_architecture",
    "check_policy",
    "choose_architecture",
    "describe_architecture",
    "halves_pay",
    "users_architecture",
]

_WITH_TORCH = {
    "PolicyModule": "policy_module",
    "PolicyWarning": "policy_check",
    "check_policy": "policy_check",
}


def __getattr__(name: str) -> Any:
    if name in _WITH_TORCH:
        return getattr(import_module(f"{__name__}.{_WITH_TORCH[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
