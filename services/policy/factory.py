"""Policies and their runtimes, from the configuration."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from aclearn.config import CompressorConfig, Config
from aclearn.distributions import distribution_of
from aclearn.envs import read_spec
from aclearn.errors import ConfigError
from aclearn.policies import (
    Architecture,
    choose_architecture,
    describe_architecture,
    users_architecture,
)
from aclearn.types import AUTO, DEFAULT_POLICY, ActionSpec, EnvSpec, UnrollSpec
from aclearn.wire import Endpoint
from compress import (
    ONNX,
    ChainError,
    CompressorChain,
    Fusion,
    OnnxRuntime,
    PolicyRuntime,
    Pruning,
    parse_chain,
)
from services.policy.users_network import users_module

_LOGGER = logging.getLogger(__name__)

#: Observations on which each artifact is compared if `compressor.max_kl` bounds its distance.
_MOST_CHECKED = 32


def architecture_of(config: Config, spec: EnvSpec | None = None) -> Architecture:
    """The policy's architecture for the configured environment.

    Args:
        spec: of the environment; without it, an environment is made and closed again.

    Raises:
        ConfigError: the preset does not fit, or the user's network breaks its contract.
        EnvironmentFailure: the environment cannot be made.
    """
    spec = spec or read_spec(config.env, timeout_s=config.actors.step_timeout_s)
    if config.policy.is_users:
        return users_architecture(
            users_module(config, spec),
            spec.action,
            normalise_observations=config.policy.normalise_observations,
            normalise_returns=config.loss.normalise_returns,
        )
    for key, default in (("std_from_observations", False), ("initial_std", 1.0)):
        if getattr(config.policy, key) != default and not spec.action.numbers:
            raise ConfigError(
                f"policy.{key}: the environment has no Box actions, and only those have standard "
                f"deviations ({spec.action}); remove it"
            )
    critic: str = config.loss.critic or config.policy.critic
    if critic == "q_values":
        if spec.action.kind != "discrete":
            raise ConfigError(
                f"loss.kind: {config.loss.kind} has one value for each of some discrete actions, "
                f"and the environment has {spec.action}; take sac or ppo"
            )
        if getattr(config.loss, "dueling", False):
            critic = "dueling"
    if critic in ("action", "actions") and spec.action.kind != "box":
        raise ConfigError(
            f"loss.kind: {config.loss.kind} has a critic of Box actions, and the environment has "
            f"{spec.action}; take ppo or actor_critic"
        )
    name = config.policy.architecture
    if name == AUTO:
        name, _ = choose_architecture(spec.observation, config.env.id)
    return describe_architecture(
        name,
        observation=spec.observation,
        actions=spec.action,
        hidden=config.policy.hidden,
        activation=config.policy.activation,
        separate_value=config.policy.separate_value,
        critic=critic,
        std_from_observations=config.policy.std_from_observations,
        initial_std=config.policy.initial_std,
        normalise_observations=config.policy.normalise_observations,
        normalise_returns=config.loss.normalise_returns,
        memory=config.policy.memory.memory,
    )


def unroll_spec_of(config: Config, spec: EnvSpec, policy: str = DEFAULT_POLICY) -> UnrollSpec:
    """The shapes of a policy's unrolls, for these agents."""
    recorded = config.actors.behaviour_parameters
    return UnrollSpec(
        spec,
        config.actors.unroll_length,
        state=tuple((size,) for size in architecture_of(config, spec).state),
        parameters=distribution_of(spec.action).parameter_count if recorded else 0,
        most_rows=config.actors.envs_per_group * spec.agents,
        policy=policy,
    )


def make_ladder(
    config: Config, architecture: Architecture, *, agents: int = 1
) -> list[CompressorChain]:
    """The chains of `compressor.ladder`, or that of `compressor.chain` and the uncompressed policy.

    Args:
        agents: of an environment; latency is measured for a group of environments.

    Raises:
        ChainError: one cannot work for this policy; names the key, the rung, the link and why.
    """
    compressor = config.compressor
    chains: list[CompressorChain] = []
    for rung, items in enumerate(compressor.rungs):
        try:
            bound = compressor.kl_bound(architecture.action_spec)
            chain = _chain(config, items, agents, bound) if items else uncompressed_chain()
            chain.plan(architecture)
        except ChainError as error:
            where = f"ladder: rung {rung}: " if compressor.ladder else "chain: "
            key = "" if str(error).startswith("min_action_prob: ") else where
            raise ChainError(f"compressor.{key}{error}") from error
        if items and chain.id in (ids := [each.id for each in chains]):
            raise ChainError(
                f"compressor.ladder: rungs {ids.index(chain.id)} and {rung} are both {chain.id} to "
                "actors, who could not tell them apart; remove one of them"
            )
        chains.append(chain)
    if chains and [] not in compressor.rungs:  # it ends every ladder
        uncompressed_chain().plan(architecture)
    _warn_of_min_action_prob(compressor, architecture.action_spec)
    return chains


