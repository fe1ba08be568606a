"""Servers and clients on real sockets: after any input the next valid peer is answered."""

from __future__ import annotations

import gc
import socket as system_socket
import threading
import time

import msgpack
import numpy as np
import pytest
import zmq

from aclearn.errors import EndpointError, WireError
from aclearn.wire import (
    PROTOCOL_VERSION,
    ActRequest,
    Client,
    ErrorReply,
    HeartbeatReply,
    NoNewerWeights,
    Server,
    Status,
    StatusRequest,
    UnrollReply,
    Weights,
    WeightsRequest,
    ZmqTransport,
    bind_router,
    connect_dealer,
    encode,
    new_incarnation,
    parse_endpoint,
)
from tests.support.waiting import DEADLINE_S

RUN = "run-1"


@pytest.fixture
def open_server(context, tmp_path):
    """Makes servers, which are closed after the test."""
    servers = []

    def open_server(address, *, accepts=None, **options):
        socket, endpoint = bind_router(context, address, directory=tmp_path, **options)
        server = Server(ZmqTransport(socket), RUN, "server", accepts=accepts)
        server.endpoint = endpoint
        servers.append(server)
        return server

    yield open_server
    for server in servers:
        server.close()


@pytest.fixture(params=["ipc", "tcp"])
def server(request, open_server):
    return open_server(request.param)


@pytest.fixture
def open_client(context):
    """Makes connected clients, which are closed after the test."""
    clients = []

    def open_client(server, *, run=RUN, routing_id=None, **options):
        routing_id = routing_id or new_incarnation().encode()
        socket = connect_dealer(context, server.endpoint, routing_id=routing_id, **options)
        client = Client(ZmqTransport(socket), run, "client")
        clients.append(client)
        assert socket.poll(DEADLINE_S * 1000, zmq.POLLOUT)
        return client

    yield open_client
    for client in clients:
        client.close()


def receive_all(server, count, **options):
    """The next `count` messages; fewer after the deadline."""
    received = []
    deadline = time.monotonic() + DEADLINE_S
    while len(received) < count and time.monotonic() < deadline:
        received += server.receive(0.05, **options)
    return received


def wait_for_refusals(server, count):
    deadline = time.monotonic() + DEADLINE_S
    while server.refused.total() < count and time.monotonic() < deadline:
        assert server.receive(0.05) == []


def assert_answers(server, client):
    assert client.send(StatusRequest())
    [(routing_id, envelope)] = receive_all(server, 1)
    assert envelope.message == StatusRequest()
    assert server.send(routing_id, Status("{}"))
    answer = client.receive(DEADLINE_S)
    assert answer is not None
    assert (answer.incarnation, answer.message) == ("server", Status("{}"))


def test_a_message_reaches_the_server_and_its_answer_the_client(server, open_client, samples):
    client = open_client(server, routing_id=b"incarnation-7")

    assert client.send(samples["Unroll"], sequence=12)
    [(routing_id, envelope)] = receive_all(server, 1)
    assert server.send(routing_id, UnrollReply(12, True, ""))
    answer = client.receive(DEADLINE_S)

    assert routing_id == b"incarnation-7"
    assert (envelope.run, envelope.incarnation, envelope.sequence) == (RUN, "client", 12)
    came, sent = envelope.message.observations, samples["Unroll"].observations
    np.testing.assert_array_equal(came["joints"], sent["joints"])
    assert answer.message == UnrollReply(12, True, "")


def test_messages_are_numbered_as_they_are_sent(server, open_client):
    client = open_client(server)

    for revision in range(3):
        assert client.send(HeartbeatReply(revision))

    received = receive_all(server, 3)
    assert [envelope.sequence for _, envelope in received] == [0, 1, 2]
    assert [envelope.message.revision for _, envelope in received] == [0, 1, 2]


