"""A role's links reconnect to restarted peers, also after the monitor's own restart."""

from __future__ import annotations

import socket

import pytest
import zmq

from aclearn.config import Config
from aclearn.errors import ConfigError
from aclearn.wire import Peer, WeightsRequest, bind_router, rotate_keys
from services.role.context import RoleContext, RunEnv
from services.role.request_client import PeerLink, RequestClient
from services.role.requests import RetryPolicy
from tests.support.keys import make_keys
from tests.support.spoilt_connection import spoil_next


def _serve(roles, name):
    context = roles(name)
    server, endpoint = context.serve("weights")
    return context, server, Peer(context.role, name, context.incarnation, {"weights": endpoint})


def _reaches(tools, link, server) -> bool:
    sent = []

    def send() -> None:
        if not sent and link.client.send(WeightsRequest(0, 0)):
            sent.append(True)

    _, envelope = tools.next_message(server, send)
    return envelope.message == WeightsRequest(0, 0)


@pytest.mark.parametrize("monitor", ["tcp://10.0.0.7:5555", "tcp://some-host:5555"])
def test_what_other_machines_cannot_reach_is_refused_when_the_monitor_is_on_one(
    roles, monitor
) -> None:
    context = roles("trainer-0")
    context.run.monitor = monitor
    words = rf"network\.bind_host: 127\.0\.0\.1 cannot be reached .* monitor is at {monitor}"
    with pytest.raises(ConfigError, match=words):
        context.serve("weights")


