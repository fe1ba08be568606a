"""The bound of a server's connections: newcomers are refused, members are heard."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from contextlib import ExitStack

import pytest
import zmq

from aclearn.wire import bind_router, connect_dealer
from aclearn.wire.connections import ConnectionGuard, most_connections
from tests.support.waiting import DEADLINE_S, wait_for

_MOST = 5
#: Fills the queue of a server that does not read, and leaves; with heartbeats libzmq has aborted
#: the server's process two seconds later. Prints how many messages the server has at last.
_LEAVES_A_FULL_QUEUE = """
import time, zmq
from aclearn.wire import bind_router, connect_dealer

with zmq.Context() as servers, zmq.Context() as clients:
    router, endpoint = bind_router(servers, "tcp")
    with router, connect_dealer(clients, endpoint, routing_id=b"client") as client:
        assert client.poll(10_000, zmq.POLLOUT)
        for _ in range(40):
            client.send(bytes(10_000))
            assert client.poll(10_000, zmq.POLLOUT)
        client.close(linger=10_000)
        time.sleep(5)
        received = 0
        while router.poll(1000):
            router.recv_multipart()
            received += 1
        print(received)
"""
#: Cuts the line of two peers in a network of their own, and waits until both have lost the other.
_CUTS_THE_LINE = """
import subprocess, sys, zmq
from aclearn.wire import bind_router, connect_dealer

with zmq.Context() as servers, zmq.Context() as clients:
    router, endpoint = bind_router(servers, "tcp")
    with router, connect_dealer(clients, endpoint, routing_id=b"client") as client:
        assert client.poll(10_000, zmq.POLLOUT)
        client.send(b"request")
        router.recv_multipart()
        ends = [end.get_monitor_socket(zmq.EVENT_DISCONNECTED) for end in (router, client)]
        subprocess.run(["ip", "link", "set", "lo", "down"], check=True)
        if sys.argv[1] == "answers":
            router.send_multipart([b"client", b"answer"])
        print(*(bool(end.poll(40_000)) for end in ends))
        router.disable_monitor()
        client.disable_monitor()
"""


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
    held, take = threading.Event(), ConnectionGuard._take

    def late(guard, frames):
        assert held.wait(DEADLINE_S)
        return take(guard, frames)

    monkeypatch.setattr(ConnectionGuard, "_take", late)
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


def test_a_server_that_does_not_read_outlives_a_peer_that_leaves_and_has_all_of_its_messages():
    done = subprocess.run(
        [sys.executable, "-c", _LEAVES_A_FULL_QUEUE],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "40"), done.stderr


@pytest.mark.parametrize("server", ["is silent", "answers"])
def test_both_ends_of_a_dead_tcp_connection_lose_it(server):
    own_network = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
    try:
        subprocess.run([*own_network, "true"], check=True, timeout=DEADLINE_S)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs a network of its own")
    done = subprocess.run(
        [*own_network, sys.executable, "-c", _CUTS_THE_LINE, server],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "True True"), done.stderr
