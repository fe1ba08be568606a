"""Hosts on one machine: network namespaces with a router."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.waiting import DEADLINE_S


class Hosts:
    """`count` hosts, each in its own network, and a router between them.

    Made by `open_hosts`. Host i has the address 10.77.i.2 and reaches the others by the router.
    """

    def __init__(self, count: int) -> None:
        self.numbers = range(1, count + 1)
        # another test run on this machine has namespaces of its own
        self._prefix = f"aclearn-{os.getpid()}-"
        self._router = f"{self._prefix}router"

    def address(self, host: int) -> str:
        return f"10.77.{host}.2"

    def within(self, host: int) -> list[str]:
        """A prefix that runs a command on the host, in the same process."""
        return ["ip", "netns", "exec", self._host(host)]

    def lose_packets_to(self, host: int) -> None:
        """Drop packets to the host from now on, but not those from it."""
        _ip("-n", self._router, "route", "add", "blackhole", f"{self.address(host)}/32")

    def deliver_packets_to(self, host: int) -> None:
        _ip("-n", self._router, "route", "del", "blackhole", f"{self.address(host)}/32")

    def make(self) -> None:
        """Make namespaces, links and routes.

        Raises:
            OSError: there is no command `ip`.
            subprocess.CalledProcessError: the system does not allow it.
        """
        _ip("netns", "add", self._router)
        _ip("-n", self._router, "link", "set", "lo", "up")
        forwarding = "echo 1 > /proc/sys/net/ipv4/ip_forward"
        _run("ip", "netns", "exec", self._router, "sh", "-c", forwarding)
        for number in self.numbers:
            name, port = self._host(number), f"port{number}"
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
            # both ends are made inside, so that this machine's own network never has them
            _ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", port)
            _ip("-n", name, "link", "set", port, "netns", self._router)
            _ip("-n", name, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", self._router, "addr", "add", f"10.77.{number}.1/24", "dev", port)
            _ip("-n", self._router, "link", "set", port, "up")
            _ip("-n", name, "route", "add", "default", "via", f"10.77.{number}.1")

    def remove(self) -> None:
        found = _ip("netns", "list").split()
        for name in found:
            if name.startswith(self._prefix):
                _ip("netns", "del", name)

    def _host(self, number: int) -> str:
        return f"{self._prefix}{number}"


@contextmanager
def open_hosts(count: int) -> Iterator[Hosts | None]:
    """Hosts that are removed afterwards; None if this system allows no network namespaces."""
    hosts = Hosts(count)
    try:
        hosts.make()
    except FileNotFoundError:  # no command `ip`
        yield None
        return
    except subprocess.CalledProcessError:
        hosts.remove()
        yield None
        return
    try:
        yield hosts
    finally:
        hosts.remove()


def _ip(*arguments: str) -> str:
    return _run("ip", *arguments)


def _run(*command: str) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=DEADLINE_S)
    return done.stdout
