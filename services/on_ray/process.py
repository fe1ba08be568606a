"""A role's process on a node of a Ray cluster, for the supervisor of this machine."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from aclearn.files import FULL_DISK, open_to_write
from aclearn.launch import RoleCommand, describe_exit
from services.on_ray.cluster import RayCluster, unplaced_words
from services.on_ray.host import Look, Order
from services.on_ray.room import Need, Node

#: Seconds that a call waits on the node for the process's exit.
_LOOK_S: Final = 1.0
#: Seconds for a node to say that a killed process has ended; then the actor is killed.
_KILL_WITHIN_S: Final = 3.0
#: Seconds without a node after which a process is named, and asked for again if one has joined.
_WAITS_S: Final = 30.0
#: Seconds for the files of a folder.
_FOLDER_WITHIN_S: Final = 120.0
#: Status of a process whose node or actor is gone.
_LOST: Final = -int(signal.SIGKILL)


class ProcessOnRay:
    """A `Process`: Ray chooses the node; the output is appended to the log of this machine.

    Args:
        detached_as: name under which it outlives this driver. One of that name is taken over. A
            process that is asked for again, since a node has joined, has `.1`, … behind it.
        is_left: there is one of that name, which is not asked for again.

    Raises:
        OSError: the log cannot be opened.
    """

    def __init__(
        self,
        cluster: RayCluster,
        command: RoleCommand,
        order: Order,
        need: Need,
        detached_as: str | None = None,
        *,
        is_left: bool = False,
    ) -> None:
        self.need = need
        self.pid: int | None = None
        self._cluster, self._log_path = cluster, command.log_path
        command.log_path.parent.mkdir(parents=True, exist_ok=True)
        self.log_start = self._log(b"")
        #: None once it has a node: it may be large.
        self._order: Order | None = None if is_left else order
        self._name, self._asked_again = detached_as, 0
        self._ask(order, detached_as)
        self._look: Any = None
        self._status: int | None = None
        self._words: str | None = None
        self._killed_at: float | None = None
        #: Id of its node; None before it has one.
        self.node_id: str | None = None
        self.asked_at = time.monotonic()

    def _ask(self, order: Order, name: str | None) -> None:
        self._asked_at = time.monotonic()
        self._asked = {node.id for node in self._cluster.nodes()}
        self._actor = self._cluster.start(order, self.need, detached_as=name)
        self._started: Any = self._actor.place.remote()

    def _ask_again(self) -> None:
        """Ask Ray again if a node has joined: it knows those of the first request only."""
        if self._order is None or self.need.node_id is not None:
            return
        # until then it may have a node, and import there
        if time.monotonic() - self._asked_at < _WAITS_S:
            return
        if not {node.id for node in self._cluster.nodes()} - self._asked:
            return
        self._cluster.end(self._actor)
        self._asked_again += 1  # the old name is free some time later
        name = None if self._name is None else f"{self._name}.{self._asked_again}"
        self._ask(self._order, name)

    def exited(self) -> bool:
        """Whether it has ended, by what its node has said so far; never blocks."""
        if self._status is None:
            try:
                self._hear()
            except self._cluster.lost as error:
                self._lose(error)
            if self._killed_at is not None and self._status is None:
                self._give_up_late()
        return self._status is not None

    def _hear(self) -> None:
        if self.node_id is None:
            if not self._cluster.ready(self._started):
                self._ask_again()
                return
            self.node_id, self.pid = self._cluster.answer(self._started)
            self._order = None
            self._look = self._actor.look.remote(_LOOK_S)
        while self._status is None and self._cluster.ready(self._look):
            look: Look = self._cluster.answer(self._look)
            if look.output:
                try:
                    self._log(look.output)
                except OSError as error:
                    if error.errno not in FULL_DISK:  # the log continues once there is room
                        raise
            if look.status is None:
                self._look = self._actor.look.remote(_LOOK_S)
            else:
                self._status = look.status

    def _lose(self, error: Exception) -> None:
        self._status = _LOST
        said = [line.strip() for line in str(error).splitlines() if line.strip()]
        cause = getattr(error, "cause", None)
        self._words = f"lost by Ray: {cause or (said[-1] if said else type(error).__name__)}"[:300]

    def _give_up_late(self) -> None:
        if self._killed_at is not None and time.monotonic() - self._killed_at > _KILL_WITHIN_S:
            self._cluster.end(self._actor)
            self._status = _LOST

    def terminate(self, number: int = signal.SIGTERM) -> None:
        """Ask it by a signal to end in order; it is killed if it has no node yet."""
        if self.exited():
            return
        if self.node_id is None:
            self.kill()
        else:
            self._actor.send_signal.remote(number)

    def kill(self) -> None:
        """SIGKILL it and its children; a process without a node is not started any more."""
        if self._status is not None or self._killed_at is not None:
            return
        self._killed_at = time.monotonic()
        if self.node_id is None:
            self._cluster.end(self._actor)
            self._status, self._words = _LOST, "it had no node yet"
        else:
            self._actor.kill.remote()

    def reap(self) -> int:
        """The exit status; frees what it took of the cluster."""
        self.kill()
        while not self.exited():
            time.sleep(0.01)  # ends after _KILL_WITHIN_S
        self._cluster.end(self._actor)
        assert self._status is not None
        return self._status

    def folder(self) -> bytes | None:
        """The files of the order's folder once it has exited; None if they are lost."""
        try:
            content: bytes = self._cluster.answer(self._actor.folder.remote(), _FOLDER_WITHIN_S)
            return content
        except self._cluster.lost:
            return None

    def ending(self, code: int) -> str:
        """What `reap` gave, as text."""
        return self._words or describe_exit(code)

    def _log(self, output: bytes) -> int:
        with os.fdopen(open_to_write(self._log_path, os.O_APPEND), "ab") as log:
            log.write(output)
            return log.tell()


class LongWaits:
    """Names each process that has waited for a node for 30 seconds, once."""

    def __init__(self) -> None:
        self._named: set[ProcessOnRay] = set()

    def news(
        self, processes: Mapping[str, ProcessOnRay], nodes: Sequence[Node], now: float
    ) -> Iterator[str]:
        """Sentences for the console."""
        self._named &= set(processes.values())
        for name, process in processes.items():
            waits = process.node_id is None and not process.exited()
            if waits and now - process.asked_at > _WAITS_S and process not in self._named:
                self._named.add(process)
                yield f"{name} waits for a node with {unplaced_words([process.need], nodes)}"
