"""Who may connect, what each may send, and how a connection ends: over real sockets."""

from __future__ import annotations

import logging
import socket
import threading
import time
from contextlib import suppress

import pytest
import zmq
from zmq.utils import z85

from aclearn.wire import (
    Admission,
    AllowedKey,
    ClientKeys,
    Heartbeat,
    ServerKeys,
    StatusRequest,
    bind_router,
    connect_dealer,
    load_key,
    new_pair,
    parse_endpoint,
    revoke_key,
    rotate_keys,
)
from aclearn.wire import codec as codec_module
from services.roles import KEY_ROLES
from services.wiring import ENDPOINTS
from tests.support.keys import KeyedServer, client_keys, make_keys
from tests.support.waiting import wait_for

#: Time that a stranger tries. A connection with the right keys takes a few ms.
STRANGER_TRIES_MS = 500


@pytest.fixture
def keys(tmp_path):
    return make_keys(tmp_path / "keys")


@pytest.fixture
def server(context, keys):
    made = KeyedServer(context, keys)
    yield made
    made.close()


def assert_heard(server, client, message=None):
    message = Heartbeat() if message is None else message
    received = []

    def heard():
        client.send(message, timeout_s=0.5)  # again: a connection that ends may take one with it
        received.extend(server.channel.receive(0.1))
        return received

    wait_for(heard, "it is heard")
    _, envelope = received[0]
    assert envelope.message == message
    return envelope


def assert_not_connected(client):
    assert not client.transport.socket.poll(STRANGER_TRIES_MS, zmq.POLLOUT)


def test_a_message_has_the_key_that_its_connection_proved(server):
    for role in ("actor", "trainer"):
        key = assert_heard(server, server.client(role)).key
        assert (key.name, key.roles) == (role, [role])


@pytest.mark.parametrize("which", ["no keys", "of another cluster", "on no list", "revoked"])
def test_a_peer_without_an_allowed_key_gets_nothing_is_counted_and_said_once(
    server, keys, caplog, tmp_path, which
):
    said = []
    server.admission.said = said.append
    monitor = client_keys(keys, "actor").server
    if which == "no keys":
        given = None
    elif which == "of another cluster":
        given = client_keys(make_keys(tmp_path / "others"), "actor")
    elif which == "on no list":
        given = ClientKeys(new_pair(), monitor)
    else:
        given = client_keys(keys, "evaluator")
        revoke_key(keys, "evaluator")
        server.allow()
    with caplog.at_level(logging.WARNING, logger="aclearn.wire"):
        client = server.client(given)
        assert_not_connected(client)
        refused = server.channel.transport
        wait_for(lambda: refused.refused_connections, "it is counted")
    assert server.channel.receive(0) == []
    reasons = {"on no list": "unknown_key", "revoked": "revoked_key"}
    assert (
        set(refused.refused_keys) == {reasons[which]} & {*reasons.values()}
        if (which in reasons)
        else not refused.refused_keys
    )
    [record] = caplog.records
    words = {"revoked": "key evaluator, which was revoked", "on no list": "not on this run's list"}
    assert words.get(which, "has no keys") in record.getMessage()
    assert len(said) == (which in reasons)
    assert_heard(server, server.client("actor"))


def test_revocation_ends_what_is_connected_whether_it_speaks_or_is_silent_and_no_others(
    server, keys
):
    good, speaks = server.client("actor"), server.client("evaluator")
    silent = server.client("evaluator")
    assert_heard(server, good)
    assert_heard(server, speaks)
    # connected, and has sent nothing
    wait_for(lambda: silent.transport.socket.poll(100, zmq.POLLOUT), "it is connected")
    lost = {
        client: client.transport.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        for client in (good, speaks, silent)
    }
    try:
        revoke_key(keys, "evaluator")
        server.allow()
        for client in (speaks, silent):
            wait_for(lambda client=client: lost[client].poll(100), "its connection ends")
            assert_not_connected(client)
        assert_heard(server, good)
        assert not lost[good].poll(0)
    finally:
        for client, events in lost.items():
            client.transport.socket.disable_monitor()
            events.close()


