"""Checks before a run has a folder or a process.

`aclearn train` checks everything and passes the result to its roles. A role started by hand checks
its own part.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import pkgutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import prod
from typing import NamedTuple

import zmq

from aclearn.config import Config, doubts
from aclearn.config.policy import memory_contradictions
from aclearn.control.strategies.load import check_strategies
from aclearn.errors import ConfigError, EndpointError
from aclearn.launch import StopFlag
from aclearn.metrics.indicators import load_indicators
from aclearn.metrics.sinks import load_sinks
from aclearn.policies import Architecture
from aclearn.runs import RunFolder, next_name
from aclearn.telemetry.cores import usable_cores
from aclearn.types import EnvSpec
from aclearn.wire import (
    MAX_FRAME_BYTES,
    Admission,
    ServerKeys,
    bind_router,
    claim_ipc_path,
    parse_endpoint,
)
from compress import PolicyGraph
from compress.graphs.onnx_graph import why_not
from services.policy.factory import acting_chain, architecture_of, make_ladder
from services.policy.torch_elsewhere import Questions, ask_torch
from services.policy.users_network import learn_network, unknown_network
from services.role import isolated
from services.role.automatic import amp_is_open, settled
from services.role.context import RoleContext, own_key
from services.role.torch_checks import check_learning, check_predictor_device, learning_may_fail
from services.roles import MONITOR, ROLES, roles_of
from services.start.probe import probe_environment, probe_evaluator

_LOGGER = logging.getLogger(__name__)

#: Correctors that need probabilities, and what stands in for them where actions have densities.
_OF_PROBABILITIES = {"tv_mask": "take ratio_mask", "epsilon_correction": "remove it"}
_MIB = 1024 * 1024

#: Environment variable in which `aclearn train` passes the environment's spec to its roles.
SPEC_VARIABLE = "ACLEARN_ENV_SPEC"


class Checked(NamedTuple):
    """A run that can start.

    Attributes:
        config: with values in place of `auto`.
        chosen: a sentence on each of these values.
    """

    config: Config
    chosen: list[str]
    spec: EnvSpec


def check_run(
    config: Config,
    monitor: str,
    *,
    resume: bool,
    stop: StopFlag,
    overwrite: bool = False,
    call: isolated.Call = isolated.call,
) -> Checked | None:
    """Check that a run can start on this machine; None if `stop` was set meanwhile.

    Two processes, one after the other, hold what is slow or the user's: the environment, and torch
    with the user's network, loss and correctors. None starts without need.

    Raises:
        AclearnError: a check failed; says in one line how to mend it.
    """
    if not resume:
        name = config.run.name or next_name(config.run.dir, config.experiment)
        RunFolder.check_free(config.run.dir, name, overwrite=overwrite)
    if not config.run.deterministic:
        check_address(config, monitor)
    _tell(doubts(config))
    _tell(_doubt_ranks(config))
    check_resident_extra(config)
    load_indicators(config.monitor.indicators)
    load_sinks(config.metrics, config.network.bind_host)
    check_strategies(config, roles_of(config))
    spec = probe_environment(config, stop=stop, call=call)
    if spec is None:
        return None
    probe_evaluator(config, spec, stop=stop, call=call)
    amp, asks = None, amp_is_open(config, spec)
    for policy, its in spec.by_policy(config.patterns).items():
        own = config.of_policy(policy)
        network = unknown_network(own, its)
        questions = Questions(network, learning_may_fail(own), asks and amp is None)
        said = ask_torch(own, questions, stop=stop, call=call)
        if stop:
            return None
        amp = said.get("amp", amp)
        if network:
            learn_network(network, said)
        with _of_policy(config, policy):
            architecture = check_policy(own, its)
            if own.compressor.rungs:
                make_ladder(own, architecture.acting())
            if own.resident.chain:
                acting_chain(own.resident.chain, architecture.acting())
    return Checked(*settled(config, spec, amp), spec)


def check_role(context: RoleContext) -> EnvSpec | None:
    """Check that a role can start, before it has a run folder or joins the run.

    Each role checks only its own devices: another's may be on another machine.

    Returns:
        The spec of its environments; None if the role does not need it, or `stop` was set
            meanwhile.

    Raises:
        AclearnError: a check failed; says in one line how to mend it.
    """
    if (found := os.environ.get(SPEC_VARIABLE)) is not None:
        return EnvSpec.from_dict(json.loads(found))
    spec = ROLES[context.role]
    if spec.check:
        pkgutil.resolve_name(spec.check)(context)
    if not spec.needs_environment:
        return None
    env_spec = probe_environment(context.config, stop=context.stop)
    if env_spec is None:
        return None
    for policy, its in env_spec.by_policy(context.config.patterns).items():
        own = context.config.of_policy(policy)
        if network := unknown_network(own, its):
            said = ask_torch(own, Questions(network), stop=context.stop)
            if context.stop:
                return None
            learn_network(network, said)
        with _of_policy(context.config, policy):
            architecture = check_policy(own, its)
            if "artifacts" in spec.endpoints:
                make_ladder(own, architecture.acting())
    return env_spec


@contextmanager
def _of_policy(config: Config, policy: str) -> Iterator[None]:
    """Name the one of several policies that an error is about."""
    try:
        yield
    except ConfigError as error:
        if not config.policies:
            raise
        raise ConfigError(f"policies.{policy}: {error}") from error


def check_monitor(context: RoleContext) -> None:
    """Check a monitor's indicators, sinks and strategies, and its address as `check_address`."""
    load_indicators(context.config.monitor.indicators)
    load_sinks(context.config.metrics, context.config.network.bind_host)
    check_strategies(context.config, roles_of(context.config))
    check_address(context.config, context.run.monitor)


