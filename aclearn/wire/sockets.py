"""Sockets with every option set that is dangerous by default in ZeroMQ.

Data in flight between an actor and a trainer is bounded by the high-water marks (whole messages,
per peer), the size of a frame, and the number of unacknowledged messages.
"""

from __future__ import annotations

import errno
import os
import socket as system_socket
import uuid
from pathlib import Path
from typing import Any

import zmq

from aclearn.errors import EndpointError
from aclearn.wire.admission import ClientKeys, ServerKeys
from aclearn.wire.codec import MAX_FRAME_BYTES
from aclearn.wire.endpoints import (
    Endpoint,
    check_peer_address,
    claim_ipc_path,
    parse_endpoint,
    tcp_endpoint,
)

#: Most waiting messages per peer and direction. More than an actor's unrolls in flight: while the
#: queue is full libzmq does not read, and does not notice that the peer has gone.
QUEUE_MESSAGES = 16

#: Connections that wait to be accepted. libzmq: 100, so that of a thousand actors that start at
#: once most would try again. The kernel bounds it (net.core.somaxconn).
_BACKLOG = 4_096
_HANDSHAKE_MS = 3_000  # libzmq: 30 s, in which a silent peer holds a file descriptor
_RECONNECT_FIRST_MS, _RECONNECT_MAX_MS = 50, 2_000
#: The kernel probes a silent tcp connection and ends it if nothing comes back. Not libzmq: its
#: heartbeats abort a process whose queue is full when a peer goes (its issue 4364).
_PROBE_EVERY_S, _PROBES, _UNACKNOWLEDGED_MS = 2, 3, 8_000


def new_incarnation() -> str:
    """A random id of one process start; its bytes are the routing id of its sockets."""
    return uuid.uuid4().hex


def bind_router(
    context: zmq.Context[Any],
    address: str,
    *,
    directory: str | Path | None = None,
    keys: ServerKeys | None = None,
) -> tuple[zmq.Socket[bytes], str]:
    """A bound ROUTER and its address for peers.

    Args:
        address: an `ipc://` or `tcp://` address ("*" for every interface, announced as the
            machine's name), "ipc" (a new file in `directory`) or "tcp" (a free port on loopback).
        keys: its pair, and who may connect; needed off loopback.

    Raises:
        EndpointError: the address is malformed, in use, or off loopback without keys.
    """
    endpoint = _resolve(address, directory)
    _require_keys(endpoint, keys)
    socket: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
    try:
        _set_common(socket, endpoint)
        socket.router_mandatory = True
        # a known routing id is the same process on a new connection; the old one may take seconds
        # to time out
        socket.router_handover = True
        if keys is not None and endpoint.transport == "tcp":
            socket.zap_domain = uuid.uuid4().hex.encode()  # the guard's name of this server
            keys.apply(socket)
        if endpoint.transport == "ipc":
            claim_ipc_path(endpoint.path)
        socket.bind(str(endpoint))
        if endpoint.transport == "ipc":
            os.chmod(endpoint.path, 0o600)
        bound = parse_endpoint(socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0"))
    except zmq.ZMQError as exc:
        socket.close(linger=0)
        raise EndpointError(f"cannot bind {endpoint}: {_explain(exc)}") from exc
    except BaseException:
        socket.close(linger=0)
        raise
    if bound.is_wildcard:
        bound = Endpoint("tcp", host=system_socket.gethostname(), port=bound.port)
    return socket, str(bound)


def connect_dealer(
    context: zmq.Context[Any],
    endpoint: str,
    *,
    routing_id: bytes,
    keys: ClientKeys | None = None,
) -> zmq.Socket[bytes]:
    """A DEALER that connects, and reconnects, to a router's address.

    Returns at once; without a peer, sending fails.

    Args:
        routing_id: the incarnation's bytes, 1 to 255, not beginning with a zero byte.
        keys: this process's pair, and the server's public key; needed off loopback.

    Raises:
        EndpointError: the address is malformed, has no port, or is off loopback without keys.
        ValueError: ZeroMQ does not allow the routing id.
    """
    parsed = check_peer_address(endpoint)
    _require_keys(parsed, keys)
    if not 1 <= len(routing_id) <= 255 or routing_id[0] == 0:
        raise ValueError("routing_id: expected 1 to 255 bytes that do not begin with a zero byte")
    socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    try:
        _set_common(socket, parsed)
        socket.setsockopt(zmq.ROUTING_ID, routing_id)
        if keys is not None and parsed.transport == "tcp":
            keys.apply(socket)
        socket.connect(str(parsed))
    except zmq.ZMQError as exc:
        socket.close(linger=0)
        raise EndpointError(f"cannot connect to {endpoint}: {_explain(exc)}") from exc
    except BaseException:
        socket.close(linger=0)
        raise
    return socket


def _resolve(address: str, directory: str | Path | None) -> Endpoint:
    if address == "tcp":
        return tcp_endpoint("127.0.0.1")
    if address == "ipc":
        if directory is None:
            raise EndpointError('the address "ipc" needs a directory for its socket file')
        return parse_endpoint(f"ipc://{Path(directory).absolute()}/{uuid.uuid4().hex[:8]}.sock")
    return parse_endpoint(address)


def _require_keys(endpoint: Endpoint, keys: ServerKeys | ClientKeys | None) -> None:
    if keys is None and not endpoint.is_loopback:
        raise EndpointError(
            f"{endpoint} can be reached from other machines and needs keys: make them with "
            "`aclearn keys new`, copy to every machine the files of its roles and set "
            "network.keys_dir to their folder"
        )


def _set_common(socket: zmq.Socket[Any], endpoint: Endpoint) -> None:
    """Sets the options of both ends; call before bind and connect."""
    socket.linger = 0
    socket.sndhwm = QUEUE_MESSAGES
    socket.rcvhwm = QUEUE_MESSAGES
    socket.maxmsgsize = MAX_FRAME_BYTES
    socket.immediate = True
    socket.backlog = _BACKLOG
    socket.handshake_ivl = _HANDSHAKE_MS
    socket.reconnect_ivl = _RECONNECT_FIRST_MS
    socket.reconnect_ivl_max = _RECONNECT_MAX_MS
    if endpoint.transport == "tcp":
        socket.tcp_keepalive = 1
        socket.tcp_keepalive_idle = socket.tcp_keepalive_intvl = _PROBE_EVERY_S
        socket.tcp_keepalive_cnt = _PROBES
        socket.tcp_maxrt = _UNACKNOWLEDGED_MS  # no probe is sent while data waits for its answer
        socket.ipv6 = ":" in endpoint.host


def _explain(exc: zmq.ZMQError) -> str:
    if exc.errno == zmq.EADDRINUSE:
        return "the address is in use; stop the process that has it or choose another port"
    if exc.errno in (zmq.EADDRNOTAVAIL, errno.ENODEV):
        return "this machine has no such host or interface"
    return exc.strerror
