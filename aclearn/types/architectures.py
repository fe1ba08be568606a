"""The named architectures, as plain data."""

from __future__ import annotations

from typing import Any, NamedTuple


class Convolution(NamedTuple):
    """A square convolution without padding, followed by the activation."""

    filters: int
    kernel: int
    stride: int


class ResidualSection(NamedTuple):
    """A section of IMPALA's deep network (Espeholt et al. 2018, figure 3): halves the image.

    A 3 × 3 convolution, a 3 × 3 max-pool of stride 2, then residual blocks: activation, 3 × 3
    convolution, activation, 3 × 3 convolution, plus the block's input. All are padded by 1; the
    convolutions have stride 1, so the max-pool halves the size, rounded up. The next layer reads
    the last section's output through an activation.

    Attributes:
        filters: of the convolution and of each block's second one: their outputs are added.
        blocks: filters of each block's first convolution.
    """

    filters: int
    blocks: tuple[int, ...]


# nature: Mnih et al. 2015. accerl-*: AcceRL Table 6, which gives filters, kernels and the fully
# connected width; the strides (4, 2, 1) are those of the Nature network on which it is based.
# impala-resnet: Espeholt et al. 2018, figure 3 right, without its LSTM. minigrid: the convolutions
# of MiniGrid's documentation; its images are codes from 0 to 10. small-cnn: for images that are too
# small for nature, from 5 × 5. Its first convolution is that of MinAtar (Young & Tian 2019). Both
# have stride 1: without padding a longer one leaves out the last rows of some sizes.
_NATURE = (Convolution(32, 8, 4), Convolution(64, 4, 2), Convolution(64, 3, 1))
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "nature": {"convolutions": _NATURE, "hidden": (512,)},
    "accerl-original": {"convolutions": _NATURE, "hidden": (2048,)},
    "accerl-net1": {
        "convolutions": (Convolution(16, 8, 4), Convolution(32, 4, 2)),
        "hidden": (256,),
    },
    "accerl-net2": {
        "convolutions": (Convolution(8, 8, 4), Convolution(16, 4, 2)),
        "hidden": (128,),
    },
    "accerl-net3": {"convolutions": (Convolution(4, 8, 4), Convolution(4, 4, 2)), "hidden": (32,)},
    "impala-resnet": {
        "sections": tuple(ResidualSection(n, (n, n)) for n in (16, 32, 32)),
        "hidden": (256,),
    },
    "minigrid": {
        "convolutions": (Convolution(16, 2, 1), Convolution(32, 2, 1), Convolution(64, 2, 1)),
        "hidden": (64,),
        "pixel_range": 10.0,
    },
    "small-cnn": {
        "convolutions": (Convolution(16, 3, 1), Convolution(32, 3, 1)),
        "hidden": (128,),
    },
    "mlp": {"hidden": (64, 64), "activation": "tanh", "separate_value": True},
}
"""Values of `policy.architecture` → arguments of `build_architecture`."""

AUTO = "auto"
"""Value of `policy.architecture` and of `trainer.amp` that stands for another one."""

#: Functions after convolutions and hidden layers.
ACTIVATIONS = ("tanh", "relu", "elu", "silu")


class Memory(NamedTuple):
    """Cells behind a network's hidden layers, which keep a state from step to step.

    Attributes:
        kind: "lstm" or "gru".
        size: numbers of a cell's output.
        layers: cells, each of which reads the one before it.
    """

    kind: str
    size: int = 128
    layers: int = 1


#: Values of `policy.memory.kind`.
MEMORIES = ("lstm", "gru")
