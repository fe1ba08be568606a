"""Addresses: their parts, and checks before binding."""

from __future__ import annotations

import ipaddress
import socket
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from aclearn.errors import EndpointError

#: Most bytes of a unix socket's path, without the final NUL (sun_path: 104 on BSD and macOS, 108 on
#: Linux).
IPC_PATH_MAX_BYTES = 103 if sys.platform == "darwin" else 107
#: Time limit for connecting to the process that may listen at a path.
_PROBE_TIMEOUT_S = 1.0

_WILDCARD_HOSTS = ("*", "0.0.0.0", "::")
_FORMS = "expected ipc:///absolute/path, tcp://host:port or tcp://host:*"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The parts of an address.

    Attributes:
        transport: "ipc" or "tcp".
        host: tcp: name or address, IPv6 without brackets, "*" for every interface; ipc: "".
        port: tcp: 1 to 65535, or 0 for one that the system chooses ("*"); ipc: 0.
        path: ipc: the absolute path of the socket file; tcp: "".
    """

    transport: str
    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        """The address in ZeroMQ's form."""
        if self.transport == "ipc":
            return f"ipc://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp://{host}:{self.port or '*'}"

    @property
    def is_loopback(self) -> bool:
        """Whether only processes of this machine can reach the address."""
        if self.transport == "ipc" or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_wildcard(self) -> bool:
        """Whether it means every interface of this machine: only to bind."""
        return self.host in _WILDCARD_HOSTS


def tcp_endpoint(host: str, port: int = 0) -> Endpoint:
    """The TCP address of a host; an IPv6 address may have brackets.

    Raises:
        EndpointError: it is no host.
    """
    bare = host.removeprefix("[").removesuffix("]")
    return parse_endpoint(str(Endpoint("tcp", host=bare, port=port)))


def parse_endpoint(text: str) -> Endpoint:
    """The parts of an address.

    Examples: `ipc:///tmp/x/trainer.sock`, `tcp://10.0.0.7:5555`, `tcp://[::1]:*`.

    Raises:
        EndpointError: it is malformed, or the path is longer than the system allows.
    """
    scheme, separator, rest = text.partition("://")
    if not separator or not text.isprintable() or len(text) > 1024:
        raise EndpointError(f"not an address: {text[:200]!r}; {_FORMS}")
    if scheme == "ipc":
        return _parse_ipc(rest)
    if scheme == "tcp":
        return _parse_tcp(rest)
    raise EndpointError(f"no transport for {text[:200]!r}; {_FORMS}")


def check_peer_address(text: str) -> Endpoint:
    """The parts of an address to connect to.

    Raises:
        EndpointError: it is malformed, or names no single host and port.
    """
    parsed = parse_endpoint(text)
    if parsed.transport == "tcp" and (parsed.port == 0 or parsed.is_wildcard):
        raise EndpointError(f"cannot connect to {text}: expected a single host and port")
    return parsed


def _parse_ipc(path: str) -> Endpoint:
    if not path.startswith("/"):
        raise EndpointError(f"ipc needs an absolute path, got {path[:200]!r}; {_FORMS}")
    size = len(path.encode())
    if size > IPC_PATH_MAX_BYTES:
        raise EndpointError(
            f"the socket path {path[:200]!r} has {size} bytes, "
            f"this system allows {IPC_PATH_MAX_BYTES}; use a shorter directory"
        )
    return Endpoint("ipc", path=path)


def _parse_tcp(rest: str) -> Endpoint:
    host, _, port_text = rest.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise EndpointError(f"an IPv6 address needs brackets in tcp://{rest[:200]}; {_FORMS}")
    if not host or any(character in host for character in "/;@[] "):
        raise EndpointError(f"no host in tcp://{rest[:200]}; {_FORMS}")
    if port_text == "*":
        return Endpoint("tcp", host=host)
    if not (port_text.isascii() and port_text.isdigit() and 0 < int(port_text[:6]) < 65536):
        raise EndpointError(f"no port from 1 to 65535 in tcp://{rest[:200]}; {_FORMS}")
    return Endpoint("tcp", host=host, port=int(port_text))


def claim_ipc_path(path: str) -> None:
    """Checks that no process listens at a path, and removes a dead process's socket file.

    libzmq would remove any file at the path when it binds, even a live socket.

    Raises:
        EndpointError: a process listens there, the file is no socket, or the directory is missing
            or not writable.
    """
    file = Path(path)
    if not file.parent.is_dir():
        raise EndpointError(f"cannot bind ipc://{path}: the directory {file.parent} does not exist")
    try:
        mode = file.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as exc:
        raise EndpointError(f"cannot bind ipc://{path}: {exc.strerror}") from exc
    if not stat.S_ISSOCK(mode):
        raise EndpointError(f"cannot bind ipc://{path}: the file there is no socket")
    if _has_listener(path):
        raise EndpointError(
            f"cannot bind ipc://{path}: another process listens there; stop it or use another path"
        )
    try:
        file.unlink(missing_ok=True)
    except OSError as exc:
        raise EndpointError(f"cannot remove the stale socket {path}: {exc.strerror}") from exc


def _has_listener(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_TIMEOUT_S)
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:  # a full backlog, no permission: another process owns it
            pass
        return True
