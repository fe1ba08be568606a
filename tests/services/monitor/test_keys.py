"""What the monitor lets each key do, and what it tells the roles of the list."""

from __future__ import annotations

import time

import pytest
import zmq

from aclearn.config import Config
from aclearn.wire import (
    AllowedKey,
    AllowedKeys,
    DirectiveAck,
    Heartbeat,
    Hello,
    MembershipReply,
    Number,
    NumberRequest,
    Peers,
    connect_dealer,
    load_list,
    revoke_key,
    rotate_keys,
)
from services.monitor.keys import MonitorKeys
from services.role.context import RoleContext, RunEnv
from services.wiring import ENDPOINTS
from tests.support.keys import client_keys, make_keys

ACTOR = AllowedKey("a" * 40, "actor", ["actor"])
TRAINER = AllowedKey("t" * 40, "trainer", ["trainer"])
RACK = AllowedKey("r" * 40, "rack7", ["actor", "predictor"], processes=2)


def _hello(role: str, number: int = 0, **endpoints: str) -> Hello:
    return Hello(role, number, "box", 1, endpoints, server_key="s" * 40 if endpoints else "")


def _answers(messages):
    return [each.message for each in messages]


@pytest.mark.parametrize("message", [_hello("trainer"), NumberRequest("predictor")])
def test_a_key_registers_no_role_that_it_is_not_for(monitor, message) -> None:
    for _ in range(2):
        [answer] = _answers(monitor.take("thief", message, ACTOR))
        assert isinstance(answer, MembershipReply) and answer.action == "leave"
        assert f"its key actor is for actor, not for {message.role}" in answer.reason
    assert monitor.state.not_allowed == 2 and not monitor.registry.members
    said = [e for e in monitor.state.report.events if "its key actor is for actor" in e]
    assert len(said) == 1


@pytest.mark.parametrize(
    "message", [_hello("actor"), Heartbeat(), Heartbeat(final=True), DirectiveAck(1)]
)
def test_a_key_cannot_speak_for_a_process_of_another_key(monitor, message) -> None:
    monitor.take("t0", _hello("trainer", unrolls="tcp://h:1"), TRAINER)
    [answer] = _answers(monitor.take("t0", message, ACTOR))  # a hello that was seen, replayed
    assert isinstance(answer, MembershipReply)
    assert "its key is actor, and trainer-0 of that incarnation has another one" in answer.reason
    [trainer] = monitor.registry.members
    assert (trainer.name, trainer.key) == ("trainer-0", "trainer")
    # its own key may say it again
    assert isinstance(_answers(monitor.take("t0", Heartbeat(), TRAINER))[0], object)
    assert monitor.state.not_allowed == 1


def test_a_key_of_a_host_has_its_roles_and_no_more_processes_than_its_bound(monitor) -> None:
    monitor.take("p0", _hello("predictor", predictions="tcp://h:1"), RACK)
    monitor.take("a0", _hello("actor"), RACK)
    for message in (_hello("actor", 1), NumberRequest("actor")):
        [answer] = _answers(monitor.take("a1", message, RACK))
        assert "its key rack7 is for at most 2 processes" in answer.reason
    monitor.take("a0", _hello("actor"), RACK)  # again
    monitor.take("a0", Heartbeat(final=True), RACK)
    [number] = _answers(monitor.take("a1", NumberRequest("actor"), RACK))
    assert number == Number(0)


def test_a_process_that_was_started_again_does_not_count_twice(monitor) -> None:
    for number in range(2):
        monitor.take(f"a{number}", _hello("actor", number), RACK)
    monitor.now += 3.0  # actor-1 has crashed; the monitor still has it
    monitor.tick()
    [answer] = _answers(monitor.take("again", _hello("actor", 1), RACK))
    assert isinstance(answer, Peers)
    assert [m.incarnation for m in monitor.registry.members] == ["a0", "again"]
    # one without a name of its own waits until the monitor sees that the other is gone
    for message in (_hello("actor", 2), NumberRequest("actor")):
        [answer] = _answers(monitor.take("third", message, RACK))
        assert answer.action == "full"
    for _ in range(20):
        monitor.take("again", Heartbeat(), RACK)
        monitor.tick(1.0)
    [answer] = _answers(monitor.take("third", NumberRequest("actor"), RACK))
    assert isinstance(answer, Number)


def test_a_fault_of_a_key_is_said_once_whatever_its_processes_call_themselves(monitor) -> None:
    for number in range(20):
        monitor.take(f"thief-{number}", _hello("trainer"), ACTOR)
        monitor.take(f"thief-{number}", NumberRequest(f"king-{number}"), ACTOR)
    said = [e for e in monitor.state.report.events if "its key actor is for actor" in e]
    assert len(said) == 2 and "not for an unknown role" in said[1]


