"""A connection that libzmq gives up for good."""

from __future__ import annotations

import socket

#: Of ZMTP 3.0 with an unknown mechanism.
_GREETING_OF_NO_MECHANISM = (
    b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NONE".ljust(20, b"\0") + bytes(32)
)


def spoil_next(listener: socket.socket) -> None:
    """Answer the next connection with a greeting after which libzmq never connects again."""
    with listener, listener.accept()[0] as connection:
        connection.sendall(_GREETING_OF_NO_MECHANISM)
        while connection.recv(1024):
            pass  # until libzmq ends it