def test_revocation_ends_a_silent_connection_that_has_the_descriptor_of_one_that_spoke(
    server, keys
):
    guard = server.channel.transport._guard
    speak = [server.client("actor") for _ in range(6)]
    for client in speak:
        assert_heard(server, client)
    theirs = set(guard._open)
    for client in speak:
        client.close()
    wait_for(lambda: not guard._open, "they are closed")
    silent = [server.client("evaluator") for _ in range(6)]
    for client in silent:
        assert client.transport.socket.poll(5000, zmq.POLLOUT)
    assert guard._open & theirs, "the system gives descriptors again, the lowest first"
    revoke_key(keys, "evaluator")
    server.allow()
    wait_for(lambda: not guard._open, "all are ended")


def test_a_message_that_was_on_its_way_when_its_key_was_revoked_is_refused(server, keys, caplog):
    client = server.client("evaluator")
    assert client.send(Heartbeat(), timeout_s=5)
    assert server.channel.transport.wait(5)  # it is in our queue
    revoke_key(keys, "evaluator")
    server.allow()
    with caplog.at_level(logging.ERROR, logger="aclearn.wire"):
        assert server.channel.receive(1.0) == []
    assert server.channel.refused == {"revoked_key": 1} and server.channel.refused_keys >= 1
    assert "reason=revoked_key" in caplog.text


def test_both_pairs_work_in_the_grace_of_a_rotation_and_the_new_one_after_it(server, keys):
    old, client = client_keys(keys, "actor"), server.client("actor")
    assert_heard(server, client)
    rotate_keys(keys, ["actor"], grace_s=60)
    server.allow()
    assert_heard(server, client)  # it was not cut
    assert_heard(server, server.client(old))
    assert_heard(server, server.client("actor"))
    client.transport.reconnect(server.endpoint, client_keys(keys, "actor"))
    assert_heard(server, client)
    rotate_keys(keys, ["actor"], grace_s=0)
    server.allow()
    assert_not_connected(server.client(old))
    assert_not_connected(client)
    client.transport.reconnect(server.endpoint, client_keys(keys, "actor"))
    assert_heard(server, client)


def test_a_server_takes_its_next_pair_at_the_same_address(server, keys):
    old, client = client_keys(keys, "actor"), server.client("actor")
    assert_heard(server, client)
    rotate_keys(keys, ["monitor"], grace_s=0)
    pair = load_key(keys / "monitor.key").pair(time.time())
    server.channel.transport.rebind(ServerKeys(pair, server.admission))
    assert_not_connected(server.client(old))
    client.transport.reconnect(server.endpoint, client_keys(keys, "actor"))
    assert_heard(server, client)


ACTOR = AllowedKey(new_pair().public, "actor", ["actor"])
TRAINER = AllowedKey(new_pair().public, "trainer", ["trainer"])


class Handshakes:
    """An admission that is asked without sockets."""

    def __init__(self, context):
        self.admission = Admission(context)
        self.admission.allow([ACTOR, TRAINER])

    def connect(self, key, domain=b"d"):
        """The mark of a new connection; None if it is refused."""
        credentials = z85.decode(key.public.encode())
        mark = self.admission._admit([b"1.0", b"1", domain, b"", b"", b"CURVE", credentials])
        return None if mark is None else mark.decode()

    def key_of(self, mark, descriptor):
        """The key of a message."""
        return self.admission.sender({b"User-Id": mark, zmq.SRCFD: descriptor})[1]


