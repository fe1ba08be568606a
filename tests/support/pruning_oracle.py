"""Small architectures and a slow forward pass with fixed units, as an oracle for pruning."""

from __future__ import annotations

import numpy as np
import torch

from aclearn.policies import Convolution, ResidualSection, build_architecture
from aclearn.types import ObservationSpec
from compress import Policy
from compress.graphs.graph_network import GraphNetwork
from compress.graphs.units import keep_units, sources
from tests.support.architectures import altered, parts_of

IMAGES = build_architecture(
    "images",
    ObservationSpec.plain((2, 9, 9), "uint8"),
    3,
    (Convolution(6, 3, 2), Convolution(5, 2, 1)),
    (10, 7),
)
FLAT = build_architecture(
    "flat", ObservationSpec.plain((5,), "float32"), 3, (), (12, 9), "tanh", separate_value=True
)
ARCHITECTURES = {
    "images": IMAGES,
    "images-without-hidden": altered(IMAGES, hidden=()),
    "one-convolution-tanh": altered(
        IMAGES, convolutions=(Convolution(9, 4, 3),), hidden=(6,), activation="tanh"
    ),
    "residual": altered(
        IMAGES,
        convolutions=(),
        sections=(ResidualSection(5, (6, 4)), ResidualSection(4, (5,))),
    ),
    "flat-with-its-own-value": FLAT,
    "flat-shared": altered(FLAT, separate_value=False, activation="relu"),
    "flat-uint8": altered(FLAT, observation_dtype="uint8", hidden=(8,)),
}


def slow_forward(architecture, tensors, observations, fixed=None):
    """Logits, values and every layer's activations by plain loops in float64.

    `fixed` is layer → unit → its replaced output: a number, or one for each position.
    """
    parts = parts_of(architecture)
    fixed, given = fixed or {}, {}
    activate = np.tanh if parts.activation == "tanh" else lambda x: np.maximum(x, 0.0)
    x = observations.astype(np.float64)
    if architecture.observation.sole.dtype == "uint8":
        x = x / 255.0

    def weights(name):
        return (tensors[f"{name}.{kind}"].astype(np.float64) for kind in ("weight", "bias"))

    def hold(name, x):
        given[name] = x.copy()
        for unit, value in fixed.get(name, {}).items():
            x[:, unit] = value
        return x

    def convolve(name, x, stride, padding=0, source=None):
        weight, bias = weights(name)
        x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
        for unit, value in fixed.get(source, {}).items():
            x[:, unit] = np.where(x[:, unit] == 0.0, value, x[:, unit])  # to the edge and beyond
        kernel = weight.shape[2]
        size = (x.shape[2] - kernel) // stride + 1
        out = np.zeros((len(x), len(weight), size, size))
        for row in range(size):
            for column in range(size):
                top, left = row * stride, column * stride
                patch = x[:, :, top : top + kernel, left : left + kernel]
                for unit in range(len(weight)):
                    out[:, unit, row, column] = (patch * weight[unit]).sum((1, 2, 3)) + bias[unit]
        return out

    def pool(x):
        size = (x.shape[2] + 1) // 2
        out = np.zeros((*x.shape[:2], size, size))
        for row in range(size):
            for column in range(size):
                top, left = max(0, 2 * row - 1), max(0, 2 * column - 1)
                seen = x[:, :, top : 2 * row + 2, left : 2 * column + 2]
                out[:, :, row, column] = seen.max((2, 3))
        return out

    def dense(name, x):
        weight, bias = weights(name)
        out = np.zeros((len(x), len(weight)))
        for unit in range(len(weight)):
            out[:, unit] = (x * weight[unit]).sum(axis=1) + bias[unit]
        return out

    for i, conv in enumerate(parts.convolutions):
        x = hold(f"convolutions.{i}", activate(convolve(f"convolutions.{i}", x, conv.stride)))
    for i, section in enumerate(parts.sections):
        x = pool(convolve(f"sections.{i}.convolution", x, 1, 1))
        for j in range(len(section.blocks)):
            first, second = (f"sections.{i}.blocks.{j}.{end}" for end in ("first", "second"))
            inner = hold(first, activate(convolve(first, activate(x), 1, 1)))
            x = x + convolve(second, inner, 1, 1, source=first)
    x = activate(x) if parts.sections else x
    flat = x.reshape(len(x), -1)

    def tower(name):
        x = flat
        for i in range(len(parts.hidden)):
            x = hold(f"{name}.{i}", activate(dense(f"{name}.{i}", x)))
        return x

    policy = tower("hidden")
    value = tower("value_hidden") if parts.separate_value else policy
    return dense("policy", policy), dense("value", value)[:, 0], given


