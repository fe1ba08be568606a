"""Peers and connections that fail within a message, on real sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import psutil
import pytest
import zmq

from aclearn.wire import (
    Client,
    NoNewerWeights,
    Server,
    Weights,
    WeightsRequest,
    ZmqTransport,
    bind_router,
    connect_dealer,
    new_incarnation,
    parse_endpoint,
)
from tests.chaos.relay import Relay, Weather
from tests.support.waiting import wait_for

_RUN = "r"
MakeClient = Callable[[str], Client]


def _weights(numbers: int) -> Weights:
    return Weights(0, 1, {"w": np.arange(numbers, dtype=np.float32)})


@pytest.fixture
def server() -> Iterator[Server]:
    context: zmq.Context = zmq.Context()
    socket, endpoint = bind_router(context, "tcp")
    server = Server(ZmqTransport(socket), _RUN, "server")
    server.endpoint = endpoint  # type: ignore[attr-defined]
    yield server
    server.close()
    context.destroy(linger=0)


@pytest.fixture
def relay(server: Server) -> Iterator[Relay]:
    there = parse_endpoint(server.endpoint)  # type: ignore[attr-defined]
    relay = Relay(("127.0.0.1", 0), (there.host, there.port))
    yield relay
    relay.close()


@pytest.fixture
def connect() -> Iterator[MakeClient]:
    context: zmq.Context = zmq.Context()
    clients: list[Client] = []

    def make(endpoint: str) -> Client:
        socket = connect_dealer(context, endpoint, routing_id=new_incarnation().encode())
        clients.append(Client(ZmqTransport(socket), _RUN, new_incarnation()))
        return clients[-1]

    yield make
    for client in clients:
        client.close()
    context.destroy(linger=0)


def _at(relay: Relay) -> str:
    host, port = relay.listen
    return f"tcp://{host}:{port}"


def _asked(server: Server, client: Client) -> bytes:
    """Send a request; the routing id of the client at the server."""
    wait_for(lambda: client.send(WeightsRequest(0, 0)), "the request is sent")
    [[routing_id, envelope]] = wait_for(lambda: server.receive(0.05), "the request comes")
    assert envelope.message == WeightsRequest(0, 0)
    return routing_id


def test_a_message_that_comes_in_single_bytes_is_read(server, relay, connect) -> None:
    client, sent = connect(_at(relay)), _weights(2000)
    relay.set(Weather("drip"))
    assert server.send(_asked(server, client), sent)
    got = wait_for(lambda: client.receive(0.1), "the weights come").message
    assert (got.tensors["w"] == sent.tensors["w"]).all()


def test_weights_that_are_cut_in_the_middle_are_asked_for_again(server, relay, connect) -> None:
    client, sent = connect(_at(relay)), _weights(250_000)
    routing_id, before = _asked(server, client), relay.passed
    # When the connection is reset after some of the million bytes
    relay.set(Weather("slow"))
    assert server.send(routing_id, sent)
    wait_for(lambda: relay.passed > before + 50_000, "a part has come")
    relay.set(Weather("refuse"))
    assert client.receive(0.1) is None
    relay.set(Weather())
    # Then nothing of it arrives, and a further request is answered in whole
    assert server.send(_asked(server, client), sent)
    got = wait_for(lambda: client.receive(0.1), "the weights come").message
    assert (got.tensors["w"] == sent.tensors["w"]).all()
    assert client.receive(0.1) is None


def test_64_clients_that_reconnect_at_once_are_all_served(server, relay, connect) -> None:
    clients = [connect(_at(relay)) for _ in range(64)]
    for _ in range(2):
        waiting = dict.fromkeys(range(64), False)  # whether the request was sent

        def all_served(waiting=waiting) -> bool:
            for number in list(waiting):
                waiting[number] = waiting[number] or clients[number].send(WeightsRequest(0, 0))
                if clients[number].receive(0.0) is not None:
                    del waiting[number]
            for routing_id, _ in server.receive(0.01):
                server.send(routing_id, NoNewerWeights())
            return not waiting

        wait_for(all_served, "every client has an answer")
        relay.set(Weather("refuse"))
        relay.set(Weather())


def test_a_client_that_never_reads_costs_its_server_neither_memory_nor_the_others(
    server, connect
) -> None:
    endpoint = server.endpoint
    deaf, other = connect(endpoint), connect(endpoint)
    routing_id, sent = _asked(server, deaf), _weights(250_000)
    process = psutil.Process()
    before = process.memory_info().rss
    taken = sum(server.send(routing_id, sent) for _ in range(300))
    # of 300 MB: sixteen messages for each direction, and what the system buffers
    assert 0 < taken < 100 and process.memory_info().rss - before < 120e6
    assert server.send(_asked(server, other), NoNewerWeights())
    assert wait_for(lambda: other.receive(0.1), "the answer comes").message == NoNewerWeights()
