"""Servers and clients on real sockets: after any input the next valid peer is answered."""

from __future__ import annotations

import gc
import socket as system_socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import msgpack
import numpy as np
import pytest
import zmq

from aclearn.errors import WireError
from aclearn.wire import (
    ActRequest,
    Client,
    ErrorReply,
    HeartbeatReply,
    NoNewerWeights,
    Server,
    Status,
    StatusRequest,
    Weights,
    WeightsRequest,
    ZmqTransport,
    bind_router,
    connect_dealer,
    encode,
    new_incarnation,
    parse_endpoint,
)
from aclearn.wire.messages import PROTOCOL_VERSION
from tests.support.waiting import DEADLINE_S, wait_for

RUN = "run-1"


@pytest.fixture
def open_server(context, tmp_path):
    """Makes servers, which are closed after the test."""
    servers = []

    def open_server(address):
        socket, endpoint = bind_router(context, address, directory=tmp_path)
        server = Server(ZmqTransport(socket), RUN, "server")
        server.endpoint = endpoint
        servers.append(server)
        return server

    yield open_server
    for server in servers:
        server.close()


@pytest.fixture
def server(open_server):
    return open_server("tcp")


@pytest.fixture
def open_client(context):
    """Makes connected clients, which are closed after the test."""
    clients = []

    def open_client(server, *, routing_id=None):
        routing_id = routing_id or new_incarnation().encode()
        socket = connect_dealer(context, server.endpoint, routing_id=routing_id)
        client = Client(ZmqTransport(socket), RUN, "client")
        clients.append(client)
        assert socket.poll(DEADLINE_S * 1000, zmq.POLLOUT)
        return client

    yield open_client
    for client in clients:
        client.close()


def receive_one(server):
    """The next message with its routing id, behind refused ones."""
    [received] = wait_for(lambda: server.receive(0.05), "a message comes")
    return received


def refuse(server, count=1):
    """The server refuses so many messages."""

    def all_refused():
        assert server.receive(0.05) == []
        return server.refused.total() >= count

    wait_for(all_refused, f"{count} messages are refused")


def assert_answers(server, client):
    assert client.send(StatusRequest())
    routing_id, envelope = receive_one(server)
    assert envelope.message == StatusRequest()
    assert server.send(routing_id, Status("{}"))
    answer = client.receive(DEADLINE_S)
    assert (answer.incarnation, answer.message) == ("server", Status("{}"))


@pytest.mark.parametrize("address", ["ipc", "tcp"])
def test_big_arrays_outlive_the_frames_and_the_sockets_that_brought_them(
    open_server, open_client, address
):
    server = open_server(address)
    client = open_client(server)
    sent = {f"layer-{i}": np.full((1024, 1024), i, np.float32) for i in range(5)}  # 20 MiB in all
    assert client.send(Weights(1, 2, sent))
    received = receive_one(server)[1].message.tensors
    client.close()
    server.close()
    gc.collect()
    assert list(received) == list(sent)
    for name, tensor in sent.items():
        np.testing.assert_array_equal(received[name], tensor)
        assert not received[name].flags.writeable


def header_with(**changes):
    header = msgpack.unpackb(encode(HeartbeatReply(3), run=RUN, incarnation="x", sequence=0)[0])
    return msgpack.packb({**header, **changes})


GARBAGE = [
    ([b""], "bad_header"),
    ([b"x" * 65_537], "header_too_large"),
    ([b"x"] * 5_000, "too_many_frames"),
    ([header_with(), b"more"], "wrong_frames"),
    ([header_with(protocol=99)], "wrong_version"),
    ([header_with(fields={"revision": True, "every_s": 0.0})], "bad_field"),
    ([header_with(run="run-2")], "wrong_run"),
    (encode(WeightsRequest(0, 1, "red"), run=RUN, incarnation="x", sequence=0), "unknown_policy"),
]


def test_garbage_is_counted_and_answered_and_the_next_good_peer_is_served(
    server, open_client, caplog
):
    hostile = open_client(server)
    for count, (frames, reason) in enumerate([*GARBAGE, GARBAGE[4]], start=1):
        hostile.transport.socket.send_multipart(frames)
        refuse(server, count)
        answer = hostile.receive(DEADLINE_S)
        assert isinstance(answer.message, ErrorReply)
        assert answer.message.reason == reason
    assert server.refused == Counter([*(reason for _, reason in GARBAGE), "wrong_version"])
    # a peer of another protocol cannot read the answer: the log says it, once
    [line] = [r.message for r in caplog.records if "wrong_version" in r.message]
    assert f"speaks protocol 99, this end speaks protocol {PROTOCOL_VERSION}" in line
    assert_answers(server, open_client(server))
    assert_answers(server, hostile)


def test_a_role_can_refuse_for_reasons_of_its_own(server, open_client):
    client = open_client(server)
    assert client.send(StatusRequest())
    server.refuse(receive_one(server)[0], WireError("bad_unroll", "rewards: NaN or infinity"))
    assert server.refused == {"bad_unroll": 1}
    answer = client.receive(DEADLINE_S)
    assert answer.message == ErrorReply("bad_unroll", "rewards: NaN or infinity")


