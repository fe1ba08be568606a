"""Only holders of the cluster's keys can connect."""

from __future__ import annotations

import logging

import pytest
import zmq

from aclearn.errors import EndpointError
from aclearn.wire import (
    Client,
    ClusterKeys,
    Server,
    StatusRequest,
    ZmqTransport,
    bind_router,
    connect_dealer,
    create_keys,
    load_keys,
    new_incarnation,
)
from tests.support.waiting import wait_for

#: Time that a stranger tries. A connection with the right keys takes a few ms.
STRANGER_TRIES_MS = 500


@pytest.fixture
def keys(tmp_path):
    create_keys(tmp_path / "keys")
    return load_keys(tmp_path / "keys")


@pytest.fixture
def server(context, keys):
    socket, endpoint = bind_router(context, "tcp", keys=keys)
    channel = Server(ZmqTransport(socket), "run-1", "server")
    channel.endpoint = endpoint
    yield channel
    channel.close()


def assert_a_good_peer_is_heard(context, server, keys):
    socket = connect_dealer(
        context, server.endpoint, routing_id=new_incarnation().encode(), keys=keys
    )
    client = Client(ZmqTransport(socket), "run-1", "good")
    try:
        assert client.send(StatusRequest(), timeout_s=5)
        [(_, envelope)] = server.receive(5)
        assert (envelope.incarnation, envelope.message) == ("good", StatusRequest())
    finally:
        client.close()


def assert_not_connected(socket):
    try:
        assert not socket.poll(STRANGER_TRIES_MS, zmq.POLLOUT)
        with pytest.raises(zmq.Again):
            socket.send(b"let me in", zmq.NOBLOCK)
    finally:
        socket.close()


def test_two_servers_of_one_process_share_a_guard(context, server, keys):
    socket, endpoint = bind_router(context, "tcp", keys=keys)
    second = Server(ZmqTransport(socket), "run-1", "second")
    second.endpoint = endpoint
    try:
        assert_a_good_peer_is_heard(context, second, keys)
        assert_a_good_peer_is_heard(context, server, keys)
    finally:
        second.close()


@pytest.mark.parametrize("of_another_cluster", [False, True])
def test_a_peer_without_these_keys_gets_nothing_and_is_counted(
    context, server, keys, caplog, of_another_cluster
):
    assert server.transport.refused_connections == 0
    other = ClusterKeys(*zmq.curve_keypair()) if of_another_cluster else None
    assert_not_connected(
        connect_dealer(context, server.endpoint, routing_id=b"stranger", keys=other)
    )
    assert server.receive(0) == []
    wait_for(lambda: server.transport.refused_connections, "a connection is refused")
    assert "event=connection_refused" in caplog.text and server.endpoint in caplog.text
    assert_a_good_peer_is_heard(context, server, keys)


def test_a_peer_that_knows_the_public_key_only_is_refused_by_the_guard(
    context, server, keys, caplog
):
    public, secret = zmq.curve_keypair()
    stranger = context.socket(zmq.DEALER)
    stranger.linger = 0
    stranger.immediate = True
    stranger.curve_serverkey = keys.public
    stranger.curve_publickey = public
    stranger.curve_secretkey = secret

    with caplog.at_level(logging.WARNING, logger="aclearn.wire.keys"):
        stranger.connect(server.endpoint)
        assert_not_connected(stranger)
        wait_for(lambda: server.receive(0.01) or caplog.records, "the guard says so")

    assert caplog.records[0].getMessage() == "event=key_denied count=1"
    assert server.receive(0) == []
    assert_a_good_peer_is_heard(context, server, keys)


def test_a_client_with_keys_refuses_a_server_without(context, keys):
    socket, endpoint = bind_router(context, "tcp")
    try:
        assert_not_connected(connect_dealer(context, endpoint, routing_id=b"a", keys=keys))
    finally:
        socket.close()


def test_off_loopback_a_server_with_keys_binds_and_names_its_machine(context, keys):
    socket, endpoint = bind_router(context, "tcp://0.0.0.0:*", keys=keys)
    try:
        assert "0.0.0.0" not in endpoint
    finally:
        socket.close()


def test_keys_are_for_their_owner_only_not_shown_and_not_overwritten(tmp_path):
    path = create_keys(tmp_path / "keys")
    keys, text = load_keys(tmp_path / "keys"), path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert keys.secret.decode() not in repr(keys) and keys.public.decode() in repr(keys)
    with pytest.raises(EndpointError, match="exists already"):
        create_keys(tmp_path / "keys")
    assert path.read_bytes() == text
    path.chmod(0o644)
    with pytest.raises(EndpointError, match="chmod 600"):
        load_keys(tmp_path / "keys")
    with pytest.raises(EndpointError, match=f"aclearn keys {tmp_path}/none"):
        load_keys(tmp_path / "none")


@pytest.mark.parametrize("directory", ["file", "file/below", "file/far/below"])
def test_a_file_for_a_folder_is_named(tmp_path, directory):
    (tmp_path / "file").touch()
    with pytest.raises(EndpointError, match=f"^{tmp_path}/file is a file; expected a folder"):
        create_keys(tmp_path / directory)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"public secret",
        b"public abc\nsecret def\n",
        b"public " + b"a" * 40 + b"\nsecret " + b"b" * 40,
        b"public " + b"\xff" * 40 + b"\nsecret " + b"\xff" * 40,
        bytes(1000),
    ],
)
def test_damaged_keys_are_refused(tmp_path, text):
    create_keys(tmp_path).write_bytes(text)

    with pytest.raises(EndpointError, match=r"no key file|damaged"):
        load_keys(tmp_path)
