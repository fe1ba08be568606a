"""A monitor under more hellos than a run may have processes."""

from __future__ import annotations

import signal
import time

import zmq

from aclearn.wire import Heartbeat, HeartbeatReply, Hello, Peers, connect_dealer, encode
from tests.support.system import CARTPOLE, System, Visitor, free_port


def _is_full(events: list[str]) -> bool:
    return bool(events) and all("as one message can list" in text for text in events)


def test_after_2000_hellos_over_few_connections_good_roles_are_still_answered(
    system: System,
) -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    monitor = system.role("monitor", system.config(CARTPOLE), address)
    visitor = Visitor(address)
    try:
        assert visitor.peers().peers == []
        endpoints = {"predictions": "tcp://" + "h" * 240}
        for connection in range(4):
            socket: zmq.Socket[bytes] = connect_dealer(
                visitor.context, address, routing_id=b"c%d" % connection
            )
            for number in range(500):
                hello = Hello("predictor", number + 500 * connection, "box", 1, endpoints)
                frames = encode(
                    hello, run="r", incarnation=f"{connection}-{number}", sequence=number
                )
                assert socket.poll(30_000, zmq.POLLOUT)
                socket.send_multipart(frames)
                while socket.poll(0, zmq.POLLIN):
                    socket.recv_multipart()
            socket.close(linger=5000)
        heartbeat = Heartbeat()
        assert isinstance(visitor.ask(visitor.control, heartbeat, HeartbeatReply), HeartbeatReply)
        deadline = time.monotonic() + 60.0
        while not _is_full(visitor.status()["events"][-5:]):
            assert time.monotonic() < deadline, monitor.output
        listed = len(visitor.peers().peers)
        assert 100 < listed < 64 * 1024 / 240  # of one header
        newcomer = Visitor(address)
        try:
            assert isinstance(newcomer.peers(), Peers)
        finally:
            newcomer.close()
    finally:
        visitor.close()
    monitor.signal(signal.SIGTERM)
    assert monitor.wait(within_s=15.0) == 0, monitor.output
    assert "Traceback" not in monitor.output