def test_a_descriptor_belongs_to_the_newest_connection_that_used_it(context):
    made, ended = Handshakes(context), {}
    for domain in (b"d", b"other"):
        made.admission.serve(domain, lambda kept, domain=domain: ended.update({domain: kept}))
    closed, unread = made.connect(ACTOR), made.connect(ACTOR)
    assert made.key_of(closed, 12) == ACTOR
    other, later = made.connect(ACTOR, b"other"), made.connect(TRAINER)
    assert made.key_of(other, 12) == ACTOR and made.key_of(later, 12) == TRAINER
    assert made.key_of(unread, 12) == ACTOR  # a message of a closed connection that had waited
    assert made.key_of(closed, 12) is None and made.key_of(unread, 12) is None
    made.admission.allow([ACTOR])
    assert ended == {b"d": set(), b"other": {12}}


def test_a_key_that_connects_again_and_again_displaces_its_own_connections_alone(
    context, monkeypatch
):
    monkeypatch.setattr("aclearn.wire.admission._MOST_CONNECTIONS", 2)
    made = Handshakes(context)
    trainer, *actors = (made.connect(key) for key in (TRAINER, ACTOR, ACTOR, ACTOR))
    assert made.key_of(trainer, 1) == TRAINER
    assert [made.key_of(mark, 2 + n) for n, mark in enumerate(actors)] == [None, ACTOR, ACTOR]


def test_each_unknown_key_is_said_once_and_a_flood_of_them_hides_no_revoked_one(
    context, monkeypatch
):
    monkeypatch.setattr("aclearn.wire.admission._MOST_NAMED", 2)
    made, said = Handshakes(context), []
    made.admission.said = said.append
    strangers = [AllowedKey(new_pair().public, "", []) for _ in range(3)]
    made.admission.allow([TRAINER])
    for key in (*strangers, *strangers, ACTOR, ACTOR):
        assert made.connect(key) is None
    assert len(said) == 3 and "actor" in said[2]
    assert all(key.public in words for key, words in zip(strangers[:2], said[:2], strict=True))
    assert made.admission.refused(b"d") == {"unknown_key": 6, "revoked_key": 2}


def _may(name):
    return [(role, kind) for kind in ENDPOINTS[name].accepts for role in KEY_ROLES]


@pytest.mark.parametrize("name", [name for name, end in ENDPOINTS.items() if end.accepts])
def test_each_role_may_send_what_the_wiring_says_and_nothing_else(context, keys, name, monkeypatch):
    """With messages whose content is not looked at: the right is that of their kind."""
    server = KeyedServer(context, keys, name)
    sent = []
    monkeypatch.setattr(
        "aclearn.wire.channels.decode",
        lambda frames, **given: codec_module.Envelope("run-1", "i", 0, sent[-1], given["key"]),
    )
    try:
        clients = {role: server.client(role) for role in KEY_ROLES}
        for role, kind in _may(name):
            sent.append(object.__new__(kind))
            monkeypatch.setattr(type(sent[-1]), "policy", "default", raising=False)
            client = clients[role]
            client.transport.wait_for_room(5)
            assert client.transport.send([b"any"]) is None
            before, received = server.channel.refused["not_allowed"], []
            wait_for(
                lambda got=received, before=before: (
                    got.extend(server.channel.receive(0.05))
                    or got
                    or server.channel.refused["not_allowed"] > before
                ),
                "it is taken or refused",
            )
            assert bool(received) == (role in ENDPOINTS[name].accepts[kind]), (role, kind)
    finally:
        server.close()


def test_a_stolen_key_of_an_actor_cannot_give_directives_or_ask_for_the_status(server, caplog):
    client = server.client("actor")
    with caplog.at_level(logging.ERROR, logger="aclearn.wire"):
        for _ in range(3):
            assert client.send(StatusRequest(), timeout_s=5)
            wait_for(lambda: server.channel.receive(0.05) or client.receive(0.05), "an answer")
    assert server.channel.refused == {"not_allowed": 3}
    [record] = caplog.records
    assert "the key actor is for actor, which may not send StatusRequest" in record.getMessage()


