"""An estimate of the memory that the updates of resident environments take for each of them."""

from __future__ import annotations

import math

from aclearn.config import Config
from aclearn.policies import Architecture
from aclearn.policies.layers import output_shapes
from aclearn.resident.buffers import Buffers
from aclearn.types import OBSERVATION, EnvSpec

#: Numbers of 4 bytes of a step in a correction: values of both observations, log-probabilities,
#: ratios, targets, advantages, weights, and their intermediate results.
_CORRECTION = 12
#: Bytes of a step in a replay memory besides the rollout's: its version, its priority, two flags.
_IN_REPLAY = 18
#: Bytes of a step on the host: its version, its lag and its number, 8 each, and two flags.
_ON_HOST = 26


def learning_bytes(
    config: Config, spec: EnvSpec, architecture: Architecture, *, freezes: bool, on_gpu: bool
) -> dict[str, int]:
    """Bytes of each environment that the updates take besides the rollout, by what has them.

    Args:
        freezes: whether the updates of a batch share a correction; it is shuffled then.
        on_gpu: a minibatch is differentiated whole, not in chunks.
    """
    action, steps = architecture.action_spec, config.actors.unroll_length
    [width] = spec.observation[OBSERVATION].shape
    parameters = 4 * architecture.parameter_count
    step = Buffers.bytes_per_step(width, action)
    terms = {"parameters of the policy": parameters}
    if architecture.state:
        terms["states of the policy"] = 2 * 4 * sum(architecture.state)  # and the first ones
    if config.loss.source == "fifo":
        steps = config.loss.learned_together(config)
        # twice: the older steps are moved by way of a copy, and a checkpoint is one
        terms["loss.buffer_unrolls"] = 2 * steps * step
    if config.loss.source == "replay":
        whole = config.replay.size * (step + _IN_REPLAY)
        rows = spec.agents * (config.resident.envs or 1)
        terms["replay.size"] = min(whole, config.replay.max_bytes) // rows
    terms["the account"] = steps * _ON_HOST
    if freezes:
        correction = parameters + 4 * _CORRECTION
        # twice: the copy of the pass before is freed after the new one is made
        terms["targets and shuffled steps"] = steps * (correction + 2 * (step + correction))
    if on_gpu and freezes:
        # twice: drawn, and in the memory of the graph
        terms["orders of steps"] = 2 * 8 * steps * config.trainer.epochs
    if on_gpu:
        outputs = output_shapes(architecture.layers, architecture.observation).values()
        numbers = sum(map(math.prod, outputs)) + _CORRECTION
        # twice: with their gradients
        terms["activations"] = 2 * 4 * numbers * -(-steps // config.trainer.minibatches)
    return {name: spec.agents * size for name, size in terms.items()}
