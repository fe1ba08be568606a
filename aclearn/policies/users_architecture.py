"""The architecture of a network of the user's own."""

from __future__ import annotations

from aclearn.distributions import distribution_of
from aclearn.policies.architecture import ACTION_VALUES, POLICY, VALUE, Architecture
from aclearn.policies.layers import Layer
from aclearn.policies.module_spec import ModuleSpec
from aclearn.policies.presets import check_spaces
from aclearn.types import ActionSpec

#: Name of the layer, with which the names of its tensors begin.
NETWORK = "network"


def users_architecture(
    module: ModuleSpec,
    action_spec: ActionSpec,
    *,
    normalise_observations: bool = False,
    normalise_returns: bool = False,
) -> Architecture:
    """Leaves as float32 (images in [0, 1]), the module, its next state, parameters and critic.

    Args:
        normalise_returns: the module gives normalised values, which a dense layer, whose weights
            follow the statistics, and "denormalise" convert.

    Raises:
        ValueError: the module is for other actions.
        ConfigError: as `check_spaces`.
    """
    check_spaces(
        module.observation,
        action_spec,
        module.critic,
        normalise_observations=normalise_observations,
    )
    layers = [
        Layer(f"{NETWORK}.state_{i}", "state", (), units=units, next=f"{NETWORK}.next_state_{i}")
        for i, units in enumerate(module.state_units)
    ]
    states = tuple(layers)
    for name, leaf in module.observation.items():
        given = f"input.{name}"
        if normalise_observations and leaf.has_moments:
            layers.append(Layer(given, "normalise", (name,)))
        else:
            factor = 1.0 / leaf.high if leaf.dtype == "uint8" else 1.0
            layers.append(Layer(given, "scale", (name,), factor=factor))
    P = distribution_of(action_spec).parameter_count
    if module.parameters != P:
        raise ValueError(f"{module.name}: made for {module.parameters} parameters, expected {P}")
    reads = tuple(layer.name for layer in (*layers[len(states) :], *states))
    units = module.acting + module.values
    layers.append(Layer(NETWORK, "module", reads, units=units, module=module))
    start = P
    for state in states:
        layers.append(Layer(state.next, "part", (NETWORK,), units=state.units, start=start))
        start += state.units
    layers.append(Layer(POLICY, "part", (NETWORK,), units=P, head=True))
    critic = ACTION_VALUES if module.critic == "q" else VALUE
    part = f"{critic}_part" if normalise_returns else critic
    layers.append(Layer(part, "part", (NETWORK,), units=module.values, start=start, head=True))
    if normalise_returns:
        normalised = f"{critic}_normalised"
        # small first values: the first statistics are those of rewards; with 0 a module whose own
        # first values are 0 would never learn
        layers.append(
            Layer(normalised, "dense", (part,), units=module.values, gain=0.01, head=True)
        )
        layers.append(Layer(critic, "denormalise", (normalised,), head=True))
    return Architecture(module.name, module.observation, action_spec, tuple(layers))
