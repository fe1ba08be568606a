"""A trainer process whose workers change, or fail, during training."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from itertools import pairwise

import psutil
import pytest

from aclearn.config import load_config
from aclearn.control import SetWorkers, StopRole
from aclearn.wire import (
    DirectiveAck,
    DirectiveMessage,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Message,
    Peer,
    Peers,
)
from services.role.context import RoleContext, RunEnv
from tests.support.metrics_lines import check_lines
from tests.support.system import CARTPOLE, Run, System
from tests.support.waiting import patience, wait_for

#: Promised time for a change of the number of workers.
_CHANGE_WITHIN_S = 1.0


class PlayedMonitor:
    """A scripted monitor for a real trainer and a real actor."""

    def __init__(self, system: System) -> None:
        # no checkpoints: the disk must not delay a worker
        path = system.config(CARTPOLE, run={"checkpoint_every_s": 3600.0}, actors={"processes": 1})
        address = f"ipc://{system.sockets}/m"
        self._context = RoleContext("monitor", 0, load_config(path), RunEnv(address))
        self._server = self._context.serve_at(address, (Hello, Heartbeat, DirectiveAck))
        self._addresses: dict[str, bytes] = {}
        self._peers: dict[str, Peer] = {}
        self.heartbeats: dict[str, Heartbeat] = {}
        self.refusals: list[str] = []
        self.roles: dict[str, Run] = {
            role: system.role(role, path, address, "--name", f"{role}-0")
            for role in ("trainer", "actor")
        }

    @property
    def learned(self) -> int:
        """Learned agent steps, by the trainer's newest heartbeat."""
        heartbeat = self.heartbeats.get("trainer")
        return 0 if heartbeat is None else heartbeat.counters["learned_steps"]

    def trainer_threads(self) -> int:
        return psutil.Process(self.roles["trainer"].process.pid).num_threads()

    def tell(self, role: str, message: Message) -> None:
        assert self._server.send(self._addresses[role], message)

    def step(self) -> None:
        """Handle received messages."""
        for address, envelope in self._server.receive(0.002):
            message = envelope.message
            if isinstance(message, DirectiveAck):
                self.refusals += [message.refusal] if message.refusal else []
                continue
            if isinstance(message, Hello):
                self._addresses[message.role] = address
                endpoints = dict(message.endpoints)
                peer = Peer(message.role, f"{message.role}-0", envelope.incarnation, endpoints)
                self._peers[message.role] = peer
                for each in self._addresses.values():
                    self._server.send(each, Peers(len(self._peers), list(self._peers.values())))
                continue
            role = next(role for role, known in self._addresses.items() if known == address)
            self.heartbeats[role] = message
            self._server.send(
                address, HeartbeatReply(len(self._peers))
            )  # a process that sent its last heartbeat may be gone

    def until(self, condition, what: str) -> None:
        """As `wait_for`, while the monitor works."""

        def look() -> bool:
            self.step()
            return bool(condition())

        wait_for(look, what, context=self._said, pause_s=0.0)

    def _said(self) -> str:
        return "\n".join(role.output for role in self.roles.values())

    def learn_some(self, steps: int = 400) -> None:
        enough = self.learned + steps
        self.until(lambda: self.learned >= enough, f"{steps} steps more are learned")

    def end(self, role: str) -> Heartbeat:
        """Stop a role; returns its last heartbeat."""
        self.tell(role, StopRole("enough").message())
        self.until(lambda: self.heartbeats[role].final, f"the last heartbeat of the {role}")
        assert self.roles[role].wait(within_s=20.0) == 0, self.roles[role].output
        return self.heartbeats[role]

    def close(self) -> None:
        self._context.close()


@pytest.fixture
def played(system: System) -> Iterator[PlayedMonitor]:
    played = PlayedMonitor(system)
    yield played
    played.close()


def test_counts_change_within_a_second_while_it_learns_and_no_unroll_is_lost(played) -> None:
    played.learn_some()
    alone = played.trainer_threads()
    took_s: dict[str, list[float]] = {"more": [], "fewer": []}
    for before, count in pairwise((1, 4, 2, 3, 1, 2, 1)):
        told_at = time.monotonic()
        played.tell("trainer", SetWorkers(count).message())
        played.until(
            lambda count=count: played.trainer_threads() == alone + count - 1,
            f"{count} workers run",
        )
        took_s["more" if count > before else "fewer"].append(time.monotonic() - told_at)
        played.until(
            lambda count=count: played.heartbeats["trainer"].gauges["workers"] == count,
            "it says so",
        )
        played.learn_some()
    # the median: a machine that stalls for a second is not the pool's fault
    for times_s in took_s.values():
        assert statistics.median(times_s) <= _CHANGE_WITHIN_S * patience(), took_s
    for count in (0, 65):
        played.tell("trainer", DirectiveMessage(1, "SetWorkers", {"count": count}))
    played.until(lambda: len(played.refusals) == 2, "both counts are refused")
    assert "expected an int from 1 to 64" in played.refusals[0]
    played.learn_some()
    assert played.heartbeats["trainer"].gauges["workers"] == 1

    played.end("actor")
    last = played.end("trainer")
    # a gap between two unrolls would be counted as "lost", a worker's failure as "worker_failed"
    assert last.dropped.keys() <= {"lag", "shutdown"}, last.dropped
    counters = last.counters
    assert counters["in_flight_steps"] == counters["worker_failures"] == 0
    assert counters["env_steps"] == counters["learned_steps"] + sum(last.dropped.values())
    assert [name for name in counters if name.startswith("refused.")] == []


#: A user's own module, which every role imports; only the trainer has loaded torch by then. Its
#: sixth update fails, and all later ones.
_FAILING = """
import sys

if "trainer" in sys.orig_argv:
    import torch

    backward, calls = torch.Tensor.backward, iter(range(5))

    def failing(*arguments, **options):
        if next(calls, None) is None:
            raise ValueError("broken on purpose")
        return backward(*arguments, **options)

    torch.Tensor.backward = failing
"""


def test_a_trainer_whose_workers_fail_three_times_in_a_row_ends_with_the_traceback(
    system: System,
) -> None:
    (system.folder / "sitecustomize.py").write_text(_FAILING)
    config = system.config(CARTPOLE, supervisor={"max_restarts": 0})
    run = system.train(config)
    assert run.wait() == 1, run.diagnosis()
    log = run.log("trainer-0")
    assert log.count("event=worker_failed") == 3
    assert "RuntimeError: 3 steps of trainer workers in a row failed" in log
    assert "ValueError: broken on purpose" in log and "Traceback" in log
    assert "trainer-0" in run.output and "in a row failed" in run.output
    check_lines(run.lines())
    last = run.last()
    assert last["updates"] == 5
    # three batches of two unrolls of five steps of four games, less the masked steps
    assert 0 < last["dropped_steps"]["worker_failed"] <= 3 * 2 * 5 * 4