def test_arrays_outlive_the_frames_and_the_sockets_that_brought_them(server, open_client):
    client = open_client(server)
    sent = np.random.default_rng(0).integers(0, 256, (40, 10_000), np.uint8)

    assert client.send(ActRequest(1, {"observation": sent}))
    [(_, envelope)] = receive_all(server, 1)
    received = envelope.message.observations["observation"]
    del envelope
    client.close()
    server.close()
    gc.collect()

    np.testing.assert_array_equal(received, sent)
    assert not received.flags.writeable


def test_a_big_message_arrives_whole(server, open_client):
    tensors = {
        f"layer-{i}": np.full((1024, 1024), i, np.float32)
        for i in range(5)  # 20 MiB in all
    }
    client = open_client(server)

    assert client.send(Weights(1, 2, tensors))
    [(_, envelope)] = receive_all(server, 1)

    assert list(envelope.message.tensors) == list(tensors)
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(envelope.message.tensors[name], tensor)


def header_with(**changes):
    header = msgpack.unpackb(encode(HeartbeatReply(3), run=RUN, incarnation="x", sequence=0)[0])
    return msgpack.packb({**header, **changes})


def about(policy):
    """A request for the weights of a policy."""
    return encode(WeightsRequest(0, 1, policy), run=RUN, incarnation="x", sequence=0)


GARBAGE = [
    ([b""], "bad_header"),
    ([b"\xff" * 100], "bad_header"),
    ([b"\x91" * 1_000], "bad_header"),
    ([b"x" * 65_537], "header_too_large"),
    ([b"x"] * 257, "too_many_frames"),
    ([b"x"] * 5_000, "too_many_frames"),
    ([header_with(), b"more"], "wrong_frames"),
    ([header_with(protocol=99)], "wrong_version"),
    ([header_with(kind="Pickle")], "unknown_kind"),
    ([header_with(fields={})], "wrong_fields"),
    ([header_with(fields={"revision": True})], "bad_field"),
    ([header_with(run="run-2")], "wrong_run"),
    (about("other"), "unknown_policy"),
]


def test_garbage_is_counted_and_answered_and_the_next_good_peer_is_served(server, open_client):
    hostile = open_client(server)
    expected: dict[str, int] = {}

    for count, (frames, reason) in enumerate(GARBAGE, start=1):
        hostile.transport.socket.send_multipart(frames)
        wait_for_refusals(server, count)
        expected[reason] = expected.get(reason, 0) + 1
        answer = hostile.receive(DEADLINE_S)
        assert isinstance(answer.message, ErrorReply)
        assert answer.message.reason == reason

    assert server.refused == expected
    assert_answers(server, open_client(server))
    assert_answers(server, hostile)


def test_a_peer_of_another_protocol_is_told_of_in_the_log_once(server, open_client, caplog):
    other = open_client(server)
    for count in (1, 2):
        other.transport.socket.send_multipart([header_with(protocol=99)])
        wait_for_refusals(server, count)
    [line] = [r.message for r in caplog.records if "wrong_version" in r.message]
    assert f"speaks protocol 99, this end speaks protocol {PROTOCOL_VERSION}" in line


def test_a_message_of_a_kind_that_the_service_does_not_answer_is_refused(open_server, open_client):
    server = open_server("ipc", accepts=(StatusRequest,))
    client = open_client(server)

    assert client.send(HeartbeatReply(1))
    wait_for_refusals(server, 1)

    assert server.refused == {"unexpected_kind": 1}
    assert client.receive(DEADLINE_S).message.reason == "unexpected_kind"
    assert_answers(server, client)


def test_a_role_can_refuse_for_reasons_of_its_own(server, open_client):
    client = open_client(server)
    assert client.send(StatusRequest())
    [(routing_id, _)] = receive_all(server, 1)

    server.refuse(routing_id, WireError("bad_unroll", "rewards: NaN or infinity"))

    assert server.refused == {"bad_unroll": 1}
    answer = client.receive(DEADLINE_S)
    assert answer.message == ErrorReply("bad_unroll", "rewards: NaN or infinity")


