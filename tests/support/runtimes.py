"""Policies for tests of runtimes."""

from __future__ import annotations

from aclearn.policies import describe_architecture
from aclearn.types import ObservationSpec


def preset(name):
    """The preset for 84×84 images, the mlp for flat observations."""
    if name == "mlp":
        return describe_architecture(
            name, observation=ObservationSpec.plain((4,), "float32"), actions=2
        )
    return describe_architecture(
        name, observation=ObservationSpec.plain((4, 84, 84), "uint8"), actions=6
    )


SMALL = preset("accerl-net3")