@pytest.mark.parametrize(
    ("server_key", "address", "words"),
    [
        ("x", "tcp://h:1", "server_key is no public key"),
        ("~" * 40, "tcp://h:1", "server_key is no public key"),
        ("s" * 40, "nonsense", "endpoint predictions: not an address"),
        ("s" * 40, "tcp://h:*", "endpoint predictions: cannot connect to"),
    ],
)
def test_a_server_to_which_nobody_could_connect_is_refused(
    monitor, server_key, address, words
) -> None:
    hello = Hello("predictor", 0, "box", 1, {"predictions": address}, server_key=server_key)
    [answer] = _answers(monitor.take("p0", hello, RACK))
    assert isinstance(answer, MembershipReply) and words in answer.reason
    assert not monitor.registry.members


def test_who_serves_is_told_of_the_keys_at_hello_and_with_each_new_list(monitor) -> None:
    monitor.state.allow([ACTOR, TRAINER])
    told = _answers(monitor.take("t0", _hello("trainer", unrolls="tcp://h:1"), TRAINER))
    assert told[0] == AllowedKeys([ACTOR, TRAINER])
    [peer] = told[1].peers
    assert peer.server_key == "s" * 40
    [peers] = _answers(monitor.take("a0", _hello("actor"), ACTOR))  # it serves nobody
    monitor.tick()
    monitor.state.allow([ACTOR, TRAINER, RACK])
    told = {(each.routing_id, type(each.message)) for each in monitor.tick()}
    assert told == {(b"t0", AllowedKeys), (b"t0", Peers), (b"a0", Peers)}
    # a list that was lost is noticed by its number
    assert monitor.registry.revision > peers.revision


def test_members_of_a_revoked_key_are_gone_at_once_and_others_hear_of_it(monitor) -> None:
    monitor.state.allow([ACTOR, TRAINER, RACK])
    monitor.take("t0", _hello("trainer", unrolls="tcp://h:1"), TRAINER)
    monitor.take("p0", _hello("predictor", predictions="tcp://h:2"), RACK)
    monitor.take("a0", _hello("actor"), ACTOR)
    monitor.tick()
    revoked = AllowedKey("r" * 40, "rack7", ["actor"], revoked=True)
    monitor.state.allow([ACTOR, TRAINER, revoked])
    assert [m.name for m in monitor.registry.members] == ["actor-0", "trainer-0"]
    assert "predictor-0 is refused: its key rack7 was revoked" in monitor.state.report.events
    lists = [m for m in _answers(monitor.tick()) if isinstance(m, Peers)]
    assert [[peer.name for peer in each.peers] for each in lists] == [["trainer-0"]] * 2
    assert [each.revoked for each in lists] == [["p0"]] * 2  # clients leave it at once


def test_what_a_role_has_refused_is_an_event_of_the_run_once(monitor) -> None:
    monitor.take("t0", _hello("trainer"), TRAINER)
    for count in (0.0, 1.0, 2.0):
        monitor.take("t0", Heartbeat(gauges={"refused_rights": count}), TRAINER)
    said = [e for e in monitor.state.report.events if "trainer-0 refuses messages" in e]
    assert len(said) == 1


def test_a_monitor_follows_its_files(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("aclearn.wire.keys._LOOK_EVERY_S", 0.0)
    folder = make_keys(tmp_path / "keys")
    config = Config.model_validate(
        {
            "run": {"name": "r"},
            "env": {"id": "CartPole-v1"},
            "network": {"keys_dir": str(folder)},
        }
    )
    context = RoleContext("monitor", 0, config, RunEnv("tcp://127.0.0.1:*"))
    try:
        server = context.serve_at(context.run.monitor, ENDPOINTS["monitor"].accepts)
        keys = MonitorKeys.open(context, server)
        assert keys is not None and not keys.look()
        before, address = keys.allowed, server.transport.socket.last_endpoint.decode()
        revoke_key(folder, "actor")
        assert keys.look() and keys.allowed != before
        assert not keys.look()
        bound = []
        with monkeypatch.context() as patch:
            patch.setattr(server.transport, "rebind", bound.append)
            rotate_keys(folder, ["monitor"], grace_s=60)
            keys.look()
        assert not bound  # its pair is the same until the end of the grace
        rotate_keys(folder, ["monitor"], grace_s=0)
        assert keys.look()
        proves = connect_dealer(
            context.zmq_context, address, routing_id=b"e", keys=client_keys(folder, "evaluator")
        )
        assert proves.poll(5000, zmq.POLLOUT)  # the new pair, at the same address
        assert keys.allowed == load_list(folder).allowed(time.time())
        context.admission.said("a peer has another key")
        assert list(keys.refusals()) == ["a peer has another key"] and not list(keys.refusals())
        server.close()
    finally:
        context.close()


def test_without_keys_there_is_nothing_to_follow(roles) -> None:
    context = roles("monitor-0")
    server = context.serve_at(context.run.monitor, ENDPOINTS["monitor"].accepts)
    assert MonitorKeys.open(context, server) is None
