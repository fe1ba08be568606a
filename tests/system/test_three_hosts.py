"""A run on three hosts with CURVE: a host dies, a host is cut off, a stranger connects."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.keys import make_keys
from tests.support.network_hosts import Hosts, open_hosts
from tests.support.system import CARTPOLE, Run, System

#: Numbers of the hosts.
LEARNS, ANSWERS, ACTS, STRANGER = 1, 2, 3, 4
ROLES = {
    LEARNS: ("monitor", "trainer"),
    ANSWERS: ("predictor", "compressor"),
    ACTS: ("actor",),
}
#: Longer than a connection lives on which nothing arrives, which is 8 s.
PARTITION_S = 12.0


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with open_hosts(4) as made:
        if made is None:
            pytest.skip("this system allows no network namespaces")
        yield made


class Cluster:
    """One run whose roles are on the hosts."""

    def __init__(self, system: System, hosts: Hosts, config: Path, keys: Path) -> None:
        self._system, self._hosts, self._config, self._keys = system, hosts, config, keys
        self._address = f"tcp://{hosts.address(LEARNS)}:5555"
        self._roles: dict[int, list[Run]] = {}

    @property
    def monitor(self) -> Run:
        return self._roles[LEARNS][0]

    def start(self, host: int) -> None:
        self._roles[host] = [self.role(host, role, self._keys) for role in ROLES[host]]

    def role(self, host: int, role: str, keys: Path) -> Run:
        return self._system.role(
            role,
            self._config,
            self._address,
            f"network.keys_dir={keys}",
            f"network.bind_host={self._hosts.address(host)}",
            within=self._hosts.within(host),
        )

    def kill(self, host: int) -> None:
        for role in self._roles[host]:
            role.signal(signal.SIGKILL)
        for role in self._roles[host]:
            role.wait()

    def learns_on(self) -> None:
        """Wait until steps acted from now on are learned."""
        last = self.monitor.last()
        self.monitor.wait_until_learning(beyond=last["env_steps"] + 500)

    def end(self) -> None:
        self.monitor.signal(signal.SIGTERM)
        for roles in self._roles.values():
            for role in roles:
                role.wait(within_s=20.0)
                assert "Traceback" not in role.output, role.output


def test_a_run_on_three_hosts_outlives_a_host_and_a_partition_and_admits_no_stranger(
    system: System, hosts: Hosts, tmp_path: Path
) -> None:
    config = system.config(
        CARTPOLE,
        actors={"inference": "predictor"},
        compressor={"chain": [{"quantize": "int8"}, "onnx"]},
    )
    make_keys(tmp_path / "keys")
    make_keys(tmp_path / "other")
    cluster = Cluster(system, hosts, config, tmp_path / "keys")
    for host in (ACTS, ANSWERS, LEARNS):
        cluster.start(host)
    cluster.learns_on()

    # without the cluster's keys there is no answer; each attempt is counted
    stranger = cluster.role(STRANGER, "actor", tmp_path / "other")
    cluster.monitor.wait_for(
        lambda: cluster.monitor.last()["monitor_refused_connections"] > 0, "a refusal is counted"
    )
    cluster.monitor.wait_for(
        lambda: "event=monitor_does_not_answer" in stranger.output, "the stranger says so"
    )
    stranger.signal(signal.SIGKILL)
    cluster.learns_on()

    # the trainer's host dies and returns
    cluster.kill(LEARNS)
    cluster.start(LEARNS)
    cluster.learns_on()
    assert cluster.monitor.last()["generation"] == 1

    # for a while no packet reaches the actors, while theirs arrive
    hosts.lose_packets_to(ACTS)
    healed_at = time.monotonic() + PARTITION_S
    cluster.monitor.wait_for(lambda: time.monotonic() > healed_at, "the end of the partition")
    stood_at = cluster.monitor.last()
    hosts.deliver_packets_to(ACTS)
    cluster.monitor.wait_until_learning(beyond=stood_at["env_steps"] + 500)
    # episodes come with heartbeats, over the new connection that will carry the stop, too
    cluster.monitor.wait_for(
        lambda: cluster.monitor.last()["episodes"] > stood_at["episodes"], "heartbeats arrive"
    )

    # every step is accounted for: learned, in flight, or dropped for a reason
    cluster.end()
    cluster.monitor.check_account()