def test_a_client_counts_garbage_from_its_server_and_hears_the_next_message(server, open_client):
    client = open_client(server, routing_id=b"peer")
    assert client.send(StatusRequest())
    assert receive_all(server, 1)

    server.transport.socket.send_multipart([b"peer", b"\xc1"])
    server.transport.socket.send_multipart([b"peer", header_with(run="run-2")])
    assert server.send(b"peer", NoNewerWeights("other"))
    assert server.send(b"peer", HeartbeatReply(4))

    assert client.receive(DEADLINE_S).message == HeartbeatReply(4)
    assert client.refused == {"bad_header": 1, "wrong_run": 1, "unknown_policy": 1}


def test_a_browser_that_speaks_http_to_the_port_is_counted_and_not_served(open_server, open_client):
    server = open_server("tcp")
    # ZeroMQ takes a peer without a greeting for one of 2009: a byte of length, a byte of flags, and
    # so on. The first "frame" becomes a routing id, the next ones are messages.
    lines = [b"GET / HTTP/1.1", *(b"X-Header-%d: %s" % (i, b"v" * 50) for i in range(40))]

    browser = system_socket.create_connection(
        ("127.0.0.1", parse_endpoint(server.endpoint).port), timeout=DEADLINE_S
    )
    with browser:
        browser.sendall(b"\r\n".join(lines) + b"\r\n\r\n")
        wait_for_refusals(server, 1)
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
    bystander = open_client(server)
    client = open_client(server, routing_id=b"talker")

    assert client.send(ActRequest(1, {"observation": np.zeros((1, 10_001), np.uint8)}))
    # It waits behind the oversize frame and is lost with the connection; or the connection has
    # ended already, and it is not sent, or sent on the next one.
    client.send(ActRequest(2, {"observation": np.zeros((1, 10_000), np.uint8)}))
    assert bystander.send(StatusRequest())
    deadline = time.monotonic() + DEADLINE_S
    heard: dict[bytes, list[int | None]] = {}

    def listen() -> None:
        assert time.monotonic() < deadline, heard
        for routing_id, envelope in server.receive(0.05):
            request = getattr(envelope.message, "request", None)
            heard.setdefault(routing_id, []).append(request)

    while not heard.keys() - {b"talker"}:
        listen()
    [other] = heard.keys() - {b"talker"}
    assert server.send(other, Status("{}"))
    assert bystander.receive(DEADLINE_S).message == Status("{}")
    while 3 not in heard.get(b"talker", []):
        client.send(ActRequest(3, {"observation": np.zeros((1, 10_000), np.uint8)}), timeout_s=0.05)
        listen()
    assert 1 not in heard[b"talker"]


def test_sending_to_a_peer_that_is_gone_says_so(server, open_client):
    client = open_client(server)
    assert client.send(StatusRequest())
    [(routing_id, _)] = receive_all(server, 1)
    client.close()

    deadline = time.monotonic() + DEADLINE_S
    while server.send(routing_id, HeartbeatReply(1)):
        assert time.monotonic() < deadline, "the server still thinks the peer is there"
        server.receive(0.2)  # longer than ZeroMQ needs: the queue must not be full before

    assert server.unsent == {"unreachable": 1}
    assert not server.send(b"nobody", HeartbeatReply(1))
    assert server.unsent == {"unreachable": 2}


def test_sending_to_a_peer_that_does_not_listen_says_so_in_the_end(
    open_server, open_client, monkeypatch
):
    monkeypatch.setattr("aclearn.wire.sockets.QUEUE_MESSAGES", 2)
    server = open_server("ipc")
    client = open_client(server, routing_id=b"deaf")
    assert client.send(StatusRequest())
    assert receive_all(server, 1)
    half_a_mib = Weights(0, 0, {"w": np.zeros(131_072, np.float32)})

    sent = 0
    while sent < 200 and server.send(b"deaf", half_a_mib):
        sent += 1

    assert 1 <= sent < 200
    assert server.unsent == {"full": 1}
    assert_answers(server, open_client(server))


