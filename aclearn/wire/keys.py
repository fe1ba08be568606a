"""CURVE keys: one pair for a whole cluster; connections without it are refused.

Every role of a run holds the same key pair. Only tcp needs keys: file permissions protect an ipc
socket.
"""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq
from zmq.utils import z85

from aclearn.errors import EndpointError

KEY_FILE = "cluster.key"
_LOG = logging.getLogger(__name__)
_ZAP_ADDRESS = "inproc://zeromq.zap.01"  # fixed by ZeroMQ RFC 27
_KEY_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class ClusterKeys:
    """The key pair of a cluster, each half as 40 Z85 characters; repr hides the secret half."""

    public: bytes
    secret: bytes = field(repr=False)


def create_keys(directory: str | Path) -> Path:
    """Create a key file in `directory` (made if missing), for its owner only; returns its path.

    Raises:
        EndpointError: there is a key file already, or the directory cannot be written.
    """
    path = Path(directory) / KEY_FILE
    public, secret = zmq.curve_keypair()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except (FileExistsError, NotADirectoryError):
        there = next(folder for folder in path.parents if folder.exists())
        if not there.is_dir():
            raise EndpointError(
                f"{there} is a file; expected a folder, in which {KEY_FILE} is made"
            ) from None
        raise EndpointError(f"{path} exists already; remove it to make new keys") from None
    except OSError as exc:
        raise EndpointError(f"cannot write keys to {path}: {exc.strerror}") from exc
    with os.fdopen(descriptor, "wb") as file:
        file.write(b"public " + public + b"\nsecret " + secret + b"\n")
    return path


def load_keys(directory: str | Path) -> ClusterKeys:
    """The keys that `create_keys` wrote to `directory`.

    Raises:
        EndpointError: the file is missing, damaged, or readable by other users.
    """
    path = Path(directory) / KEY_FILE
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(1024)
    except OSError as exc:
        raise EndpointError(
            f"cannot read keys from {path}: {exc.strerror}; "
            f"make them with `aclearn keys {directory}` and copy the file to every machine"
        ) from exc
    if mode & 0o077:
        raise EndpointError(f"{path} can be read by other users; mend it with `chmod 600 {path}`")
    words = text.split()
    if len(words) != 4 or words[0] != b"public" or words[2] != b"secret":
        raise EndpointError(f"{path} is no key file of aclearn; make one with `aclearn keys DIR`")
    public, secret = words[1], words[3]
    if not _is_pair(public, secret):
        raise EndpointError(f"{path} is damaged: its halves are not a key pair; copy it again")
    return ClusterKeys(public, secret)


def _is_pair(public: bytes, secret: bytes) -> bool:
    if len(public) != _KEY_CHARACTERS or len(secret) != _KEY_CHARACTERS:
        return False
    try:
        return zmq.curve_public(secret) == public
    except (zmq.ZMQError, ValueError, KeyError):
        return False


def apply_server_keys(
    context: zmq.Context[Any], socket: zmq.Socket[Any], keys: ClusterKeys
) -> None:
    """Lets only holders of the cluster's keys connect to `socket`; call before bind.

    A thread answers the handshakes until the context ends.
    """
    _start_guard(context)
    # the guard compares the client's key with the domain
    socket.zap_domain = keys.public
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
    socket.curve_publickey = keys.public
    socket.curve_secretkey = keys.secret
    socket.curve_server = True


def apply_client_keys(socket: zmq.Socket[Any], keys: ClusterKeys) -> None:
    """Makes `socket` prove that it holds the cluster's keys; call before connect."""
    socket.curve_serverkey = keys.public
    socket.curve_publickey = keys.public
    socket.curve_secretkey = keys.secret


def _start_guard(context: zmq.Context[Any]) -> None:
    socket = own_socket(context, zmq.REP)
    try:
        socket.bind(_ZAP_ADDRESS)
    except zmq.ZMQError as exc:
        socket.close()
        if exc.errno == zmq.EADDRINUSE:
            return  # this context has its guard
        raise
    threading.Thread(target=_guard, args=(socket,), name="aclearn-keys", daemon=True).start()


def _guard(socket: zmq.Socket[bytes]) -> None:
    """Answers ZAP requests (ZeroMQ RFC 27) until the context is terminated."""
    denied = 0
    try:
        while True:
            request = socket.recv_multipart()
            admitted = _holds_cluster_key(request)
            if not admitted:
                denied += 1
                if is_power_of_two(denied):
                    _LOG.warning("event=key_denied count=%d", denied)
            request_id = request[1] if len(request) > 1 else b""
            status = (b"200", b"OK", b"cluster") if admitted else (b"400", b"not on the list", b"")
            socket.send_multipart([b"1.0", request_id, *status, b""])
    except zmq.ContextTerminated:
        pass
    finally:
        socket.close(linger=0)


def _holds_cluster_key(request: list[bytes]) -> bool:
    # version, request id, domain, address, identity, mechanism, credentials
    if len(request) != 7 or request[0] != b"1.0" or request[5] != b"CURVE":
        return False
    return bool(z85.encode(request[6]) == request[2])


def own_socket(context: zmq.Context[Any], kind: int) -> zmq.Socket[bytes]:
    """A socket for a thread of its own."""
    # in a shadow context: another thread may close the sockets of `context`, but not this one
    socket: zmq.Socket[bytes] = zmq.Context.shadow(context).socket(kind)
    socket.linger = 0
    return socket


def is_power_of_two(count: int) -> bool:
    """Whether to log the nth occurrence of an event that a peer can repeat without end."""
    return count & (count - 1) == 0
