"""The monitor's keys: its own, and the list of those that may take part in the run."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path

from aclearn.wire import AllowedKey, OwnKey, Server, WatchedList
from services.role.context import RoleContext

#: Refusals that wait for the next step of the monitor.
_MOST_WAITING = 64


class MonitorKeys:
    """Follows the files of `network.keys_dir` while the run goes on.

    Raises:
        EndpointError: the list cannot be used.
    """

    def __init__(self, context: RoleContext, server: Server, own: OwnKey, directory: Path) -> None:
        self._context, self._server, self._own = context, server, own
        self._list, self._pair = WatchedList(directory), own.pair
        self._refusals: deque[str] = deque(maxlen=_MOST_WAITING)
        context.admission.said = self._refusals.append
        context.allow(self.allowed)

    @classmethod
    def open(cls, context: RoleContext, server: Server) -> MonitorKeys | None:
        """The keys of a monitor that listens on tcp; None without keys."""
        directory = context.config.network.keys_dir
        if context.key is None or directory is None or server.transport.admission is None:
            return None
        return cls(context, server, context.key, Path(directory))

    @property
    def allowed(self) -> tuple[AllowedKey, ...]:
        """The keys that may take part now, and the revoked ones."""
        return self._list.allowed

    def look(self) -> bool:
        """Whether the list has changed; connections of revoked keys have ended then.

        If the time of the monitor's own pair is over, it listens with the next one.

        Raises:
            EndpointError: another process has taken its address meanwhile.
        """
        self._own.look()
        if self._own.pair.public != self._pair.public:
            self._pair = self._own.pair
            if (keys := self._context.server_keys(self._pair)) is not None:
                self._server.transport.rebind(keys)
        if not self._list.look():
            return False
        self._context.allow(self.allowed)
        return True

    def refusals(self) -> Iterator[str]:
        """What has been refused since the last call, once for each key."""
        while self._refusals:
            yield self._refusals.popleft()
