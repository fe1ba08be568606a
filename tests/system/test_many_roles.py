"""A monitor with more hellos than a run may have processes."""

from __future__ import annotations

import signal

import zmq

from aclearn.wire import Heartbeat, HeartbeatReply, Hello, Peers, connect_dealer, encode
from tests.support.system import CARTPOLE, System, free_port
from tests.support.visitor import Visitor
from tests.support.waiting import DEADLINE_S, wait_for


def _drain(sockets: list[zmq.Socket[bytes]]) -> None:
    for socket in sockets:
        while socket.poll(0, zmq.POLLIN):
            socket.recv_multipart()


def test_after_2000_hellos_over_few_connections_good_roles_are_still_answered(
    system: System,
) -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    monitor = system.role("monitor", system.config(CARTPOLE), address)
    visitor = Visitor(address)
    sockets: list[zmq.Socket[bytes]] = []  # kept open: a closed one loses unsent hellos
    try:
        assert visitor.peers().peers == []
        endpoints = {"predictions": "tcp://" + "h" * 240}
        for connection in range(4):
            socket = connect_dealer(visitor.context, address, routing_id=b"c%d" % connection)
            sockets.append(socket)
            for number in range(500):
                name = number + 500 * connection
                hello = Hello("predictor", name, "box", 1, endpoints, forced=True)
                frames = encode(
                    hello, run="r", incarnation=f"{connection}-{number}", sequence=number
                )
                assert socket.poll(1000 * DEADLINE_S, zmq.POLLOUT)
                socket.send_multipart(frames)
                _drain(sockets)
        heartbeat = Heartbeat()
        assert isinstance(visitor.ask(visitor.control, heartbeat, HeartbeatReply), HeartbeatReply)

        def is_full() -> bool:
            _drain(sockets)
            events = visitor.status()["events"]
            return any("does not fit one message" in text for text in events)

        wait_for(is_full, "a refused predictor", within_s=60.0, context=lambda: monitor.output)
        listed = len(visitor.peers().peers)
        assert 100 < listed < 64 * 1024 / 240  # of one header
        newcomer = Visitor(address)
        try:
            assert isinstance(newcomer.peers(), Peers)
        finally:
            newcomer.close()
    finally:
        for socket in sockets:
            socket.close(linger=0)
        visitor.close()
    monitor.signal(signal.SIGTERM)
    assert monitor.wait(within_s=15.0) == 0, monitor.output
    assert "Traceback" not in monitor.output