def test_connections_are_kept_while_the_pair_and_the_monitors_key_are_the_same(
    tools, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("aclearn.wire.keys._LOOK_EVERY_S", 0.0)
    folder = make_keys(tmp_path / "keys")
    network = {"keys_dir": str(folder)}
    config = Config.model_validate(
        {"run": {"name": "r"}, "env": {"id": "CartPole-v1"}, "network": network}
    )
    context = RoleContext("actor", 0, config, RunEnv("tcp://127.0.0.1:9"))
    try:
        client = context.connect(context.run.monitor)
        watch, link, known = (
            context.watch_key(client),
            PeerLink(context, "weights"),
            tools.KnownPeers(),
        )
        known.learn(
            Peer("trainer", "trainer-0", "x", {"weights": "tcp://127.0.0.1:9"}, server_key="s" * 40)
        )
        assert link.follow(known)
        rotate_keys(folder, ["monitor"], grace_s=60)
        assert not watch() and not link.follow(known)
        rotate_keys(folder, ["actor"], grace_s=60)
        assert watch() and link.follow(known)
        client.close()
        link.client.close()
    finally:
        context.close()


def test_a_link_follows_its_peer_through_restarts_of_the_peer_and_of_the_monitor(
    roles, tools
) -> None:
    _, first, first_peer = _serve(roles, "trainer-0")
    _, second, second_peer = _serve(roles, "trainer-0")
    link, known = PeerLink(roles("actor-0"), "weights"), tools.KnownPeers()
    assert not link.follow(known)
    assert link.client is None
    known.learn(first_peer)
    assert link.follow(known)
    assert _reaches(tools, link, first)
    client = link.client
    assert not link.follow(known)
    known.learn(first_peer, Peer("actor", "actor-1", "x", {}))
    assert not link.follow(known)  # others came; the peer is the same
    assert link.client is client
    # monitor and trainer died together; the new monitor has counted as far as the old one
    known.learn(second_peer, revision=known.revision)
    assert link.follow(known)
    assert _reaches(tools, link, second)
    known.learn()  # a new monitor to which the trainer has not said hello yet
    assert not link.follow(known)
    assert _reaches(tools, link, second)


def test_a_link_leaves_a_peer_whose_key_was_revoked_though_no_other_is_there(roles, tools) -> None:
    _, first, first_peer = _serve(roles, "predictor-0")
    _, second, second_peer = _serve(roles, "predictor-1")
    link, known = PeerLink(roles("actor-0"), "weights"), tools.KnownPeers()
    known.learn(first_peer)
    assert link.follow(known) and _reaches(tools, link, first)
    known.revoked = frozenset({first_peer.incarnation})
    known.learn()
    assert link.follow(known)
    assert link.client is None and link.peer is None
    known.learn()
    assert not link.follow(known)
    known.learn(second_peer)
    assert link.follow(known) and _reaches(tools, link, second)


@pytest.mark.parametrize("endpoint", ["nonsense", "tcp://127.0.0.1:*"])
def test_a_peer_to_which_nobody_can_connect_is_none_and_is_said_once(
    roles, tools, caplog, endpoint
) -> None:
    _, server, good = _serve(roles, "predictor-1")
    link, known = PeerLink(roles("actor-0"), "weights"), tools.KnownPeers()
    bad = Peer("predictor", "predictor-0", "bad", {"weights": endpoint})
    for _ in range(3):
        known.learn(bad)
        link.follow(known)
        assert link.client is None and link.peer is None
    assert caplog.text.count("event=not_connected name=predictor-0") == 1
    known.learn(good)
    assert link.follow(known) and _reaches(tools, link, server)


@pytest.mark.parametrize(("index", "expected"), [(0, 0), (1, 1), (2, 0), (5, 1)])
def test_actors_share_predictors_by_their_numbers(roles, tools, index, expected) -> None:
    serving = [_serve(roles, f"predictor-{i}") for i in range(2)]
    silent = Peer("predictor", "predictor-2", "x", {})  # has bound nothing yet
    link = PeerLink(roles("actor-0"), "weights", index)
    known = tools.KnownPeers()
    known.learn(silent, *(peer for *_, peer in reversed(serving)))
    link.follow(known)
    assert _reaches(tools, link, serving[expected][1])


def test_a_peer_that_is_passed_over_makes_room_for_the_next_until_others_are_there(
    roles, tools
) -> None:
    serving = [_serve(roles, f"predictor-{i}") for i in range(2)]
    peers = [peer for *_, peer in serving]
    link, known = PeerLink(roles("actor-0"), "weights"), tools.KnownPeers()
    known.learn(*peers)
    link.follow(known)
    assert _reaches(tools, link, serving[0][1])
    link.pass_over()
    assert link.follow(known)
    assert _reaches(tools, link, serving[1][1])
    known.learn(*peers, Peer("actor", "actor-1", "x", {}))
    assert not link.follow(known)  # the same predictors: the first is still silent
    again = _serve(roles, "predictor-0")
    known.learn(again[2], peers[1])
    assert link.follow(known)
    assert _reaches(tools, link, again[1])


def test_the_only_peer_is_kept_however_silent(roles, tools) -> None:
    _, server, peer = _serve(roles, "predictor-0")
    link, known = PeerLink(roles("actor-0"), "weights"), tools.KnownPeers()
    known.learn(peer)
    link.follow(known)
    client = link.client
    link.pass_over()
    assert not link.follow(known)
    assert link.client is client
    assert _reaches(tools, link, server)


def test_a_link_to_one_peer_alone_waits_for_it(roles, tools) -> None:
    _, _, first = _serve(roles, "trainer-0")
    _, server, second = _serve(roles, "trainer-1")
    link, known = PeerLink(roles("actor-1"), "weights", only="trainer-1"), tools.KnownPeers()
    known.learn(first)
    assert not link.follow(known) and link.client is None
    known.learn(first, second)
    assert link.follow(known)
    assert _reaches(tools, link, server)


def test_none_overtakes_one_that_found_no_room_in_the_same_turn(roles, tools, monkeypatch) -> None:
    _, _, peer = _serve(roles, "trainer-0")
    known, now = tools.KnownPeers(), [0.0]
    known.learn(peer)
    link = PeerLink(roles("actor-0"), "weights")
    policy = RetryPolicy(60.0, in_order=True, retry_first_s=1.0, retry_most_s=1.0)
    client = RequestClient[str](link, policy, lambda _: None, lambda: now[0])
    client.poll(known)
    outcomes, tried = [False, False, True, True], []

    def send(message, **_) -> bool:  # the connection comes up after the second attempt
        tried.append(message.version)
        return outcomes.pop(0)

    monkeypatch.setattr(link.client, "send", send)
    client.ask("a", WeightsRequest(0, 1))
    client.ask("b", WeightsRequest(0, 2))
    now[0] = 1.0
    client.poll(known)
    now[0] = 2.0
    client.poll(known)
    assert tried == [1, 1, 1, 2]


def test_a_connection_that_libzmq_has_given_up_is_made_anew(roles, tools) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    known, now = tools.KnownPeers(), [0.0]
    known.learn(Peer("trainer", "trainer-0", "x", {"weights": address}))
    link = PeerLink(roles("actor-0"), "weights")
    policy = RetryPolicy(answer_within_s=60.0, reached_within_s=3.0)
    client = RequestClient[str](link, policy, lambda _: None, lambda: now[0])
    client.poll(known)
    spoil_next(listener)
    context = zmq.Context()
    router, _ = bind_router(context, address)
    try:
        assert not client.ask("a", WeightsRequest(0, 0))
        assert not link.client.transport.wait_for_room(0.3)

        def arrives() -> bool:
            now[0] += 0.1
            client.poll(known)
            return bool(router.poll(20))

        tools.wait_until(arrives, "it arrives")
        assert now[0] >= 3.0
    finally:
        router.close(0)
        context.term()
