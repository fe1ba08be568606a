"""Whether a run can begin: asked before it has a folder or a process, when mistakes cost nothing.

`aclearn train` checks everything and tells its roles what it found. A role that was started by hand
checks its own part.
"""

from __future__ import annotations

import json
import os
import pkgutil

import zmq

from aclearn.config import Config
from aclearn.errors import EndpointError
from aclearn.launch import StopFlag
from aclearn.policies import Architecture
from aclearn.runs import RunFolder
from aclearn.types import EnvSpec
from aclearn.wire import bind_router, claim_ipc_path, parse_endpoint
from services.roles import ROLES
from services.runtime.message_sizes import check_sizes
from services.runtime.policy_factory import architecture_of, make_ladder
from services.runtime.probe import probe_environment
from services.runtime.role_context import RoleContext, cluster_keys
from services.runtime.torch_checks import (
    check_learning,
    check_predictor_device,
    check_with_torch_elsewhere,
)

#: Environment variable in which `aclearn train` tells its roles what their environments look like.
SPEC_VARIABLE = "ACLEARN_ENV_SPEC"


def check_run(config: Config, monitor: str, *, resume: bool, stop: StopFlag) -> EnvSpec | None:
    """Refuse a run that could not begin on this machine.

    Args:
        config: of the run.
        monitor: where its monitor will listen.
        resume: the run is there already.
        stop: set by signals; ends the wait for the environment.

    Returns:
        What its environments look like; None when `stop` was set meanwhile.

    Raises:
        AclearnError: something is to be mended; says what in one line.
    """
    if not resume:
        RunFolder.check_free(config.run.dir, str(config.run.name))
    if not config.run.deterministic:
        check_address(config, monitor)
    check_with_torch_elsewhere(config)
    spec = probe_environment(config, stop=stop)
    if spec is not None:
        architecture = check_policy(config, spec)
        if config.compressor.rungs:
            make_ladder(config, architecture)
    return spec


def check_role(context: RoleContext) -> EnvSpec | None:
    """Refuse a role that could not begin, before it has a run folder or is known to others.

    Each role checks the devices of its own: another's may be on another machine.

    Returns:
        What its environments look like; None for a role that need not know, or when `stop` was set
        meanwhile.

    Raises:
        AclearnError: something is to be mended; says what in one line.
    """
    if (found := os.environ.get(SPEC_VARIABLE)) is not None:
        return EnvSpec.from_dict(json.loads(found))
    spec = ROLES[context.role]
    if spec.check:
        pkgutil.resolve_name(spec.check)(context)
    if not spec.needs_environment:
        return None
    env_spec = probe_environment(context.config, stop=context.stop)
    if env_spec is not None:
        architecture = check_policy(context.config, env_spec)
        if "artifacts" in spec.endpoints:
            make_ladder(context.config, architecture)
    return env_spec


def check_monitor(context: RoleContext) -> None:
    """Refuse the address of a monitor, as `check_address`."""
    check_address(context.config, context.monitor)


def check_trainer(context: RoleContext) -> None:
    """Refuse addresses and a GPU that a trainer of this machine cannot have."""
    if parse_endpoint(context.monitor).transport == "tcp":
        server, _ = context.serve((), context.config.network.ports.unrolls)
        server.close()
    check_learning(context.config)


def check_predictor(context: RoleContext) -> None:
    """Refuse a GPU that a predictor of this machine cannot have."""
    check_predictor_device(context.config)


def check_address(config: Config, monitor: str) -> None:
    """Refuse an address at which no monitor could listen now.

    Raises:
        EndpointError: it is malformed, in use, not of this machine, or off loopback without keys.
    """
    keys = cluster_keys(config)
    endpoint = parse_endpoint(monitor)
    if endpoint.transport == "ipc":
        claim_ipc_path(endpoint.path)
        return
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        socket, _ = bind_router(context, monitor, keys=keys)
        socket.close(linger=0)
    except EndpointError as error:
        key = "" if config.monitor.port is None else "monitor.port: "
        raise EndpointError(f"{key}{error}") from error
    finally:
        context.destroy(linger=0)  # comes back when the address is free again


def check_policy(config: Config, spec: EnvSpec) -> Architecture:
    """The policy's architecture, checked against the environment and against what sockets carry.

    Raises:
        ConfigError: it does not fit; names the key.
    """
    architecture = architecture_of(config, spec)
    check_sizes(config, spec, architecture)
    return architecture
