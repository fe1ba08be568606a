"""The layer lists of the named architectures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log
from typing import Any

from aclearn.distributions import distribution_of
from aclearn.errors import ConfigError
from aclearn.policies.architecture import (
    ACTION,
    ACTION_VALUES,
    POLICY,
    SECOND_VALUE,
    VALUE,
    Architecture,
)
from aclearn.policies.layers import Layer, output_shapes
from aclearn.types import (
    ARCHITECTURES,
    ActionSpec,
    Convolution,
    LeafSpec,
    Memory,
    ObservationSpec,
    ResidualSection,
)

#: Standard deviation of a deterministic policy, before tanh: too small to matter to an environment,
#: and the unit in which compressed policies are compared with it.
_MODE_STD = 0.01
#: Gain of the first weights of policy and critic.
_HEAD_GAIN = 0.01


def build_architecture(
    name: str,
    observation: ObservationSpec,
    actions: int | ActionSpec,
    convolutions: Sequence[Convolution] = (),
    hidden: Sequence[int] = (),
    activation: str = "relu",
    separate_value: bool = False,
    sections: Sequence[ResidualSection] = (),
    critic: str = "v",
    std_from_observations: bool = False,
    initial_std: float = 1.0,
    normalise_observations: bool = False,
    normalise_returns: bool = False,
    pixel_range: float = 255.0,
    memory: Memory | None = None,
) -> Architecture:
    """An encoder for each leaf, hidden layers, a memory if any, then a policy head and a critic.

    An image's encoder has convolutions and residual sections of its own and flattens their output;
    a flat leaf stays as it is. The outputs of several encoders are concatenated. The layers of a
    sole leaf are named without it, others `<leaf>:<layer>`.

    Initial weights are orthogonal with gain √2, but 0.01 at the policy, for a nearly uniform first
    policy, 0.01 at the critic, whose first values are then below small rewards too, and 1 in the
    memory, whose forget gates begin with a bias of 1 (Jozefowicz et al. 2015). In residual
    sections the gain is 1 without a preceding activation, and √(2 / blocks) at the end of each
    block, which keeps the size of the sums.

    Args:
        observation: leaves of shape `(C, H, W)` or `(D,)`.
        actions: of the policy; a number means this many discrete actions.
        activation: one of `ACTIVATIONS`, after every convolution and hidden layer.
        sections: residual ones, applied in order after the convolutions.
        critic: "v", one value of a state, "q", one of each action, "q_values" or "dueling", the
            policy's parameters being these values, of one head or of two, "action", a Q(x, a) of
            Box actions with hidden layers of its own, or "actions", a pair of them whose encoder
            the policy does not share. With "action" the value is that of the policy's mode, and the
            deviations stay at `_MODE_STD`, since they have no part in it.
        std_from_observations: the policy head gives the deviations of Box actions too; without it
            they are weights of their own.
        initial_std: first value of those weights, without the logarithm.
        normalise_observations: floats, but not choices and switches, pass a layer "normalise"
            first.
        normalise_returns: the critic's head gives normalised values, which another layer converts.
        pixel_range: divides the numbers of uint8 leaves whose space has larger ones; others are
            divided by the largest number of their space.
        memory: cells behind the hidden layers; the critic reads them too, through its own hidden
            layers if it has some.
    """
    action_spec = ActionSpec.discrete(actions) if isinstance(actions, int) else actions
    units = distribution_of(action_spec).parameter_count
    layers: list[Layer] = []

    def add(name: str, kind: str, *reads: str, **settings: Any) -> str:
        """Add a layer that reads the previous one, unless others are given; returns its name."""
        if kind != "state":
            reads = reads or (layers[-1].name,)
        layers.append(Layer(name, kind, reads, **settings))
        return name

    root = 2**0.5
    blocks = sum(len(section.blocks) for section in sections)
    same: dict[str, Any] = {"kernel": 3, "padding": 1}

    def encode(leaf: str, of: LeafSpec, prefix: str, owner: str) -> str:
        """Add a leaf's encoder, after its input; returns the name of its last layer."""
        given = f"{prefix}input"
        if not owner:
            if normalise_observations and of.has_moments:
                add(given, "normalise", leaf)
            else:
                factor = 1.0 / min(of.high, pixel_range) if of.dtype == "uint8" else 1.0
                add(given, "scale", leaf, factor=factor)
        prefix = owner + prefix
        for i, (filters, kernel, stride) in enumerate(convolutions if of.is_image else ()):
            layer = f"{prefix}convolutions.{i}"
            add(layer, "convolution", given, units=filters, kernel=kernel, stride=stride, gain=root)
            given = add(f"{layer}.{activation}", activation)
        for i, section in enumerate(sections if of.is_image else ()):
            name = f"{prefix}sections.{i}"
            add(f"{name}.convolution", "convolution", given, units=section.filters, **same)
            given = add(f"{name}.max_pool", "max_pool", stride=2, **same)
            for j, width in enumerate(section.blocks):
                block = f"{name}.blocks.{j}"
                add(f"{block}.{activation}", activation)
                add(f"{block}.first", "convolution", units=width, gain=root, **same)
                add(f"{block}.first.{activation}", activation)
                gain = float((2 / blocks) ** 0.5)
                second = add(
                    f"{block}.second", "convolution", units=section.filters, gain=gain, **same
                )
                given = add(f"{block}.add", "add", given, second)
        if sections and of.is_image:
            given = add(f"{prefix}sections.{activation}", activation)
        return add(f"{prefix}flatten", "flatten", given)

    def encode_all(owner: str = "") -> str:
        """Add the encoders of all leaves; returns the name of the last layer."""
        if len(observation) == 1:
            ((leaf, of),) = observation.items()
            return encode(leaf, of, "", owner)
        encoded = [
            encode(leaf, of, f"{leaf.replace('.', '/')}:", owner)
            for leaf, of in observation.items()
        ]
        return add(f"{owner}concat", "concat", *encoded)

    body = encode_all()

    def tower(name: str, given: str) -> str:
        """Add hidden layers; returns the name of the last one."""
        for i, width in enumerate(hidden):
            add(f"{name}.{i}", "dense", given, units=width, gain=root)
            given = add(f"{name}.{i}.{activation}", activation)
        return given

    for_policy = for_value = tower("hidden", body)
    if memory is not None:
        body = for_policy = for_value = _remember(add, memory, for_policy)
    values_actions = critic in ("action", "actions")
    if separate_value and not values_actions and critic != "q_values":
        for_value = tower("value_hidden", body)
    if critic == "dueling":
        of_head: dict[str, Any] = {"gain": _HEAD_GAIN, "head": True}
        add("advantages", "dense", for_policy, units=units, **of_head)
        add("state_value", "dense", for_value, units=1, **of_head)
        add(POLICY, "dueling", "advantages", "state_value", head=True)
        return Architecture(name, observation, action_spec, tuple(layers))
    if critic == "action":
        initial_std = _MODE_STD
    if action_spec.numbers and not std_from_observations:
        mean = {"units": units - action_spec.numbers, "gain": _HEAD_GAIN, "head": True}
        add("policy_mean", "dense", for_policy, **mean)
        add(POLICY, "log_std", units=action_spec.numbers, initial=log(initial_std), head=True)
    else:
        add(POLICY, "dense", for_policy, units=units, gain=_HEAD_GAIN, head=True)
    if values_actions:
        if std_from_observations:
            add("policy_mean", "part", POLICY, units=action_spec.numbers)
        add(ACTION, "tanh", "policy_mean")
        if critic == "actions" and (convolutions or sections):
            body = encode_all("value_hidden.")
        pair = add("state_action", "concat", body, ACTION)
        for_value = tower("value_hidden", pair)
        if critic == "actions":
            second = tower("second_value_hidden", pair)
            add(SECOND_VALUE, "dense", second, units=1, gain=_HEAD_GAIN, head=True)
    if critic == "q_values":
        return Architecture(name, observation, action_spec, tuple(layers))
    head, values = (ACTION_VALUES, units) if critic == "q" else (VALUE, 1)
    if normalise_returns:
        # first values of 0: the first targets, and so the first statistics, are rewards alone
        for_value = add(f"{head}_normalised", "dense", for_value, units=values, gain=0.0, head=True)
        add(head, "denormalise", for_value, head=True)
    else:
        add(head, "dense", for_value, units=values, gain=_HEAD_GAIN, head=True)
    return Architecture(name, observation, action_spec, tuple(layers))


