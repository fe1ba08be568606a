"""The in-process transport behaves like ZeroMQ."""

from __future__ import annotations

import time
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

from aclearn.errors import EndpointError
from aclearn.wire import (
    ChannelPoller,
    Client,
    HeartbeatReply,
    InProcessNetwork,
    Server,
    Status,
    StatusRequest,
    UnrollReply,
    Weights,
    ZmqTransport,
    bind_router,
    connect_dealer,
    encode,
)
from tests.support.waiting import DEADLINE_S

RUN = "run-1"


class OverZmq:
    """Opens channels over ZeroMQ."""

    def __init__(self, context, directory):
        self.context, self.address, self.channels = context, f"ipc://{directory}/s.sock", []

    def server(self, **options):
        end = time.monotonic() + DEADLINE_S
        while True:
            try:
                socket, _ = bind_router(self.context, self.address)
                break
            except EndpointError:  # ZeroMQ's thread closes the one before a little later
                assert time.monotonic() < end
        return self._opened(Server(ZmqTransport(socket), RUN, "server", **options))

    def client(self, routing_id=b"peer", run=RUN):
        socket = connect_dealer(self.context, self.address, routing_id=routing_id)
        return self._opened(Client(ZmqTransport(socket), run, "client"))

    def _opened(self, channel):
        self.channels.append(channel)
        return channel


class InProcess:
    """Opens the same channels in one process."""

    channels = ()

    def __init__(self):
        self.network = InProcessNetwork()

    def server(self, **options):
        return Server(self.network.bind("trainer-0", "any"), RUN, "server", **options)

    def client(self, routing_id=b"peer", run=RUN):
        end = self.network.connect("actor-0", "any", routing_id=routing_id)
        return Client(end, run, "client")


@pytest.fixture(params=["zmq", "in-process"])
def opens(request, context, tmp_path):
    opens = OverZmq(context, tmp_path) if request.param == "zmq" else InProcess()
    yield opens
    for channel in opens.channels:
        channel.close()


def next_of(server):
    """The next message of a server with its routing id."""
    [received] = server.receive(DEADLINE_S, limit=1)
    return received


def test_a_message_reaches_the_server_and_its_answer_the_client(opens, samples):
    server, client = opens.server(), opens.client(b"incarnation-7")
    assert client.send(samples["Unroll"], sequence=12, timeout_s=DEADLINE_S)
    ChannelPoller(server).wait(DEADLINE_S)
    routing_id, envelope = next_of(server)
    assert server.send(routing_id, UnrollReply(12, True, ""))
    answer = client.receive(DEADLINE_S)

    assert (routing_id, envelope.incarnation, envelope.sequence) == (b"incarnation-7", "client", 12)
    came, sent = envelope.message.observations, samples["Unroll"].observations
    np.testing.assert_array_equal(came["joints"], sent["joints"])
    assert not came["joints"].flags.writeable
    assert (answer.incarnation, answer.message) == ("server", UnrollReply(12, True, ""))


def test_a_client_without_a_server_is_told_that_it_is_full(opens):
    client = opens.client()
    assert not client.transport.wait_for_room(0.0)
    assert not client.send(StatusRequest())
    assert client.receive(0.0) is None
    assert client.unsent == {"full": 1}


def test_a_server_is_told_that_a_client_is_unreachable(opens):
    server = opens.server()
    assert not server.send(b"nobody", Status("{}"))
    assert server.unsent == {"unreachable": 1}
    client = opens.client()
    assert client.send(StatusRequest(), timeout_s=DEADLINE_S)
    client.close(linger_s=1.0)
    routing_id, envelope = next_of(server)  # its sent messages arrive all the same
    assert envelope.message == StatusRequest()
    for _ in range(500):  # ZeroMQ notices a closed connection a little later
        if not server.send(routing_id, Status("{}")) and server.unsent["unreachable"] == 2:
            break
        server.receive(0.01)
    assert server.unsent["unreachable"] == 2


def test_queues_are_bounded_in_both_directions_and_have_room_again(opens):
    server, client = opens.server(), opens.client()
    sent = next(n for n in count() if not client.send(HeartbeatReply(n), timeout_s=0.05))
    assert client.unsent == {"full": 1} and 16 <= sent <= 1000
    first = next_of(server)[1].message
    assert first == HeartbeatReply(0)
    answered = next(n for n in count() if not server.send(b"peer", HeartbeatReply(n)))
    assert server.unsent == {"full": 1} and 16 <= answered <= 1000
    received = 1
    while received < sent:
        received += len(server.receive(DEADLINE_S))
    assert received == sent
    assert client.send(StatusRequest(), timeout_s=DEADLINE_S)
    assert [client.receive(DEADLINE_S).message.revision for _ in range(answered)] == [
        *range(answered)
    ]


