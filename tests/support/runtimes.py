"""Presets for tests of runtimes."""

from __future__ import annotations

from aclearn.policies import describe_architecture
from aclearn.types import ObservationSpec

#: Small images where a preset allows them: without strides, those of 84 pixels take seconds.
_SPACES = {
    "mlp": ((4,), "float32"),
    "small-cnn": ((3, 10, 10), "uint8"),
    "minigrid": ((3, 7, 7), "uint8"),
}


def preset(name):
    space = ObservationSpec.plain(*_SPACES.get(name, ((4, 84, 84), "uint8")))
    return describe_architecture(name, observation=space, actions=6)


SMALL = preset("accerl-net3")