def _remember(add: Callable[..., str], memory: Memory, given: str) -> str:
    """Add the memory's cells; returns the name of the last one's output."""
    size = memory.size
    for i in range(memory.layers):
        cell = f"memory.{i}"
        state = add(f"{cell}.state", "state", units=size, next=f"{cell}.output")
        if memory.kind == "gru":
            of_input = add(f"{cell}.input", "dense", given, units=3 * size)
            of_state = add(f"{cell}.recurrent", "dense", state, units=3 * size)
            given = add(f"{cell}.output", "gru", of_input, of_state, state)
            continue
        kept = add(f"{cell}.kept", "state", units=size, next=f"{cell}.cell")
        of_input = add(f"{cell}.input", "dense", given, units=4 * size)
        of_state = add(f"{cell}.recurrent", "dense", state, units=4 * size, bias=False)
        gates = add(f"{cell}.gates", "add", of_input, of_state)
        cell_state = add(f"{cell}.cell", "lstm_cell", gates, kept)
        given = add(f"{cell}.output", "lstm_output", gates, cell_state)
    return given


def check_spaces(
    observation: ObservationSpec,
    actions: int | ActionSpec,
    critic: str,
    *,
    normalise_observations: bool,
) -> None:
    """Raise `ConfigError` unless a network of these spaces can have this critic and normaliser."""
    if normalise_observations and not any(leaf.has_moments for leaf in observation.values()):
        raise ConfigError(
            f"policy.normalise_observations: the environment's observations are {observation}, and "
            "have nothing to normalise: images are divided by their largest number instead, and "
            "choices and switches are 0 or 1; set it to false"
        )
    if critic == "q" and not isinstance(actions, int) and actions.kind != "discrete":
        raise ConfigError(
            "policy.critic: q has one value for each of some discrete actions, and the "
            f"environment has {actions}; set it to v"
        )