def test_what_is_no_message_is_refused_counted_and_answered(opens):
    server, client = opens.server(accepts=(StatusRequest,)), opens.client()
    stranger = opens.client(b"stranger", run="run-2")
    assert client.transport.wait_for_room(DEADLINE_S)
    header = encode(StatusRequest(), run=RUN, incarnation="x", sequence=0)[0]
    for parts in (
        [b""],
        [header, b"more"],
        encode(Status("{}"), run=RUN, incarnation="x", sequence=0),
    ):
        assert client.transport.send(parts) is None
    assert stranger.send(StatusRequest(), timeout_s=DEADLINE_S)
    while server.refused.total() < 4:
        assert server.receive(DEADLINE_S) == []
    reasons = [client.receive(DEADLINE_S).message.reason for _ in range(3)]
    assert reasons == ["bad_header", "wrong_frames", "unexpected_kind"]
    assert stranger.receive(DEADLINE_S).message.reason == "wrong_run"
    assert client.send(StatusRequest(), timeout_s=DEADLINE_S)
    assert next_of(server)[1].message == StatusRequest()


def test_a_server_that_was_started_again_is_found_at_its_address(opens):
    server, client = opens.server(), opens.client()
    assert client.send(StatusRequest(), timeout_s=DEADLINE_S)
    assert next_of(server)
    server.close()
    again = opens.server()
    assert client.send(HeartbeatReply(3), timeout_s=DEADLINE_S)
    while not (received := again.receive(1.0)):
        assert client.send(HeartbeatReply(3), timeout_s=DEADLINE_S)  # sent to the closed one
    assert received[0][1].message == HeartbeatReply(3)


@pytest.fixture
def run():
    """A trainer and two actors in one process."""
    network = InProcessNetwork()
    server = Server(network.bind("trainer-0", "unrolls"), RUN, "trainer")
    actors = [
        Client(network.connect(name, "unrolls", routing_id=name.encode()), RUN, name)
        for name in ("actor-0", "actor-1")
    ]
    return SimpleNamespace(network=network, server=server, actors=actors)


def said(server):
    """Senders and numbers of the messages, in the order of arrival."""
    return [(id.decode()[-1], e.message.revision) for id, e in server.receive(0.0)]


def test_arrays_are_those_of_the_moment_of_sending(run):
    tensor = np.arange(4, dtype=np.float32)
    assert run.server.send(b"actor-0", Weights(0, 1, {"a": tensor}))
    tensor[:] = -1
    received = run.actors[0].receive(0.0).message.tensors["a"]
    np.testing.assert_array_equal(received, [0, 1, 2, 3])
    assert not received.flags.writeable


def test_nothing_more_leaves_a_role_that_was_disconnected(run):
    assert run.actors[0].send(HeartbeatReply(1))
    run.network.disconnect("actor-0")
    assert not run.actors[0].send(HeartbeatReply(2))
    assert said(run.server) == [("0", 1)]
    assert not run.server.send(b"actor-0", Status("{}"))
    assert run.server.unsent == {"unreachable": 1}

    assert run.actors[1].send(HeartbeatReply(3))
    run.network.disconnect("trainer-0")
    assert not run.server.transport.inbox  # lost with it
    assert not run.actors[1].send(HeartbeatReply(4))
    assert run.actors[1].unsent == {"full": 1}
    assert not run.server.send(b"actor-1", Status("{}"))
    again = Server(run.network.bind("trainer-0", "unrolls"), RUN, "trainer")
    assert run.actors[1].send(HeartbeatReply(5))
    assert said(again) == [("1", 5)]
    assert run.server.receive(0.0) == []


def test_an_address_is_bound_once_and_a_newer_client_takes_an_older_ones_place(run):
    with pytest.raises(EndpointError, match="trainer-0 has it"):
        run.network.bind("trainer-1", "unrolls")
    newer = Client(run.network.connect("actor-0", "unrolls", routing_id=b"actor-0"), RUN, "new")
    assert run.server.send(b"actor-0", HeartbeatReply(1))
    assert newer.receive(0.0).message == HeartbeatReply(1)
    assert run.actors[0].receive(0.0) is None
    run.actors[0].close()  # the older end's close does not affect the newer one
    assert newer.send(HeartbeatReply(2))


def test_a_wait_ends_at_once(run):
    ChannelPoller(run.server, run.actors[0]).wait(1e6)
    assert run.server.receive(1e6) == []
    assert run.actors[0].receive(1e6) is None
