"""Puts the faults of a plan into a run, and ends them."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from collections.abc import Callable, Mapping, Sequence

import psutil

from tests.chaos.plan import OF_DISK, OF_LINKS, Fault
from tests.chaos.relay import Relay, Weather
from tests.support.disk import Disk
from tests.support.system import Run

#: Address space of a process that starts: Python alone fits, its libraries do not.
_START_BYTES = 120 * 2**20
_LOOK_EVERY_S = 0.05
End = Callable[[], None]


class Chaos:
    """The faults of one run."""

    def __init__(self, run: Run, relays: Mapping[str, Relay], disk: Disk) -> None:
        self._run, self._relays, self._disk = run, relays, disk

    def play(self, faults: Sequence[Fault]) -> None:
        """Begin these faults together, and end each at its time; return when all are over."""
        begun = time.monotonic()
        ends = [(fault, self._begin(fault)) for fault in faults]
        full = any(fault.kind in OF_DISK for fault in faults)
        for fault, end in sorted(ends, key=lambda each: each[0].for_s):
            while time.monotonic() < begun + fault.for_s:
                if full:
                    self._disk.fill()  # again: a role that removes a file makes room
                time.sleep(_LOOK_EVERY_S)
                assert self._run.process.poll() is None, "the run has ended"
            if end is not None:
                end()
            full = full and fault.kind not in OF_DISK

    def _begin(self, fault: Fault) -> End | None:
        """Begin a fault; returns what ends it, None if it is over."""
        if fault.kind in OF_LINKS:
            relay = self._relays[fault.target]
            relay.set(Weather(fault.kind, fault.seed))  # type: ignore[arg-type]
            return lambda: relay.set(Weather())
        if fault.kind in OF_DISK:
            self._disk.fill()
            return self._disk.free
        begin: Callable[[str], End | None] = getattr(self, f"_{fault.kind}")
        return begin(fault.target)

    def _kill(self, name: str) -> None:
        self._send(name, signal.SIGKILL)

    def _segfault(self, name: str) -> None:
        self._send(name, signal.SIGSEGV)

    def _kill_all_but(self, name: str) -> None:
        for other, pid in self._run.pids().items():
            if other != name:
                _signal(pid, signal.SIGKILL)

    def _stop(self, name: str) -> End | None:
        pid = self._send(name, signal.SIGSTOP)
        return None if pid is None else lambda: _signal(pid, signal.SIGCONT)

    def _out_of_memory(self, name: str) -> End | None:
        pid = self._run.pids().get(name)
        return None if pid is None else _limited(pid, None)

    def _out_of_memory_at_start(self, name: str) -> End | None:
        pid = self._send(name, signal.SIGKILL)
        if pid is None:
            return None
        return _limited(self._run.wait_for_new(name, pid), _START_BYTES)

    def _send(self, name: str, number: int) -> int | None:
        """Signal a role; its process id, None if it is being started again just now."""
        pid = self._run.pids().get(name)
        if pid is not None:
            _signal(pid, number)
        return pid


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has just died of another fault
        os.kill(pid, number)


def _limited(pid: int, address_bytes: int | None) -> End:
    """Bound a process's address space, None: to what it has; returns what takes the bound away."""

    def limit(soft: int | None) -> None:
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):  # it has died of it
            _, hard = resource.prlimit(pid, resource.RLIMIT_AS)
            now = psutil.Process(pid).memory_info().vms if soft is None else soft
            resource.prlimit(pid, resource.RLIMIT_AS, (now, hard))

    limit(address_bytes)
    return lambda: limit(resource.RLIM_INFINITY)
