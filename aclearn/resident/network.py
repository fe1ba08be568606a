"""A small policy inside the rollout kernel: dense layers whose weights every thread reads."""

from math import prod

from aclearn.policies import Architecture, Layer
from aclearn.policies.architecture import POLICY
from aclearn.policies.layers import needed_by, output_shapes
from aclearn.resident.kernels import Chooser
from aclearn.resident.rows import Rows
from aclearn.resident.warp_setup import wp

#: Widest layer whose outputs fit into registers.
WIDEST = 64
#: Longest observation of a policy inside a kernel; longer ones take minutes to compile.
LONGEST = 1024
_SAME = ("scale", "flatten")
_ACTIVATIONS = ("relu", "tanh")


def policy_layers(architecture: Architecture) -> tuple[Layer, ...]:
    """The layers on which the actions depend."""
    return needed_by(architecture.layers, POLICY)


def fits_in_kernel(architecture: Architecture) -> bool:
    """Whether the policy is a chain of dense layers of at most `WIDEST` units."""
    layers = policy_layers(architecture)
    known = {*_SAME, *_ACTIVATIONS, "dense", "log_std"}
    chain = all(len(layer.reads) == 1 for layer in layers)
    scaled = any(layer.kind == "scale" and layer.factor != 1.0 for layer in layers)
    widths = [layer.units for layer in layers if layer.kind == "dense"]
    shapes = [leaf.shape for leaf in architecture.observation.values()]
    flat = len(shapes) == len(shapes[0]) == 1 and shapes[0][0] <= LONGEST
    return (
        chain
        and flat
        and not scaled
        and all(layer.kind in known for layer in layers)
        and max(widths) <= WIDEST
    )


def weight_names(architecture: Architecture) -> list[str]:
    """The weights of the policy, in the order in which the kernel reads them, one after another."""
    return [
        name
        for layer in policy_layers(architecture)
        for name in layer.tensor_shapes((1,))  # names do not depend on the input
    ]


def network_chooser(rows: Rows, architecture: Architecture) -> Chooser:
    """Actions of the policy, computed by the thread of each environment.

    Its source has one array: the weights of `weight_names`, flat.
    """
    shapes = output_shapes(architecture.layers, architecture.observation)
    width = size = rows.buffers.observations.shape[-1]
    forward, at = None, 0
    for layer in policy_layers(architecture):
        if layer.kind in _SAME:
            continue
        (size,) = shapes[layer.reads[0]]
        if layer.kind == "dense":
            made = _dense(size, layer.units, at, layer.bias)
        elif layer.kind == "log_std":
            made = _log_std(size, layer.units, at)
        else:
            made = _activation(layer.kind, size)
        forward = made if forward is None else _after(forward, made, width)
        at += sum(prod(shape) for shape in layer.tensor_shapes((size,)).values())
    return _chooser(rows, forward)


def _chooser(rows, forward):
    observation, sample = rows.observation_type, rows.sampler.sample

    @wp.struct
    class Weights:
        weights: wp.array(dtype=wp.float32)

    @wp.func
    def choose(source: Weights, k: wp.int32, i: wp.int32, seen: observation, rng: wp.uint32):
        action, log_prob = sample(forward(seen, source.weights), rng)
        return action, log_prob

    return Chooser(Weights, choose)


def _after(first, second, size):
    given = wp.types.vector(size, wp.float32)

    @wp.func
    def both(x: given, weights: wp.array(dtype=wp.float32)):
        return second(first(x, weights), weights)

    return both


def _dense(size, units, at, bias):
    given, made = wp.types.vector(size, wp.float32), wp.types.vector(units, wp.float32)
    biases = at + size * units

    @wp.func
    def dense(x: given, weights: wp.array(dtype=wp.float32)) -> made:
        y = made()
        for j in range(units):
            total = wp.float32(0.0)
            if wp.static(bias):
                total = weights[biases + j]
            for i in range(size):
                total += weights[at + j * size + i] * x[i]
            y[j] = total
        return y

    return dense


def _log_std(size, units, at):
    given, made = wp.types.vector(size, wp.float32), wp.types.vector(size + units, wp.float32)

    @wp.func
    def log_std(x: given, weights: wp.array(dtype=wp.float32)) -> made:
        y = made()
        for i in range(size):
            y[i] = x[i]
        for i in range(units):
            y[size + i] = weights[at + i]
        return y

    return log_std


def _activation(kind, size):
    given = wp.types.vector(size, wp.float32)
    relu = kind == "relu"

    @wp.func
    def activation(x: given, weights: wp.array(dtype=wp.float32)) -> given:
        y = given()
        for i in range(size):
            if wp.static(relu):
                y[i] = wp.max(x[i], 0.0)
            else:
                y[i] = wp.tanh(x[i])
        return y

    return activation