def test_a_client_without_a_server_does_not_wait_for_ever(context, tmp_path):
    socket = connect_dealer(context, f"ipc://{tmp_path}/nobody.sock", routing_id=b"lonely")
    client = Client(ZmqTransport(socket), RUN, "client")
    try:
        started = time.monotonic()
        assert not client.send(StatusRequest())
        assert not client.send(StatusRequest(), timeout_s=0.1)
        assert client.receive(0.1) is None
        assert 0.2 <= time.monotonic() - started < DEADLINE_S
        assert client.unsent == {"full": 2}
    finally:
        client.close()


def test_a_client_finds_a_server_that_comes_back_to_its_address(open_server, open_client):
    first = open_server("tcp")
    client = open_client(first)
    assert_answers(first, client)
    first.close()

    deadline = time.monotonic() + DEADLINE_S
    second = None
    while second is None:  # ZeroMQ frees an address a moment after the socket is closed
        try:
            second = open_server(first.endpoint)
        except EndpointError:
            assert time.monotonic() < deadline, "the address is still in use"
    received = []
    while not received and time.monotonic() < deadline:
        client.send(StatusRequest(), timeout_s=0.1)
        received = second.receive(0.1)

    assert received[0][1].message == StatusRequest()


def test_a_process_that_reconnects_as_the_same_incarnation_is_heard(open_server, open_client):
    server = open_server("tcp")
    half_dead = open_client(server, routing_id=b"incarnation")
    assert_answers(server, half_dead)

    newcomer = open_client(server, routing_id=b"incarnation")

    assert_answers(server, newcomer)


def test_one_call_takes_no_more_messages_than_its_limit(server, open_client):
    client = open_client(server)
    for revision in range(10):
        assert client.send(HeartbeatReply(revision), timeout_s=DEADLINE_S)

    sizes = []
    revisions = []
    deadline = time.monotonic() + DEADLINE_S
    while len(revisions) < 10 and time.monotonic() < deadline:
        received = server.receive(0.05, limit=4)
        sizes.append(len(received))
        revisions += [envelope.message.revision for _, envelope in received]

    assert revisions == list(range(10))
    assert max(sizes) <= 4


def test_receive_returns_when_its_time_is_over(server, open_client):
    client = open_client(server)
    started = time.monotonic()

    assert server.receive(0.1) == []
    assert client.receive(0.1) is None

    assert 0.2 <= time.monotonic() - started < DEADLINE_S


def test_a_client_that_waits_sleeps_although_it_could_send(server, open_client, monkeypatch):
    client = open_client(server)
    assert_answers(server, client)
    looked = []
    monkeypatch.setattr(client.transport, "take", lambda: looked.append("again"))
    assert client.receive(0.1) is None
    assert looked == []


@pytest.mark.parametrize("timeout_s", [-1.0, float("inf"), float("nan")])
def test_a_wait_without_a_deadline_is_a_bug(open_server, timeout_s):
    with pytest.raises(ValueError, match="finite time"):
        open_server("ipc").receive(timeout_s)


def test_a_second_thread_may_not_use_a_channel(server):
    assert server.receive(0) == []
    errors = []

    def intrude():
        try:
            server.receive(0)
        except RuntimeError as exc:
            errors.append(str(exc))

    thread = threading.Thread(target=intrude)
    thread.start()
    thread.join(DEADLINE_S)

    assert errors == ["a channel was used by a second thread; one thread owns a socket"]


def test_a_last_message_leaves_when_the_socket_lingers(open_server, open_client):
    server = open_server("tcp")
    client = open_client(server)

    assert client.send(Status("bye"))
    client.close(linger_s=DEADLINE_S)

    [(_, envelope)] = receive_all(server, 1)
    assert envelope.message == Status("bye")