def check_trainer(context: RoleContext) -> None:
    """Check a trainer's settings, and its addresses and GPU on this machine."""
    _tell(doubts(context.config))
    _tell(_doubt_ranks(context.config))
    if parse_endpoint(context.run.monitor).transport == "tcp":
        server, _ = context.serve("unrolls")
        server.close()
    check_learning(context.config)


def _doubt_ranks(config: Config) -> Iterator[str]:
    """A sentence, where more trainers than cores learn on this machine's CPU."""
    resident, cores = config.resident, usable_cores()
    threads = 1 if resident.envs is None else resident.threads or cores
    wanted, key, device = config.ranks * threads, "trainer.processes", config.trainer.device
    if resident.envs is not None:
        key, device = "resident.devices", resident.device
    if config.ranks > 1 and wanted > cores and not device.startswith("cuda"):
        each = "" if threads == 1 else f" of {threads} threads each"
        yield (
            f"{key}: {config.ranks} trainers{each} share the {cores} cores of this machine and "
            "wait for each other; fewer learn as fast, unless they have a GPU each or run on other "
            "machines"
        )


def _tell(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        _LOGGER.warning(sentence)


def check_predictor(context: RoleContext) -> None:
    """Check a predictor's GPU on this machine."""
    check_predictor_device(context.config)


def check_resident_extra(config: Config) -> None:
    """Raise `ConfigError` if `resident.envs` needs Warp, and it is not there."""
    if config.resident.envs is not None and importlib.util.find_spec("warp") is None:
        raise ConfigError(
            "resident.envs: environments on the trainer's device need NVIDIA Warp, which is not "
            'installed; install it with pip install "aclearn[resident]", or set this to null'
        )


def check_address(config: Config, monitor: str) -> None:
    """Check that a monitor can listen at this address now.

    Raises:
        EndpointError: it is malformed, in use, not of this machine, or off loopback without keys.
    """
    own = own_key(config, MONITOR.name)
    endpoint = parse_endpoint(monitor)
    if endpoint.transport == "ipc":
        claim_ipc_path(endpoint.path)
        return
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        keys = None if own is None else ServerKeys(own.pair, Admission(context))
        socket, _ = bind_router(context, monitor, keys=keys)
        socket.close(linger=0)
    except EndpointError as error:
        key = "" if config.monitor.port is None else "monitor.port: "
        raise EndpointError(f"{key}{error}") from error
    finally:
        context.destroy(linger=0)  # returns when the address is free again


def check_policy(config: Config, spec: EnvSpec) -> Architecture:
    """The policy's architecture, checked against the environment and the sizes of messages.

    Raises:
        ConfigError: it does not fit; names the key.
    """
    architecture = architecture_of(config, spec)
    check_sizes(config, spec, architecture.acting())
    for place, corrector in enumerate(config.correctors):
        instead = _OF_PROBABILITIES.get(corrector.name)
        if instead is not None and spec.action.numbers:
            raise ConfigError(
                f"correctors[{place}] {corrector.name}: it compares probabilities of actions, and "
                f"those of {config.env.id} are numbers, which have densities; {instead}"
            )
    _check_replay(config, spec)
    _check_memory(config, spec, architecture)
    return architecture


def _check_memory(config: Config, spec: EnvSpec, architecture: Architecture) -> None:
    """Raise `ConfigError` unless the policy's memory can be trained as it is configured."""
    trainer = config.trainer
    if not architecture.state:
        if trainer.burn_in_steps:
            raise ConfigError(
                f"trainer.burn_in_steps: {architecture.name} keeps no state; remove it"
            )
        return
    for sentence in memory_contradictions(config, "policy.architecture"):
        raise ConfigError(sentence)
    if (reason := why_not(PolicyGraph(architecture))) is not None:
        raise ConfigError(f"policy: {reason}")
    envs = config.resident.envs or trainer.unrolls_per_batch * config.actors.envs_per_group
    if trainer.minibatches > envs * spec.agents:
        raise ConfigError(
            f"trainer.minibatches: a batch has {envs * spec.agents} sequences, and those of a "
            f"policy with a memory stay whole; set it to {envs * spec.agents} or less, or "
            "trainer.unrolls_per_batch or actors.envs_per_group to more"
        )


def _check_replay(config: Config, spec: EnvSpec) -> None:
    """Raise `ConfigError` unless a batch of all agents' steps fits into the replay memory."""
    envs = config.resident.envs or config.trainer.unrolls_per_batch * config.actors.envs_per_group
    at_once = envs * spec.agents * config.actors.unroll_length
    if config.loss.source == "replay" and config.replay.size < at_once:
        raise ConfigError(
            f"replay.size: {at_once} new steps of {spec.agents} agents in each of {envs} "
            f"environments come at a time; set it to {at_once}"
        )


def check_sizes(
    config: Config, spec: EnvSpec, architecture: Architecture, *, most_bytes: int = MAX_FRAME_BYTES
) -> None:
    """Check the sizes of unrolls, observations and weights.

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
