"""The bound of a server's connections: newcomers are refused, members are heard."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack

import pytest
import zmq
from zmq.utils.monitor import parse_monitor_message

from aclearn.wire import bind_router, connect_dealer
from aclearn.wire.connections import ConnectionGuard, most_connections
from tests.support.waiting import DEADLINE_S, wait_for

_MOST = 5


def _silent(stack: ExitStack, endpoint: str) -> socket.socket:
    """A connection that says nothing."""
    kind, _, address = endpoint.partition("://")
    if kind == "ipc":
        peer = stack.enter_context(socket.socket(socket.AF_UNIX))
        peer.connect(address)
    else:
        host, _, port = address.rpartition(":")
        peer = stack.enter_context(socket.create_connection((host, int(port))))
    return peer


def _is_ended(peer: socket.socket) -> bool:
    peer.setblocking(False)
    try:
        while peer.recv(1024):  # the greeting
            pass
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
    return True


@pytest.mark.parametrize("address", ["ipc", "tcp"])
def test_connections_beyond_the_bound_are_ended_and_counted_and_a_member_is_heard(
    context, tmp_path, address, caplog
):
    router, endpoint = bind_router(context, address, directory=tmp_path)
    guard = ConnectionGuard(router, most=_MOST)
    member = connect_dealer(context, endpoint, routing_id=b"member")
    with ExitStack() as stack:
        stack.callback(router.close, 0)
        stack.callback(member.close, 0)
        assert member.poll(10_000, zmq.POLLOUT)
        member.send(b"first")
        assert router.recv_multipart() == [b"member", b"first"]

        peers = [_silent(stack, endpoint) for _ in range(50)]
        wait_for(lambda: guard.refused == 50 - (_MOST - 1), "those beyond the bound are counted")
        wait_for(lambda: sum(map(_is_ended, peers)) == guard.refused, "and ended")
        member.send(b"second")
        assert router.poll(10_000)
        assert router.recv_multipart() == [b"member", b"second"]
        # a flood does not fill the log
        assert caplog.text.count("event=connection_refused") == 1

        # room is made when some leave
        for peer in peers:
            peer.close()
        late = connect_dealer(context, endpoint, routing_id=b"late")
        stack.callback(late.close, 0)
        assert late.poll(10_000, zmq.POLLOUT)
        late.send(b"third")
        assert router.poll(10_000)
        assert router.recv_multipart() == [b"late", b"third"]


@pytest.mark.parametrize(
    ("limit", "most"),
    # of two servers, beside half of all, or 256 for files and 1001 for each that guards are behind
    [(16_384, 7_063), (4_516, 1_129), (1_024, 256), (100, 25)],
)
def test_the_bound_leaves_room_for_files(monkeypatch, limit, most):
    monkeypatch.setattr("resource.getrlimit", lambda _: (limit, limit))
    assert most_connections() == most


def test_a_connection_of_which_the_thread_has_not_read_yet_is_ended_too(context, monkeypatch):
    held = threading.Event()

    def late(frames):
        assert held.wait(DEADLINE_S)
        return parse_monitor_message(frames)

    monkeypatch.setattr("aclearn.wire.connections.parse_monitor_message", late)
    router, endpoint = bind_router(context, "tcp")
    guard = ConnectionGuard(router)
    client = connect_dealer(context, endpoint, routing_id=b"client")
    lost = client.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    with ExitStack() as stack:
        for each in (router, client, lost):
            stack.callback(each.close, 0)
        stack.callback(client.disable_monitor)
        wait_for(lambda: client.poll(100, zmq.POLLOUT), "it is connected")
        guard.end_but(set())
        held.set()
        wait_for(lambda: lost.poll(100), "it is ended", within_s=10.0)