def _relayed(server, recorded):
    """A listener that passes on one connection, and keeps what the client sends."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = parse_endpoint(server.endpoint).port

    def pass_on():
        near, _ = listener.accept()
        far = socket.create_connection(("127.0.0.1", port))
        with near, far:
            back = threading.Thread(target=_copy, args=(far, near, None), daemon=True)
            back.start()
            _copy(near, far, recorded)
            back.join(5)

    thread = threading.Thread(target=pass_on, daemon=True)
    thread.start()
    return listener, thread


def _copy(source, target, recorded):
    try:
        while data := source.recv(65536):
            if recorded is not None:
                recorded += data
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return


def test_a_recorded_connection_cannot_be_replayed(context, server):
    recorded = bytearray()
    listener, thread = _relayed(server, recorded)
    dealer = connect_dealer(
        context,
        f"tcp://127.0.0.1:{listener.getsockname()[1]}",
        routing_id=b"recorded",
        keys=client_keys(server.directory, "actor"),
    )
    dealer.send_multipart(
        codec_module.encode(Heartbeat(), run="run-1", incarnation="recorded", sequence=0)
    )
    wait_for(lambda: server.channel.receive(0.05), "the first one is heard")
    dealer.close(linger=0)
    listener.close()
    thread.join(5)
    assert len(recorded) > 200

    before = server.channel.transport.refused_connections
    with socket.create_connection(("127.0.0.1", parse_endpoint(server.endpoint).port)) as replay:
        replay.sendall(recorded)
        replay.settimeout(5)
        with suppress(ConnectionResetError):
            while replay.recv(65536):
                pass  # until the server ends it
    wait_for(lambda: server.channel.transport.refused_connections > before, "it is counted")
    assert server.channel.receive(0.1) == []


def test_a_peer_that_speaks_another_protocol_is_refused_counted_and_said_once(
    server, monkeypatch, caplog
):
    client = server.client("actor")
    monkeypatch.setattr(codec_module, "PROTOCOL_VERSION", codec_module.PROTOCOL_VERSION + 1)
    parts = codec_module.encode(Heartbeat(), run="run-1", incarnation="new", sequence=0)
    monkeypatch.undo()
    with caplog.at_level(logging.ERROR, logger="aclearn.wire"):
        for _ in range(2):
            client.transport.wait_for_room(5)
            assert client.transport.send(parts) is None
        wait_for(
            lambda: server.channel.receive(0.05) or server.channel.refused["wrong_version"] == 2,
            "both are refused",
        )
    [record] = caplog.records
    assert "the peer speaks protocol" in record.getMessage()
    # and another version of ZeroMQ's
    with socket.create_connection(("127.0.0.1", parse_endpoint(server.endpoint).port)) as old:
        old.sendall(b"\xff\0\0\0\0\0\0\0\x01\x7f\x01" + bytes(60))  # ZMTP 2.0
        old.settimeout(5)
        with suppress(ConnectionResetError):
            while old.recv(65536):
                pass  # until the server ends it
    assert server.channel.receive(0.1) == []


def test_before_the_first_list_nobody_is_admitted(context, keys):
    server = KeyedServer(context, keys, listed=False)
    client = server.client("actor")
    try:
        assert_not_connected(client)
        server.allow()
        # its handshake has waited
        wait_for(lambda: client.transport.socket.poll(100, zmq.POLLOUT), "it is connected")
        assert_heard(server, client)
    finally:
        server.close()


def test_a_client_with_keys_refuses_a_server_without(context, keys):
    bound, endpoint = bind_router(context, "tcp")
    dealer = connect_dealer(context, endpoint, routing_id=b"a", keys=client_keys(keys, "actor"))
    try:
        assert not dealer.poll(STRANGER_TRIES_MS, zmq.POLLOUT)
    finally:
        dealer.close()
        bound.close()


def test_off_loopback_a_server_with_keys_binds_and_names_its_machine(context, server):
    keys = ServerKeys(new_pair(), server.admission)
    bound, endpoint = bind_router(context, "tcp://0.0.0.0:*", keys=keys)
    try:
        assert "0.0.0.0" not in endpoint
    finally:
        bound.close()
