"""A run with keys by role: one is revoked, all are rotated, and the others go on."""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path

import zmq

from aclearn.wire import add_key, connect_dealer, revoke_key, rotate_keys
from tests.support.keys import client_keys, make_keys
from tests.support.system import CARTPOLE, Run, System, free_port

GRACE_S = 4.0


def test_a_revoked_host_is_refused_and_keys_are_rotated_while_the_run_goes_on(
    system: System, tmp_path: Path
) -> None:
    keys, host = make_keys(tmp_path / "keys"), tmp_path / "host"
    host.mkdir()
    shutil.move(add_key(keys, "rack7", ["actor"]), host)
    config, address = system.config(CARTPOLE), f"tcp://127.0.0.1:{free_port()}"

    def start(role: str, folder: Path = keys) -> Run:
        return system.role(role, config, address, f"network.keys_dir={folder}")

    monitor, trainer, ours = start("monitor"), start("trainer"), start("actor")
    monitor.wait_until_learning()
    theirs = start("actor", host)
    theirs.wait_for(lambda: "event=connected role=trainer" in theirs.output, "it is connected")

    def learns_on() -> None:
        monitor.wait_until_learning(beyond=monitor.last()["env_steps"] + 500)

    learns_on()
    revoke_key(keys, "rack7")
    monitor.wait_for(
        lambda: "is refused: its key rack7 was revoked" in monitor.output, "its process has to go"
    )
    monitor.wait_for(
        lambda: monitor.last()["monitor_refused_keys"] > 0 and monitor.last()["refused_keys"] > 0,
        "monitor and trainer refuse it",
    )
    words = "a peer has the key rack7, which was revoked or replaced"
    assert monitor.output.count(f"detail='{words}'") == 1 == trainer.output.count(words)
    assert "trainer-0 refuses connections of keys" in monitor.output
    learns_on()
    theirs.signal(signal.SIGKILL)
    theirs.wait()

    old = client_keys(keys, "actor")
    rotate_keys(keys, grace_s=GRACE_S)
    until = time.time() + GRACE_S
    for role in (trainer, ours):
        role.wait_for(lambda role=role: "event=key_read" in role.output, "it takes its new key")
    learns_on()
    monitor.wait_for(lambda: time.time() > until + 1, "the old pairs are over")
    learns_on()
    with zmq.Context() as context:
        stale = connect_dealer(context, address, routing_id=b"stale", keys=old)
        assert not stale.poll(1000, zmq.POLLOUT)
        stale.close(linger=0)
    # episodes come with heartbeats, over connections with the new pairs
    episodes = monitor.last()["episodes"]
    monitor.wait_for(lambda: monitor.last()["episodes"] > episodes + 5, "heartbeats arrive")
    late = start("actor")
    late.wait_for(lambda: "event=connected role=trainer" in late.output, "a new process joins")

    monitor.signal(signal.SIGTERM)
    for role in (monitor, trainer, ours, late):
        role.wait(within_s=20.0)
        assert "Traceback" not in role.output, role.output
    monitor.check_account()
