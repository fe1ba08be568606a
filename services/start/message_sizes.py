"""Checks, before a run, that its messages fit the frames of its sockets."""

from __future__ import annotations

from math import prod

from aclearn.config import Config
from aclearn.errors import ConfigError
from aclearn.policies import Architecture
from aclearn.types import EnvSpec
from aclearn.wire import MAX_FRAME_BYTES

_MIB = 1024 * 1024


def check_sizes(
    config: Config, spec: EnvSpec, architecture: Architecture, *, most_bytes: int = MAX_FRAME_BYTES
) -> None:
    """Check the sizes of unrolls, observations and weights.

    Args:
        config: gives T and B.
        spec: of the environment.
        architecture: of the policy.
        most_bytes: of one array.

    Raises:
        ConfigError: one of them is larger; names the keys to change.
    """
    envs, T = config.actors.envs_per_group, config.actors.unroll_length
    B = envs * spec.agents
    who = f"{envs} environments" + (f" of {spec.agents} agents" if spec.agents > 1 else "")
    predictor = config.actors.inference == "predictor"
    if predictor and spec.agents > 1 and config.predictor.max_batch < B:
        raise ConfigError(
            f"predictor.max_batch: {config.predictor.max_batch} observations do not hold one "
            f"request of an actor, which asks for {envs} environments of {spec.agents} agents at "
            f"once; set it to {B} or more"
        )
    leaves = spec.observation.values()
    # an unroll has each frame once, an action request the whole stack
    unroll = (T + 1) * B * max(leaf.nbytes // leaf.frame_stack for leaf in leaves)
    request = B * max(leaf.nbytes for leaf in leaves) if predictor else 0
    masks = (T + 1) * B * spec.action.mask_width if spec.masked else 0
    weights = {name: 4 * prod(shape) for name, shape in architecture.tensor_shapes().items()}
    largest = max(weights, key=weights.__getitem__)
    for what, size, mend in (
        (
            f"actors.unroll_length: the frames of an unroll of {T} steps of {who}",
            unroll,
            "lower it or actors.envs_per_group",
        ),
        (
            f"actors.unroll_length: the action masks of an unroll of {T} steps of {who}",
            masks,
            "lower it or actors.envs_per_group",
        ),
        (
            f"actors.envs_per_group: the observations of {who}",
            request,
            "lower it",
        ),
        (
            f"policy.architecture: the weights {largest} of {architecture.name}",
            weights[largest],
            "choose a smaller policy.hidden, another architecture or smaller observations",
        ),
    ):
        if size > most_bytes:
            raise ConfigError(
                f"{what} are {size / _MIB:.0f} MiB, and one message carries arrays of at most "
                f"{most_bytes / _MIB:.0f} MiB; {mend}"
            )
