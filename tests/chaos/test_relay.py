"""The relay of chaos runs: each weather between a client and a server that echoes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.chaos.relay import DELAY_S, SLOW_BYTES_PER_S, Relay, Weather
from tests.support.waiting import DEADLINE_S, wait_for

#: A read that should find nothing waits so long.
_NOTHING_S = 0.1


class Echo:
    """A server that sends back what it gets; `got` is what it got."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = self._socket.getsockname()
        self.got = b""
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                try:
                    while data := connection.recv(65_536):
                        self.got += data
                        connection.sendall(data)
                except ConnectionError:
                    continue

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(DEADLINE_S)


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def relay(echo: Echo) -> Iterator[Relay]:
    relay = Relay(("127.0.0.1", 0), echo.address)
    yield relay
    relay.close()


@pytest.fixture
def client(relay: Relay) -> Iterator[socket.socket]:
    with socket.create_connection(relay.listen) as client:
        client.settimeout(DEADLINE_S)
        yield client


def _read(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = client.recv(size - len(data))
        assert more, data
        data += more
    return data


def _nothing_comes(client: socket.socket) -> bool:
    client.settimeout(_NOTHING_S)
    try:
        return not client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(DEADLINE_S)


def _is_gone(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


def test_clear_and_late_and_slow_bytes_are_the_same_bytes(relay, client):
    data = bytes(range(256)) * 256
    for kind, least_s in (
        ("clear", 0.0),
        ("delay", 2 * DELAY_S),
        ("drip", 0.0),
        ("slow", 2 * len(data) / SLOW_BYTES_PER_S),
    ):
        sent = data[:1000] if kind in ("delay", "drip") else data
        relay.set(Weather(kind))
        begun = time.monotonic()
        client.sendall(sent)
        assert _read(client, len(sent)) == sent
        # what the server sends back has its own way, which overlaps with that of the rest
        assert time.monotonic() - begun > least_s / 2


@pytest.mark.parametrize(("kind", "arrives"), [("cut_up", b""), ("cut_down", b"late")])
def test_one_direction_is_cut_and_its_bytes_come_later(relay, client, echo, kind, arrives):
    relay.set(Weather(kind))
    client.sendall(b"late")
    wait_for(lambda: echo.got == arrives, "the server has what its direction lets through")
    assert _nothing_comes(client) and echo.got == arrives
    relay.set(Weather())
    assert _read(client, 4) == b"late" == echo.got


def test_dropped_bytes_are_lost_and_so_is_their_connection(relay, client, echo):
    relay.set(Weather("drop"))
    client.sendall(b"lost")
    assert _nothing_comes(client) and echo.got == b""
    relay.set(Weather())
    assert _is_gone(client) and echo.got == b""


def test_connections_are_reset_while_they_are_refused(relay, client):
    relay.set(Weather("refuse"))
    assert _is_gone(client)
    with socket.create_connection(relay.listen) as second:
        second.settimeout(DEADLINE_S)
        assert _is_gone(second)
    relay.set(Weather())
    with socket.create_connection(relay.listen) as third:
        third.settimeout(DEADLINE_S)
        third.sendall(b"here")
        assert _read(third, 4) == b"here"


def test_mixed_bytes_are_as_many_and_differ_as_the_seed_says(relay, client, echo):
    changed = []
    for seed in (1, 1):
        relay.set(Weather("mix", seed))
        for _ in range(40):  # one chunk each, there and back
            client.sendall(b"x")
            changed.append(_read(client, 1))
    relay.set(Weather())
    assert len(echo.got) == 80 and len(set(changed)) > 5
    assert changed[:40] == changed[40:]


def test_a_server_that_is_not_there_costs_the_connection_alone(relay, client, echo):
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        address = nobody.getsockname()
    other = Relay(("127.0.0.1", 0), address)
    try:
        for _ in range(2):
            with socket.create_connection(other.listen) as lost:
                lost.settimeout(DEADLINE_S)
                assert _is_gone(lost)
    finally:
        other.close()
