"""Addresses are parsed, or rejected with a message that says how to mend them."""

from __future__ import annotations

import os
import socket
import stat

import pytest
import zmq

from aclearn.errors import EndpointError
from aclearn.wire import ClusterKeys, Endpoint, bind_router, connect_dealer, parse_endpoint
from aclearn.wire.endpoints import IPC_PATH_MAX_BYTES
from tests.support.waiting import DEADLINE_S


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("ipc:///run/x/trainer.sock", Endpoint("ipc", path="/run/x/trainer.sock")),
        ("tcp://127.0.0.1:5555", Endpoint("tcp", host="127.0.0.1", port=5555)),
        ("tcp://node-7:65535", Endpoint("tcp", host="node-7", port=65535)),
        ("tcp://127.0.0.1:*", Endpoint("tcp", host="127.0.0.1", port=0)),
        ("tcp://*:5555", Endpoint("tcp", host="*", port=5555)),
        ("tcp://[::1]:5555", Endpoint("tcp", host="::1", port=5555)),
    ],
)
def test_an_address_is_taken_apart_and_put_together_again(text, endpoint):
    assert parse_endpoint(text) == endpoint
    assert str(endpoint) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not an address"),
        ("127.0.0.1:5555", "not an address"),
        ("tcp://127.0.0.1:55\n55", "not an address"),
        ("tcp://" + "h" * 2000 + ":1", "not an address"),
        ("udp://127.0.0.1:5555", "no transport"),
        ("inproc://x", "no transport"),
        ("ipc://relative.sock", "absolute path"),
        ("ipc://@abstract", "absolute path"),
        ("tcp://127.0.0.1", "no host"),
        ("tcp://:5555", "no host"),
        ("tcp://eth0;10.0.0.1:5555", "no host"),
        ("tcp://127.0.0.1:0", "no port"),
        ("tcp://127.0.0.1:65536", "no port"),
        ("tcp://127.0.0.1:99999999999999", "no port"),
        ("tcp://127.0.0.1:-1", "no port"),
        ("tcp://127.0.0.1:٣", "no port"),
        ("tcp://127.0.0.1:", "no port"),
        ("tcp://::1:5555", "needs brackets"),
    ],
)
def test_what_is_no_address_is_refused(text, words):
    with pytest.raises(EndpointError, match=words):
        parse_endpoint(text)


def test_a_path_that_the_system_cannot_bind_is_refused_with_its_length():
    longest = "/" + "p" * (IPC_PATH_MAX_BYTES - 1)

    assert parse_endpoint(f"ipc://{longest}").path == longest
    with pytest.raises(EndpointError, match=f"{IPC_PATH_MAX_BYTES + 1} bytes.*shorter directory"):
        parse_endpoint(f"ipc://{longest}x")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ipc:///a", True),
        ("tcp://localhost:1", True),
        ("tcp://127.0.0.1:1", True),
        ("tcp://127.9.9.9:1", True),
        ("tcp://[::1]:1", True),
        ("tcp://0.0.0.0:1", False),
        ("tcp://*:1", False),
        ("tcp://10.0.0.7:1", False),
        ("tcp://localhost.example:1", False),
        ("tcp://[::]:1", False),
    ],
)
def test_only_addresses_of_this_machine_are_loopback(text, expected):
    assert parse_endpoint(text).is_loopback is expected


@pytest.mark.parametrize("address", ["tcp://0.0.0.0:*", "tcp://*:5555", "tcp://10.0.0.7:*"])
def test_off_loopback_no_socket_binds_or_connects_without_keys(context, address):
    with pytest.raises(EndpointError, match="aclearn keys DIR"):
        bind_router(context, address)
    with pytest.raises(EndpointError):
        connect_dealer(context, address, routing_id=b"a")
    with pytest.raises(EndpointError, match="aclearn keys DIR"):
        connect_dealer(context, "tcp://10.0.0.7:5555", routing_id=b"a")


def test_a_port_in_use_is_refused(context):
    socket_, endpoint = bind_router(context, "tcp")
    try:
        assert parse_endpoint(endpoint).port > 0
        with pytest.raises(EndpointError, match=f"cannot bind {endpoint}: the address is in use"):
            bind_router(context, endpoint)
    finally:
        socket_.close()


def test_a_host_of_another_machine_cannot_be_bound(context):
    keys = ClusterKeys(*zmq.curve_keypair())

    # An address of the block that is kept for documentation: no machine has it.
    with pytest.raises(EndpointError, match=r"cannot bind tcp://192\.0\.2\.1:\*: this machine has"):
        bind_router(context, "tcp://192.0.2.1:*", keys=keys)


def test_a_path_with_a_living_listener_is_refused_and_the_listener_lives_on(context, tmp_path):
    server, endpoint = bind_router(context, "ipc", directory=tmp_path)
    try:
        path = parse_endpoint(endpoint).path
        with pytest.raises(EndpointError, match=f"{path}: another process listens there"):
            bind_router(context, endpoint)

        client = connect_dealer(context, endpoint, routing_id=b"peer")
        try:
            assert client.poll(DEADLINE_S * 1000, zmq.POLLOUT)
            client.send(b"hello")
            assert server.poll(DEADLINE_S * 1000)
            assert server.recv_multipart() == [b"peer", b"hello"]
        finally:
            client.close()
    finally:
        server.close()


def test_a_plain_unix_listener_is_not_robbed_of_its_path(context, tmp_path):
    path = tmp_path / "other.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen(1)

        with pytest.raises(EndpointError, match="another process listens"):
            bind_router(context, f"ipc://{path}")
        assert path.exists()


def test_a_socket_file_that_a_dead_process_left_is_replaced(context, tmp_path):
    path = tmp_path / "stale.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))

    server, endpoint = bind_router(context, f"ipc://{path}")

    try:
        assert endpoint == f"ipc://{path}"
        assert stat.S_ISSOCK(path.stat().st_mode)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as visitor:
            assert visitor.connect_ex(str(path)) == 0  # a process listens now
    finally:
        server.close()


def test_a_file_that_is_no_socket_is_not_removed(context, tmp_path):
    path = tmp_path / "precious.txt"
    path.write_text("precious")

    with pytest.raises(EndpointError, match="the file there is no socket"):
        bind_router(context, f"ipc://{path}")

    assert path.read_text() == "precious"


def test_a_missing_directory_is_named(context, tmp_path):
    with pytest.raises(EndpointError, match=f"the directory {tmp_path}/none does not exist"):
        bind_router(context, f"ipc://{tmp_path}/none/a.sock")


def test_ipc_without_a_directory_is_refused(context):
    with pytest.raises(EndpointError, match="needs a directory"):
        bind_router(context, "ipc")


@pytest.mark.parametrize("routing_id", [b"", b"\0a", b"a" * 256])
def test_a_routing_id_that_zeromq_keeps_for_itself_is_refused(context, routing_id):
    with pytest.raises(ValueError, match="routing_id: expected 1 to 255 bytes"):
        connect_dealer(context, "tcp://127.0.0.1:5555", routing_id=routing_id)


def test_a_directory_too_deep_for_a_socket_says_so(context, tmp_path):
    deep = tmp_path / ("d" * 100)
    os.mkdir(deep)

    with pytest.raises(EndpointError, match="use a shorter directory"):
        bind_router(context, "ipc", directory=deep)