def test_a_client_counts_garbage_from_its_server_and_hears_the_next_message(server, open_client):
    client = open_client(server, routing_id=b"peer")
    assert_answers(server, client)
    server.transport.socket.send_multipart([b"peer", b"\xc1"])
    server.transport.socket.send_multipart([b"peer", header_with(run="run-2")])
    assert server.send(b"peer", NoNewerWeights("other"))
    assert server.send(b"peer", HeartbeatReply(4))
    assert client.receive(DEADLINE_S).message == HeartbeatReply(4)
    assert client.refused == {"bad_header": 1, "wrong_run": 1, "unknown_policy": 1}


def test_a_browser_that_speaks_http_to_the_port_is_counted_and_not_served(server, open_client):
    # ZeroMQ takes a peer without a greeting for one of 2009: a byte of length, a byte of flags, and
    # so on. The first "frame" becomes a routing id, the next ones are messages.
    lines = [b"GET / HTTP/1.1", *(b"X-Header-%d: %s" % (i, b"v" * 50) for i in range(40))]
    browser = system_socket.create_connection(
        ("127.0.0.1", parse_endpoint(server.endpoint).port), timeout=DEADLINE_S
    )
    with browser:
        browser.sendall(b"\r\n".join(lines) + b"\r\n\r\n")
        refuse(server)
        assert set(server.refused) <= {"bad_header", "too_many_frames", "empty"}
        assert_answers(server, open_client(server))
        assert b"HTTP" not in browser.recv(4096)
    assert_answers(server, open_client(server))


def test_a_frame_over_the_limit_cuts_the_connection_and_only_that(
    open_server, open_client, monkeypatch
):
    monkeypatch.setattr("aclearn.wire.sockets.MAX_FRAME_BYTES", 10_000)
    server = open_server("tcp")
    monkeypatch.undo()  # the clients send what is too long
    bystander, talker = open_client(server, routing_id=b"other"), open_client(server)
    heard: list[bytes | int] = []

    def listen() -> list[bytes | int]:
        for routing_id, envelope in server.receive(0.05):
            heard.append(getattr(envelope.message, "request", routing_id))
        return heard

    def small(request: int) -> bool:
        talker.send(ActRequest(request, {"leaf": np.zeros((1, 9_000), np.uint8)}), timeout_s=0.05)
        return request in listen()

    assert talker.send(ActRequest(1, {"leaf": np.zeros((1, 10_001), np.uint8)}))
    assert bystander.send(StatusRequest())
    wait_for(lambda: b"other" in listen(), "the other peer is heard")
    assert server.send(b"other", Status("{}"))
    assert bystander.receive(DEADLINE_S).message == Status("{}")
    # what was sent meanwhile may be lost with the connection
    wait_for(lambda: small(2), "a small message arrives on the next connection")
    assert 1 not in heard


def test_a_process_that_reconnects_as_the_same_incarnation_is_heard(server, open_client):
    assert_answers(server, open_client(server, routing_id=b"incarnation"))  # half dead now
    assert_answers(server, open_client(server, routing_id=b"incarnation"))


def test_one_call_takes_no_more_messages_than_its_limit_in_their_order(server, open_client):
    client = open_client(server)
    for revision in range(10):
        assert client.send(HeartbeatReply(revision), timeout_s=DEADLINE_S)
    calls = []
    while sum(map(len, calls)) < 10:
        calls.append(server.receive(DEADLINE_S, limit=4))
        assert 0 < len(calls[-1]) <= 4
    received = [envelope for call in calls for _, envelope in call]
    assert [envelope.sequence for envelope in received] == list(range(10))
    assert [envelope.message.revision for envelope in received] == list(range(10))


def test_a_wait_ends_when_its_time_is_over(context, server, open_client, tmp_path):
    client = open_client(server)
    socket = connect_dealer(context, f"ipc://{tmp_path}/nobody.sock", routing_id=b"lonely")
    lonely = Client(ZmqTransport(socket), RUN, "client")
    started = time.monotonic()
    assert server.receive(0.1) == []
    assert client.receive(0.1) is None
    assert not lonely.send(StatusRequest(), timeout_s=0.1)
    assert 0.3 <= time.monotonic() - started < DEADLINE_S
    lonely.close()
    for timeout_s in (-1.0, float("inf"), float("nan")):  # a wait without a deadline is a bug
        with pytest.raises(ValueError, match="finite time"):
            server.receive(timeout_s)


def test_a_client_that_waits_sleeps_although_it_could_send(server, open_client, monkeypatch):
    client = open_client(server)
    assert_answers(server, client)
    looked = []
    monkeypatch.setattr(client.transport, "take", lambda: looked.append("again"))
    assert client.receive(0.1) is None
    assert looked == []


def test_a_second_thread_may_not_use_a_channel(server):
    assert server.receive(0) == []
    with (
        ThreadPoolExecutor(1) as other,
        pytest.raises(RuntimeError, match="used by a second thread; one thread owns a socket"),
    ):
        other.submit(server.receive, 0).result(DEADLINE_S)
