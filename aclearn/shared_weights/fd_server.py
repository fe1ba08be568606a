"""A server that passes file descriptors to other processes of the machine."""

from __future__ import annotations

import logging
import os
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from aclearn.errors import SharingError

_LOGGER = logging.getLogger(__name__)

_LENGTH = struct.Struct("!I")
#: Most bytes of a description; that of `impala-resnet` has 3 000.
_MOST_BYTES = 64 * 1024
_MOST_FDS = 8
_LOOK_EVERY_S = 0.2
#: Time limit for one client.
_SERVE_WITHIN_S = 1.0
_BACKLOG = 64


class FileDescriptorServer:
    """Sends a description and file descriptors to every client.

    Args:
        path: of the socket file, in a private directory.
        share: makes the file descriptors for one client; they are closed after sending.

    Attributes:
        failures: number of clients that got nothing.

    Raises:
        SharingError: the socket cannot be bound.
    """

    def __init__(
        self, path: Path, describe: Callable[[], bytes], share: Callable[[], Sequence[int]]
    ) -> None:
        self._path, self._describe, self._share = path, describe, share
        self._closing = threading.Event()
        self.failures = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.bind(str(path))
            os.chmod(path, 0o600)
            self._socket.listen(_BACKLOG)
        except OSError as error:
            self._socket.close()
            raise SharingError(f"cannot bind {path}: {error}") from error
        self._socket.settimeout(_LOOK_EVERY_S)
        self._thread = threading.Thread(target=self._serve, name="fd-server", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving and remove the socket file."""
        self._closing.set()
        self._thread.join(2 * _SERVE_WITHIN_S)
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def _serve(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._socket.accept()
            except TimeoutError:
                continue
            except OSError as error:  # e.g. too many open files, which may be temporary
                self._count(error)
                self._closing.wait(_LOOK_EVERY_S)
                continue
            with connection:
                connection.settimeout(_SERVE_WITHIN_S)
                try:
                    self._hand_over(connection)
                except (OSError, SharingError) as error:
                    self._count(error)

    def _count(self, error: Exception) -> None:
        self.failures += 1
        if self.failures & (self.failures - 1) == 0:  # a peer can repeat it without end
            _LOGGER.warning("event=fd_server_failed count=%d reason=%r", self.failures, str(error))

    def _hand_over(self, connection: socket.socket) -> None:
        fds = self._share()
        try:
            description = self._describe()
            socket.send_fds(connection, [_LENGTH.pack(len(description))], fds)
            connection.sendall(description)
        finally:
            for fd in fds:
                os.close(fd)


def request_fds(path: Path, *, timeout_s: float = 1.0) -> tuple[bytes, list[int]]:
    """The description and the file descriptors of the server at `path`; the caller closes them.

    Raises:
        SharingError: there is no server, or its reply is invalid.
    """
    fds: list[int] = []
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_s)
            connection.connect(str(path))
            head, fds, _, _ = socket.recv_fds(connection, _LENGTH.size, _MOST_FDS)
            if len(head) != _LENGTH.size:
                raise SharingError(f"{path}: the server sent no file descriptors")
            (length,) = _LENGTH.unpack(head)
            if length > _MOST_BYTES:
                raise SharingError(f"{path}: a description of {length} bytes")
            description = b""
            while len(description) < length:
                more = connection.recv(length - len(description))
                if not more:
                    raise SharingError(f"{path}: the description ended early")
                description += more
            return description, list(fds)
    except BaseException as error:
        for fd in fds:
            os.close(fd)
        if isinstance(error, OSError):
            raise SharingError(f"{path}: {error}") from error
        raise
