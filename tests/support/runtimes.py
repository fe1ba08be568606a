"""Policies for tests of runtimes."""

from __future__ import annotations

from aclearn.policies import describe_architecture


def preset(name):
    """The preset for 84×84 images, the mlp for flat observations."""
    if name == "mlp":
        return describe_architecture(
            name, observation_shape=(4,), observation_dtype="float32", actions=2
        )
    return describe_architecture(
        name, observation_shape=(4, 84, 84), observation_dtype="uint8", actions=6
    )


SMALL = preset("accerl-net3")