def graph_outputs(policy, observations):
    with torch.inference_mode():
        outputs = GraphNetwork(policy.graph).load(policy.tensors)(torch.from_numpy(observations))
    return tuple(output.numpy() for output in outputs)


def layers_of(architecture):
    parts = parts_of(architecture)
    names = {f"convolutions.{i}": c.filters for i, c in enumerate(parts.convolutions)}
    for i, section in enumerate(parts.sections):
        names |= {f"sections.{i}.blocks.{j}.first": n for j, n in enumerate(section.blocks)}
    names |= {f"hidden.{i}": width for i, width in enumerate(parts.hidden)}
    if parts.separate_value:
        names |= {f"value_hidden.{i}": width for i, width in enumerate(parts.hidden)}
    return names


def widths_of(architecture):
    parts = parts_of(architecture)
    inner = [width for section in parts.sections for width in section.blocks]
    return [c.filters for c in parts.convolutions] + inner + list(parts.hidden)


def smallest(scores, count):
    """The `count` units with the smallest scores; of equal ones the later."""
    return sorted(range(len(scores)), key=lambda unit: (scores[unit], -unit))[:count]


def norms(tensors, layer):
    weight, bias = tensors[f"{layer}.weight"], tensors[f"{layer}.bias"]
    return [
        float(np.sqrt((weight[u].astype(np.float64) ** 2).sum() + float(bias[u]) ** 2))
        for u in range(len(bias))
    ]


def least_important(architecture, small, tensors):
    """Layer → the units that pruning by magnitude must remove for that size."""
    before, after = layers_of(architecture), layers_of(small)
    return {
        name: smallest(norms(tensors, name), before[name] - after[name])
        for name in before
        if after[name] < before[name]
    }


def mean_of(architecture, given, layer, unit):
    """A unit's mean activation; for each position if a dense layer reads them one by one."""
    last = f"convolutions.{len(parts_of(architecture).convolutions) - 1}"
    axis = 0 if layer == last else None
    return given[layer][:, unit].mean(axis=axis)


def compress(link, architecture, tensors, context):
    policy = Policy.of(architecture, tensors)
    context.begin(policy)
    return link.compress(policy, context)


def patches_of(x, kernel, stride, padding):
    """The inputs of a convolution: `[N · positions, channels · kernel²]`, position by position."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    size = (x.shape[2] - kernel) // stride + 1
    rows = []
    for row in range(size):
        for column in range(size):
            top, left = row * stride, column * stride
            rows.append(x[:, :, top : top + kernel, left : left + kernel].reshape(len(x), -1))
    return np.concatenate(rows)


def reconstructed(architecture, tensors, removed, visited, ridge=0.03):
    """The narrow policy after `reconstruction`, by a least-squares solver and the slow forward.

    Args:
        removed: layer → the removed units.
    """
    kept = {
        layer: np.array([unit for unit in range(width) if unit not in removed.get(layer, ())])
        for layer, width in layers_of(architecture).items()
    }
    small, narrow = keep_units(architecture, tensors, kept)
    _, _, whole = slow_forward(architecture, tensors, visited)
    for layer, source in sources(architecture.layers).items():
        if not removed.get(source):
            continue
        weight = tensors[f"{layer}.weight"].astype(np.float64)
        reads = [whole[source], slow_forward(small, narrow, visited)[2][source]]
        if weight.ndim == 4:
            inner = layer.startswith("sections")
            stride = (
                1 if inner else parts_of(architecture).convolutions[int(layer.split(".")[1])].stride
            )
            reads = [patches_of(x, weight.shape[2], stride, int(inner)) for x in reads]
        given, read = (x.reshape(len(x), -1) for x in reads)
        units = kept.get(layer, slice(None))
        wanted = (given @ weight.reshape(len(weight), -1).T + tensors[f"{layer}.bias"])[:, units]
        now = narrow[f"{layer}.weight"].astype(np.float64)
        missing = wanted - read @ now.reshape(len(now), -1).T - narrow[f"{layer}.bias"]
        mean = read.mean(0)
        centred = read - mean
        penalty = ridge * (centred**2).sum() / min(read.shape)
        change = np.linalg.lstsq(
            np.concatenate([centred, np.sqrt(penalty) * np.eye(read.shape[1])]),
            np.concatenate([missing - missing.mean(0), np.zeros((read.shape[1], len(now)))]),
            rcond=None,
        )[0].T
        narrow[f"{layer}.weight"] = (now + change.reshape(now.shape)).astype(np.float32)
        narrow[f"{layer}.bias"] = (
            narrow[f"{layer}.bias"] + missing.mean(0) - change @ mean
        ).astype(np.float32)
    return narrow


def assert_tensors_close(found, expected, **options):
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        np.testing.assert_allclose(found[name], tensor, err_msg=name, **options)
