"""Addresses are parsed, or rejected with a message that says how to mend them."""

from __future__ import annotations

import socket
import stat

import pytest

from aclearn.errors import EndpointError
from aclearn.wire import (
    Admission,
    Endpoint,
    ServerKeys,
    bind_router,
    connect_dealer,
    new_pair,
    parse_endpoint,
)
from aclearn.wire.endpoints import IPC_PATH_MAX_BYTES


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
    ("words", "texts"),
    [
        ("not an address", ["", "127.0.0.1:1", "tcp://127.0.0.1:5\n5", f"tcp://{'h' * 2000}:1"]),
        ("no transport", ["udp://127.0.0.1:5555", "inproc://x"]),
        ("absolute path", ["ipc://relative.sock", "ipc://@abstract"]),
        ("no host", ["tcp://127.0.0.1", "tcp://:5555", "tcp://eth0;10.0.0.1:5555"]),
        ("no port", [f"tcp://a:{p}" for p in ("0", "65536", "99999999999999", "-1", "٣", "")]),
        ("needs brackets", ["tcp://::1:5555"]),
    ],
)
def test_what_is_no_address_is_refused(words, texts):
    for text in texts:
        with pytest.raises(EndpointError, match=words):
            parse_endpoint(text)


def test_a_path_that_the_system_cannot_bind_is_refused_with_its_length():
    longest = "/" + "p" * (IPC_PATH_MAX_BYTES - 1)

    assert parse_endpoint(f"ipc://{longest}").path == longest
    with pytest.raises(EndpointError, match=f"{IPC_PATH_MAX_BYTES + 1} bytes.*shorter directory"):
        parse_endpoint(f"ipc://{longest}x")


def test_only_addresses_of_this_machine_are_loopback():
    ours = [
        "ipc:///a",
        "tcp://localhost:1",
        "tcp://127.0.0.1:1",
        "tcp://127.9.9.9:1",
        "tcp://[::1]:1",
    ]
    others = "tcp://0.0.0.0:1 tcp://*:1 tcp://10.0.0.7:1 tcp://localhost.example:1 tcp://[::]:1"
    assert all(parse_endpoint(text).is_loopback for text in ours)
    assert not any(parse_endpoint(text).is_loopback for text in others.split())


@pytest.mark.parametrize("address", ["tcp://0.0.0.0:*", "tcp://*:5555", "tcp://10.0.0.7:*"])
def test_off_loopback_no_socket_binds_or_connects_without_keys(context, address):
    with pytest.raises(EndpointError, match="aclearn keys new"):
        bind_router(context, address)
    with pytest.raises(EndpointError):
        connect_dealer(context, address, routing_id=b"a")
    with pytest.raises(EndpointError, match="aclearn keys new"):
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
    keys = ServerKeys(new_pair(), Admission(context))
    keys.admission.close()
    # An address of the block that is kept for documentation: no machine has it.
    with pytest.raises(EndpointError, match=r"cannot bind tcp://192\.0\.2\.1:\*: this machine has"):
        bind_router(context, "tcp://192.0.2.1:*", keys=keys)


def test_a_path_with_a_living_listener_is_refused_and_the_listener_lives_on(context, tmp_path):
    path = tmp_path / "other.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen(1)
        with pytest.raises(EndpointError, match=f"{path}: another process listens there"):
            bind_router(context, f"ipc://{path}")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as visitor:
            assert visitor.connect_ex(str(path)) == 0


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


def test_a_path_that_cannot_be_bound_says_why_and_a_file_there_stays(context, tmp_path):
    path, deep = tmp_path / "precious.txt", tmp_path / ("d" * 100)
    path.write_text("precious")
    deep.mkdir()
    for address, folder, said in (
        (f"ipc://{path}", None, "the file there is no socket"),
        (f"ipc://{tmp_path}/none/a.sock", None, f"directory {tmp_path}/none does not exist"),
        ("ipc", None, "needs a directory"),
        ("ipc", deep, "use a shorter directory"),
    ):
        with pytest.raises(EndpointError, match=said):
            bind_router(context, address, directory=folder)
    assert path.read_text() == "precious"


@pytest.mark.parametrize("routing_id", [b"", b"\0a", b"a" * 256])
def test_a_routing_id_that_zeromq_keeps_for_itself_is_refused(context, routing_id):
    with pytest.raises(ValueError, match="routing_id: expected 1 to 255 bytes"):
        connect_dealer(context, "tcp://127.0.0.1:5555", routing_id=routing_id)