def acting_chain(items: Sequence[Any], architecture: Architecture) -> CompressorChain:
    """The chain of `resident.chain`: `prune` links whose widths do not depend on the weights.

    Raises:
        ChainError: another link, or the policy cannot be pruned; names the key.
    """
    try:
        chain = parse_chain(items)
        for link in chain.links:
            if not isinstance(link, Pruning) or link.widths_from_weights:
                raise link.refuse("cannot act in resident environments; expected prune: 0.5")
        chain.plan(architecture)
    except ChainError as error:
        raise ChainError(f"resident.chain: {error}") from error
    return chain


def uncompressed_chain() -> CompressorChain:
    """The chain that makes an artifact of the uncompressed policy."""
    return CompressorChain(fidelity_observations=0).add(Fusion()).add(ONNX())


def _chain(
    config: Config, items: Sequence[Any], agents: int, kl_bound: float | None
) -> CompressorChain:
    compressor, network = config.compressor, config.network
    reached_at = Endpoint("tcp", (network.announce_host or network.bind_host).strip("[]"))
    return parse_chain(
        items,
        any_cpu=not reached_at.is_loopback,  # actors may be on other machines
        min_action_prob=compressor.min_action_prob,
        batch_sizes=_batch_sizes(config, agents),
        fidelity_observations=compressor.fidelity_observations,
        fidelity_every=compressor.fidelity_every,
        # a bound holds for each artifact
        checked_observations=0
        if kl_bound is None
        else min(_MOST_CHECKED, compressor.fidelity_observations),
    )


def warn_of_idle_links(chain: CompressorChain) -> None:
    """Warn of links that are not run: a student after them ignores their result.

    They stay in the chain's id, which artifacts, models and tables show.
    """
    if chain.without_effect:
        idle = ", ".join(link.id for link in chain.without_effect)
        _LOGGER.warning("event=links_without_effect chain=%s links=%r", chain.id, idle)


def _warn_of_min_action_prob(compressor: CompressorConfig, actions: ActionSpec) -> None:
    """Warn if min_action_prob alone moves the artifacts of a deterministic policy beyond the bound.

    If the policy is certain of one of A actions, its exact copy takes that action with probability
    1 − (A − 1)·min_action_prob, so that KL(π ‖ μ) = −ln(1 − (A − 1)·min_action_prob). The distances
    of several choices add up.
    """
    counts = actions.counts
    min_action_prob, most = compressor.min_action_prob, compressor.kl_bound(actions)
    distance = -sum(math.log1p(-(count - 1) * min_action_prob) for count in counts)
    if most is None or distance < most:
        return
    choices = max(counts)
    largest = -math.expm1(-most / len(counts)) / (choices - 1)
    _LOGGER.warning(
        "event=min_action_prob_beyond_max_kl detail='compressor.min_action_prob: %s for each of "
        "%d actions puts an exact copy of a policy "
        "that is certain of its actions %.3g nats away from it, and "
        "compressor.max_kl allows %s: so certain a policy is published "
        "uncompressed; set min_action_prob to less than %.3g, or max_kl to more than %.3g'",
        min_action_prob, choices, distance, most, largest, distance,
    )  # fmt: skip


def _batch_sizes(config: Config, agents: int) -> tuple[int, ...]:
    """The batch sizes of compressed policies: an actor's, or a predictor's smallest and largest."""
    group = config.actors.envs_per_group * agents
    if config.actors.inference == "local":
        return (group,)
    return tuple(sorted({group, config.predictor.max_batch}))


def make_runtime(
    architecture: Architecture,
    kind: str,
    *,
    threads: int = 1,
    device: str = "auto",
    max_batch: int = 128,
) -> PolicyRuntime:
    """The runtime that `actors.runtime` or `predictor.runtime` names.

    Args:
        kind: "onnx", which computes on the CPU, "torch" or "torch-amp".
        device: of torch: auto, cpu, cuda or cuda:N.
        max_batch: on a GPU, the largest captured batch.

    Raises:
        ConfigError: the GPU does not exist.
    """
    if kind == "onnx":
        return OnnxRuntime(architecture, threads=threads)
    # imported here: a process that runs ONNX only never loads torch
    import torch

    from aclearn.policies.devices import choose_amp, choose_device

    torch.set_num_threads(threads)
    chosen = choose_device(device, key="predictor.device")
    amp_dtype = choose_amp("auto" if kind == "torch-amp" else "off", chosen)
    if chosen.type == "cuda":
        from aclearn.policies.cuda_stream import CudaStream
        from compress.runtimes.cuda_runtime import CudaGraphRuntime

        return CudaGraphRuntime(
            architecture,
            partial(CudaStream, chosen),
            device=chosen,
            max_batch=max_batch,
            amp_dtype=amp_dtype,
        )
    from compress.runtimes.torch_runtime import TorchRuntime

    return TorchRuntime(architecture, amp_dtype=amp_dtype)
