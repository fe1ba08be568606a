"""Garbage on every socket of a run is refused, counted and answered."""

from __future__ import annotations

import dataclasses
import os
import socket
from collections.abc import Callable
from typing import Any

import numpy as np
import zmq

from aclearn.control import StopRun
from aclearn.types import Unroll
from aclearn.wire import (
    ActReply,
    ActRequest,
    ErrorReply,
    Heartbeat,
    Message,
    NoNewerWeights,
    Status,
    StatusRequest,
    UnrollReply,
    Weights,
    WeightsRequest,
    decode,
    encode,
)
from aclearn.wire.messages import PROTOCOL_VERSION
from tests.support.system import CARTPOLE, Run, System
from tests.support.visitor import Visitor
from tests.support.waiting import DEADLINE_S

Visit = Callable[..., Visitor]
SERVICES = {"unrolls", "weights", "predictions", "control"}


def _sockets(run: Run, visitor: Visitor) -> dict[str, str]:
    """Service → address of every socket of the run."""
    services = run.wait_for(
        lambda: (found := visitor.endpoints()).keys() >= SERVICES - {"control"} and found,
        "every service is there",
    )
    return services | {"control": visitor.monitor}


def _junk() -> dict[str, list[bytes]]:
    """Invalid messages, and the reasons for their refusal."""
    stop = encode(WeightsRequest(0, 0), run="r", incarnation="x", sequence=1)[0]
    header = bytes(stop)
    unroll = [bytes(part) for part in encode(_unroll(), run="r", incarnation="x", sequence=1)]
    return {
        "bad_header": [os.urandom(500)],
        "bad_header ": [header[: len(header) // 2]],
        "bad_header  ": [b"\x91" * 60_000],
        "header_too_large": [b"\xc1" * 70_000],
        "too_many_frames": [b"x"] * 300,
        "wrong_version": [header.replace(b"protocol" + bytes([PROTOCOL_VERSION]), b"protocol\x63")],
        "wrong_run": [bytes(encode(StatusRequest(), run="other", incarnation="x", sequence=1)[0])],
        "unexpected_kind": [
            bytes(encode(NoNewerWeights(), run="r", incarnation="x", sequence=1)[0])
        ],
        "wrong_frames": [*unroll, b"one more"],
        "wrong_size": [unroll[0], unroll[1][:-4], *unroll[2:]],
    }


def _unroll(**changed: Any) -> Unroll:
    """A valid unroll of the run's shape."""
    T, B = 5, 4
    unroll = Unroll(
        generation=0,
        env_steps_before=0,
        env_steps_after=T * B,
        dropped={},
        observations={"observation": np.zeros((T + 1, B, 4), np.float32)},
        history={},
        reset_index=None,
        reset_history={},
        actions=np.zeros((T, B), np.int32),
        behaviour_log_prob=np.full((T, B), -0.7, np.float32),
        rewards=np.ones((T, B), np.float32),
        terminated=np.zeros((T, B), np.bool_),
        truncated=np.zeros((T, B), np.bool_),
        valid=np.ones((T, B), np.bool_),
        versions=np.zeros(T, np.int64),
        chains=["none"],
    )
    return dataclasses.replace(unroll, **changed)


def _far_beyond_the_run() -> list[Message]:
    """Valid messages of a million and of 100 000 environments; the run's groups have 4."""
    T, B = 5, 100_000
    steps = {
        name: np.repeat(getattr(_unroll(), name), B // 4, axis=1)
        for name in ("actions", "behaviour_log_prob", "rewards", "terminated", "truncated", "valid")
    }
    observations = {"observation": np.zeros((T + 1, B, 4), np.float32)}
    return [
        ActRequest(1, {"observation": np.zeros((1_000_000, 4), np.float32)}),
        _unroll(observations=observations, env_steps_after=T * B, **steps),
    ]


def _answers_to_junk(visitor: Visitor, endpoint: str) -> list[str]:
    """Send each kind of junk; returns the reasons of the replies, in order."""
    dealer = visitor.raw(endpoint)
    reasons = []
    for frames in _junk().values():
        dealer.send_multipart(frames)
        assert dealer.poll(int(1000 * DEADLINE_S), zmq.POLLIN), frames[0][:50]
        answer = decode(dealer.recv_multipart(copy=False)).message
        assert isinstance(answer, ErrorReply)
        reasons.append(answer.reason)
    dealer.close()
    return reasons


def _nothing_else_than_junk(endpoint: str) -> None:
    """Send bytes over a plain socket that are not ZeroMQ's protocol."""
    is_tcp = endpoint.startswith("tcp://")
    where = endpoint.partition("://")[2]
    family = socket.AF_INET if is_tcp else socket.AF_UNIX
    address: Any = (where.rpartition(":")[0], int(where.rpartition(":")[2])) if is_tcp else where
    for junk in (b"GET / HTTP/1.0\r\n\r\n", os.urandom(4096), b"\xff" + b"\0" * 8 + b"\x7f" * 100):
        with socket.socket(family, socket.SOCK_STREAM) as plain:
            plain.settimeout(DEADLINE_S)
            plain.connect(address)
            plain.sendall(junk)


def _spoil(run: Run, visitor: Visitor, sockets: dict[str, str]) -> None:
    """Send garbage everywhere; then every service answers a valid peer, and learning continues."""
    expected = [name.strip() for name in _junk()]
    for service, endpoint in sockets.items():
        _nothing_else_than_junk(endpoint)
        # only unrolls, and a trainer's heartbeats, have so many bytes of arrays
        too_large = ["too_large"] * 2
        of_arrays = service in ("unrolls", "control")
        there = expected if of_arrays else [*expected[:-2], *too_large]
        assert _answers_to_junk(visitor, endpoint) == there, service
        for message in _far_beyond_the_run():
            refusal = visitor.ask(visitor.connect(endpoint, "-large"), message, ErrorReply)
            assert refusal.reason == "too_large", (service, refusal)
    weights = visitor.ask(visitor.connect(sockets["weights"]), WeightsRequest(-1, -1), Weights)
    assert weights.generation == 0 and all(np.isfinite(t).all() for t in weights.tensors.values())
    request = ActRequest(7, {"observation": np.zeros((3, 4), np.float32)})
    actions = visitor.ask(visitor.connect(sockets["predictions"]), request, ActReply)
    assert actions.request == 7 and actions.actions.shape == (3,)
    visitor.ask(visitor.control, StatusRequest(), Status)


def _refusals_are_counted(run: Run) -> None:
    """Check that each refusal counts in its service's metrics."""
    kinds = len(_junk()) + len(_far_beyond_the_run())
    names = {"refused_messages": 2, "predictor_refused_messages": 1, "monitor_refused_messages": 1}
    for name, sockets in names.items():
        run.wait_for(
            lambda name=name, sockets=sockets: run.last().get(name, 0) >= kinds * sockets, name
        )


def _a_bad_unroll_is_refused_and_a_good_one_learned_once(
    visitor: Visitor, sockets: dict[str, str]
) -> None:
    """Send a fake actor's unrolls over the real socket."""
    client = visitor.connect(sockets["unrolls"])
    bad = _unroll(rewards=np.full((5, 4), np.nan, np.float32))
    assert visitor.ask(client, bad, UnrollReply, sequence=1).reason == "bad_unroll"
    newest = visitor.ask(visitor.connect(sockets["weights"]), WeightsRequest(-1, -1), Weights)
    versions = np.full(5, newest.version, np.int64)
    # the steps of the bad one were counted
    good = _unroll(env_steps_before=20, env_steps_after=40, versions=versions)
    assert visitor.ask(client, good, UnrollReply, sequence=2).accepted
    assert visitor.ask(client, good, UnrollReply, sequence=2).reason == "duplicate"


def test_garbage_on_every_socket_file_is_refused_and_the_run_goes_on(
    system: System, visit: Visit
) -> None:
    # the visitor's own unroll is in time however many versions pass before it arrives
    trainer = {"max_lag_versions": 1_000_000}
    run = system.train(system.config(CARTPOLE, actors={"inference": "predictor"}, trainer=trainer))
    run.wait_until_learning()
    pids = run.pids()
    visitor = visit(run.monitor_address())
    sockets = _sockets(run, visitor)
    assert sockets.keys() == SERVICES
    _spoil(run, visitor, sockets)
    _a_bad_unroll_is_refused_and_a_good_one_learned_once(visitor, sockets)
    _refusals_are_counted(run)
    # a heartbeat without a hello before it, and a hello with an actor's name
    stranger = visit(run.monitor_address())
    heartbeat = Heartbeat({"env_steps": 2**50}, episode_returns=[1e9])
    stranger.control.send(heartbeat)
    before = run.last()["learned_steps"]
    run.wait_until_learning(beyond=before + 300)
    assert run.last()["env_steps"] < 2**40
    assert run.pids() == pids
    refused = run.last()["monitor_refused_messages"]
    assert visitor.control.send(StopRun("the visitor asked for it").message())
    run.wait_for(lambda: run.last()["monitor_refused_messages"] > refused, "a stranger ends no run")
    run.finish()
