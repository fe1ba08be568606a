"""Arguments of an architecture, and variations of it."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from aclearn.policies import Architecture, Convolution, ResidualSection, build_architecture
from aclearn.types import ACTIVATIONS, OBSERVATION, ObservationSpec


class Parts(NamedTuple):
    """The arguments of `build_architecture`, read from a list of layers by the layers' names."""

    name: str
    observation: ObservationSpec
    actions: int
    convolutions: tuple[Convolution, ...]
    hidden: tuple[int, ...]
    activation: str
    separate_value: bool
    sections: tuple[ResidualSection, ...]
    critic: str
    normalise_observations: bool
    normalise_returns: bool


def parts_of(architecture: Architecture) -> Parts:
    layers = {layer.name: layer for layer in architecture.layers}

    def numbered(pattern: str):
        i = 0
        while pattern.format(i) in layers:
            yield layers[pattern.format(i)]
            i += 1

    return Parts(
        architecture.name,
        architecture.observation,
        architecture.parameter_count,
        tuple(Convolution(c.units, c.kernel, c.stride) for c in numbered("convolutions.{}")),
        tuple(layer.units for layer in numbered("hidden.{}")),
        next((layer.kind for layer in architecture.layers if layer.kind in ACTIVATIONS), "relu"),
        "value_hidden.0" in layers,
        tuple(
            ResidualSection(
                section.units,
                tuple(x.units for x in numbered(f"sections.{i}.blocks.{{}}.first")),
            )
            for i, section in enumerate(numbered("sections.{}.convolution"))
        ),
        architecture.critic,
        architecture.normalises_observations,
        architecture.normalises_returns,
    )


def altered(architecture: Architecture, **changes) -> Architecture:
    """The architecture with some arguments, or its sole leaf's shape or dtype, replaced."""
    if changed := {"observation_shape", "observation_dtype"} & set(changes):
        leaf = {key.removeprefix("observation_"): changes.pop(key) for key in changed}
        sole = replace(architecture.observation["observation"], **leaf)
        changes["observation"] = ObservationSpec({OBSERVATION: sole})
    return build_architecture(**(parts_of(architecture)._asdict() | changes))
