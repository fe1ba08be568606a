"""The named architectures, described for an environment's observations and actions."""

from __future__ import annotations

from aclearn.errors import ConfigError
from aclearn.policies.architecture import Architecture, Convolution, ResidualSection
from aclearn.types import ARCHITECTURES, refuse_recurrence


def _convolutions(*layers: tuple[int, int, int]) -> tuple[Convolution, ...]:
    return tuple(Convolution(*layer) for layer in layers)


# nature: Mnih et al. 2015. accerl-*: AcceRL Table 6, which prints filters, kernels and the fully
# connected width; the strides (4, 2, 1) are those of the Nature network that it starts from.
# impala-resnet: Espeholt et al. 2018, figure 3 right, without its LSTM.
_Body = tuple[Convolution, ...] | tuple[ResidualSection, ...]

_IMAGE_PRESETS: dict[str, tuple[_Body, tuple[int, ...]]] = {
    "nature": (_convolutions((32, 8, 4), (64, 4, 2), (64, 3, 1)), (512,)),
    "accerl-original": (_convolutions((32, 8, 4), (64, 4, 2), (64, 3, 1)), (2048,)),
    "accerl-net1": (_convolutions((16, 8, 4), (32, 4, 2)), (256,)),
    "accerl-net2": (_convolutions((8, 8, 4), (16, 4, 2)), (128,)),
    "accerl-net3": (_convolutions((4, 8, 4), (4, 4, 2)), (32,)),
    "impala-resnet": (tuple(ResidualSection(n, (n, n)) for n in (16, 32, 32)), (256,)),
}


def describe_architecture(
    name: str,
    *,
    observation_shape: tuple[int, ...],
    observation_dtype: str,
    actions: int,
    hidden: tuple[int, ...] | None = None,
) -> Architecture:
    """The preset `name` for these observations and actions.

    Args:
        name: one of `ARCHITECTURES`.
        observation_shape: `(C, H, W)` or `(D,)`.
        observation_dtype: "uint8" or "float32".
        actions: A.
        hidden: replaces the preset's hidden widths.

    Raises:
        ConfigError: the preset does not exist, asks for recurrence, or does not fit the
            observations.
    """
    if (refusal := refuse_recurrence(name)) is not None:
        raise ConfigError(f"policy.architecture: {refusal}")
    if name not in ARCHITECTURES:
        raise ConfigError(
            f"policy.architecture: {name!r} is unknown; expected one of {', '.join(ARCHITECTURES)}"
        )
    if name == "mlp":
        return Architecture(
            name,
            observation_shape,
            observation_dtype,
            actions,
            (),
            (64, 64) if hidden is None else tuple(hidden),
            activation="tanh",
            separate_value=True,
        )
    if len(observation_shape) != 3:
        raise ConfigError(
            f"policy.architecture: {name!r} needs images (C, H, W), but the environment's "
            f"observations have shape {observation_shape}; use policy.architecture: mlp. (An image "
            "is a Box of uint8 with two or three axes; everything else is flattened. Wrap an "
            "environment that shows pixels as floats so that it shows them as uint8.)"
        )
    body, preset_hidden = _IMAGE_PRESETS[name]
    convolutions = tuple(part for part in body if isinstance(part, Convolution))
    _, height, width = observation_shape
    for conv in convolutions:
        if min(height, width) < conv.kernel:
            raise ConfigError(
                f"policy.architecture: {name!r} cannot see images of shape {observation_shape}: "
                f"a {conv.kernel}×{conv.kernel} convolution would meet {height}×{width} pixels; "
                "use larger images (84×84 is usual) or policy.architecture: mlp"
            )
        height = (height - conv.kernel) // conv.stride + 1
        width = (width - conv.kernel) // conv.stride + 1
    return Architecture(
        name,
        observation_shape,
        observation_dtype,
        actions,
        convolutions,
        preset_hidden if hidden is None else tuple(hidden),
        sections=tuple(part for part in body if isinstance(part, ResidualSection)),
    )
