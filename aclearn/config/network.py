"""The groups `network` and `supervisor`."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

from pydantic import Field
from typing_extensions import override

from aclearn.config._fields import Group, Whole


def _port(description: str) -> Any:
    return Field(default=None, ge=1, le=65_535, description=f"TCP port of {description}")


class PortsConfig(Group):
    """TCP ports of roles; null: a free one, which the system chooses."""

    unrolls: Whole | None = _port("the trainer, to which actors send unrolls")
    weights: Whole | None = _port("the trainer, which answers with weights and observations")
    predictions: Whole | None = _port("a predictor, which actors ask for their actions")
    artifacts: Whole | None = _port("a compressor, which answers with compressed policies")


class NetworkConfig(Group):
    """Addresses and keys."""

    bind_host: str = Field(
        default="127.0.0.1",
        min_length=1,
        max_length=255,
        description="address at which roles listen on TCP; 0.0.0.0: all addresses; anything but "
        "loopback needs keys_dir",
    )
    announce_host: str | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        description="address or name at which others reach this machine, if it differs, for "
        "instance for published ports; null: bind_host, or this machine's name if that is 0.0.0.0",
    )
    keys_dir: str | None = Field(
        default=None,
        min_length=1,
        description="folder with this machine's keys from `aclearn keys` (CURVE, ZeroMQ's "
        "encryption), of which each role takes its own; null: no encryption",
    )
    plain_group: bool = Field(
        default=False,
        description="let trainer processes on several machines exchange gradients, which takes "
        "unencrypted connections between them: only in a network that you trust; false: all of "
        "them are on one machine",
    )
    ports: PortsConfig = Field(default_factory=PortsConfig)

    @override
    def contradictions(self, config: Any) -> Iterator[str]:
        if self.keys_dir is None and not _is_loopback(self.bind_host):
            yield (
                f"network.bind_host: {self.bind_host} can be reached from other machines, which "
                "takes keys; set network.keys_dir to their folder, or this to 127.0.0.1"
            )
        if self.announce_host in ("*", "0.0.0.0", "::"):
            yield (
                f"network.announce_host: no other machine can connect to {self.announce_host}; set "
                "it to this machine's address, as others reach it"
            )
        ports = self.ports
        predictors = config.predictor.processes if config.actors.inference == "predictor" else 0
        compressors = config.compressor.processes if config.compressor.rungs else 0
        listeners = {"network.ports.unrolls": ports.unrolls, "network.ports.weights": ports.weights}
        if config.monitor.port is not None:  # every role is on one machine
            listeners["monitor.port"] = config.monitor.port
            listeners["metrics.prometheus_port"] = config.metrics.prometheus_port
            for key, port, processes in (
                ("unrolls", ports.unrolls, 0 if config.resident.envs else config.ranks),
                ("predictions", ports.predictions, predictors),
                ("artifacts", ports.artifacts, compressors),
            ):
                listeners[f"network.ports.{key}"] = port
                if port is not None and processes > 1:
                    yield (
                        f"network.ports.{key}: {processes} processes of this machine cannot listen "
                        f"at one port, {port}; set it to null"
                    )
        taken: dict[int, str] = {}
        for key, port in listeners.items():
            if port is not None and (other := taken.setdefault(port, key)) != key:
                yield f"{key}: {port} is the port of {other} too; set it to another one, or to null"


class SupervisorConfig(Group):
    """Supervision of the processes of `aclearn train`."""

    max_restarts: Whole = Field(
        default=5,
        ge=0,
        le=1000,
        description="restarts of a role within the window before the run fails",
    )
    restart_window_s: float = Field(
        default=300.0, gt=0.0, description="window in which restarts are counted, in seconds"
    )
    backoff_first_s: float = Field(
        default=0.5,
        ge=0.0,
        le=3600.0,
        description="pause before the first restart, in seconds; doubles with each restart",
    )
    backoff_max_s: float = Field(
        default=10.0, ge=0.0, le=3600.0, description="longest pause before a restart, in seconds"
    )
    stop_timeout_s: float = Field(
        default=8.0,
        gt=0.0,
        le=600.0,
        description="time for roles to end before they are killed, in seconds; the run ends about "
        "a second later",
    )

    @override
    def contradictions(self, config: Any) -> Iterator[str]:
        if self.backoff_max_s < self.backoff_first_s:
            yield (
                f"supervisor.backoff_max_s: {self.backoff_max_s:g} s is shorter than "
                f"supervisor.backoff_first_s = {self.backoff_first_s:g} s; set it to "
                f"{self.backoff_first_s:g} s or more"
            )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        # only the resolver knows a name's or interface's address, so it counts as public
        return False