def describe_architecture(
    name: str,
    *,
    observation: ObservationSpec,
    actions: int | ActionSpec,
    hidden: tuple[int, ...] | None = None,
    activation: str | None = None,
    separate_value: bool | None = None,
    critic: str = "v",
    std_from_observations: bool = False,
    initial_std: float = 1.0,
    normalise_observations: bool = False,
    normalise_returns: bool = False,
    memory: Memory | None = None,
) -> Architecture:
    """The preset `name` for these observations and actions.

    The preset's hidden widths, activation and towers are replaced by those given here; see
    `build_architecture`.

    Raises:
        ConfigError: the preset does not exist or does not fit the observations, or the critic
            does not fit the actions.
    """
    if name not in ARCHITECTURES:
        raise ConfigError(
            f"policy.architecture: {name!r} is unknown; expected one of {', '.join(ARCHITECTURES)}"
        )
    chosen = {"hidden": hidden, "activation": activation, "separate_value": separate_value}
    preset = ARCHITECTURES[name] | {key: of for key, of in chosen.items() if of is not None}
    images = any(leaf.is_image for leaf in observation.values())
    if preset.keys() & {"convolutions", "sections"} and not images:
        raise ConfigError(
            f"policy.architecture: {name!r} needs images (C, H, W), but the environment's "
            f"observations are {observation}; use policy.architecture: auto or mlp. (An "
            "image is a Box of uint8 with two or three axes; everything else is flattened. Wrap an "
            "environment that shows pixels as floats so that it shows them as uint8.)"
        )
    preset |= {
        "critic": critic,
        "std_from_observations": std_from_observations,
        "initial_std": initial_std,
        "normalise_observations": normalise_observations,
        "normalise_returns": normalise_returns,
        "memory": memory,
    }
    check_spaces(observation, actions, critic, normalise_observations=normalise_observations)
    architecture = build_architecture(name, observation, actions, **preset)
    shapes = output_shapes(architecture.layers, observation)
    for layer in architecture.layers:
        if layer.kind != "convolution":
            continue
        _, *size = shapes[layer.reads[0]]
        if min(size) + 2 * layer.padding < layer.kernel:
            least = _smallest_side(preset.get("convolutions", ()))
            raise ConfigError(
                f"policy.architecture: {name!r} needs images of at least {least}×{least} pixels, "
                f"but the environment's observations are {observation}: the layer {layer.name} "
                f"would meet {size[0]}×{size[1]} pixels; use larger images, or "
                "policy.architecture: auto"
            )
    return architecture


def _smallest_side(convolutions: Sequence[Convolution]) -> int:
    """Height and width of the smallest images that these convolutions can see, in pixels."""
    side = 1
    for _, kernel, stride in reversed(convolutions):
        side = (side - 1) * stride + kernel
    return side
