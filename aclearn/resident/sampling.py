"""Distributions of actions on the device: as `aclearn.distributions`, as Warp functions."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from aclearn.distributions import distribution_of
from aclearn.distributions.gaussian import HALF_LOG_2PI, LOG_STD_RANGE
from aclearn.resident.warp_setup import wp
from aclearn.types import ActionSpec

LOG_2 = float(np.log(2.0))


@dataclass(frozen=True)
class Sampler:
    """Warp types and functions for the actions of one `ActionSpec`.

    Attributes:
        parameters: vector of the P parameters of a distribution.
        sampled: type of an action as it is sampled and recorded: int64, or a vector.
        taken: type of the action that an environment takes: int32, or a vector.
        sample: `(parameters, rng) → sampled, log-probability`.
        uniform: `(rng) → sampled`: every choice alike, numbers uniform between their bounds.
        to_env: `(sampled) → taken`, as `ActionSpec.to_env`.
    """

    parameters: Any
    sampled: Any
    taken: Any
    sample: Any
    uniform: Any
    to_env: Any


def sampler_of(spec: ActionSpec) -> Sampler:
    """The sampler of such actions."""
    parameters = wp.types.vector(distribution_of(spec).parameter_count, wp.float32)
    choose = _chooser(parameters)
    if spec.kind == "discrete":
        return _discrete(spec, parameters, choose)
    return _several(spec, parameters, choose)


def _chooser(parameters):
    @wp.func
    def choose(logits: parameters, start: wp.int32, count: wp.int32, u: wp.float32):
        """The choice at quantile `u` of a softmax over `count` logits, and its log-probability."""
        largest = logits[start]
        for a in range(1, count):
            largest = wp.max(largest, logits[start + a])
        total = wp.float32(0.0)
        for a in range(count):
            total += wp.exp(logits[start + a] - largest)
        left = u * total
        choice = wp.int32(-1)
        possible = wp.int32(0)
        for a in range(count):
            weight = wp.exp(logits[start + a] - largest)
            if weight > 0.0:
                possible = a
            if choice < 0 and left < weight:
                choice = a
            left -= weight
        if choice < 0:  # by rounding
            choice = possible
        log_prob = logits[start + choice] - largest - wp.log(total)
        return choice, wp.min(log_prob, 0.0)

    return choose


def _discrete(spec, parameters, choose):
    count, first = spec.counts[0], spec.parts[0].starts[0]

    @wp.func
    def sample(logits: parameters, rng: wp.uint32):
        choice, log_prob = choose(logits, 0, count, wp.randf(rng))
        return wp.int64(choice), log_prob

    @wp.func
    def uniform(rng: wp.uint32) -> wp.int64:
        return wp.int64(wp.randi(rng, 0, count))

    @wp.func
    def to_env(action: wp.int64) -> wp.int32:
        return wp.int32(action) + first

    return Sampler(parameters, wp.int64, wp.int32, sample, uniform, to_env)


def _several(spec, parameters, choose):
    """A sampler of choices, numbers, or choices and then numbers, as one vector."""
    choices, numbers, squash = len(spec.counts), spec.numbers, spec.squash
    size, logits = choices + numbers, sum(spec.counts)
    scalar, taken_scalar = (wp.float32, wp.float32) if numbers else (wp.int64, wp.int32)
    sampled, taken = wp.types.vector(size, scalar), wp.types.vector(size, taken_scalar)
    ints, floats = wp.types.vector(max(1, choices), wp.int32), wp.types.vector(size, wp.float32)
    starts = sum((part.starts for part in spec.parts), ())
    counts, firsts = ints(*(spec.counts or (0,))), ints(*(starts or (0,)))
    # at the places of the numbers: how they are brought between their bounds
    pad = np.zeros(choices)
    scalings = zip(*(part.scaling for part in spec.parts), strict=True)
    low, high, centre, half = (np.concatenate([pad, *parts]) for parts in scalings)
    lows, highs, centres, halves = floats(*low), floats(*high), floats(*centre), floats(*half)
    spread = floats(*np.isfinite(high - low).astype(np.float32))
    least, most = LOG_STD_RANGE

    @wp.func
    def sample(given: parameters, rng: wp.uint32):
        action = sampled()
        log_prob = wp.float32(0.0)
        start = wp.int32(0)
        for c in range(choices):
            choice, of_choice = choose(given, start, counts[c], wp.randf(rng))
            action[c] = scalar(choice)
            log_prob += of_choice
            start += counts[c]
        for n in range(numbers):
            log_std = wp.clamp(given[logits + numbers + n], least, most)
            z = wp.randn(rng)
            u = given[logits + n] + wp.exp(log_std) * z
            action[choices + n] = scalar(u)
            log_prob += -0.5 * z * z - log_std - HALF_LOG_2PI
            if squash:
                distance = wp.abs(u)
                log_prob -= 2.0 * (LOG_2 - distance - wp.log(1.0 + wp.exp(-2.0 * distance)))
        return action, log_prob

    @wp.func
    def uniform(rng: wp.uint32) -> sampled:
        action = sampled()
        for c in range(choices):
            action[c] = scalar(wp.randi(rng, 0, counts[c]))
        for n in range(numbers):
            if spread[choices + n] > 0.0:
                action[choices + n] = scalar(wp.randf(rng, -1.0, 1.0))
            else:
                action[choices + n] = scalar(wp.randn(rng))
        return action

    @wp.func
    def to_env(action: sampled) -> taken:
        result = taken()
        for c in range(choices):
            result[c] = taken_scalar(wp.int32(action[c]) + firsts[c])
        for n in range(choices, size):
            u = wp.float32(action[n])
            if squash:
                u = wp.tanh(u)
            result[n] = taken_scalar(wp.clamp(centres[n] + halves[n] * u, lows[n], highs[n]))
        return result

    return Sampler(parameters, sampled, taken, sample, uniform, to_env)
