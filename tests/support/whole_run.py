"""A small run of all roles in this process, with an account of their messages."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from aclearn.config import config_from_yaml
from aclearn.envs import read_spec
from aclearn.runs import Checkpoint, load_newest
from aclearn.types import Unroll
from aclearn.wire import DirectiveMessage, Heartbeat, UnrollReply, decode
from services.launcher.in_process_run import InProcessRun
from services.launcher.local_run import open_run_folder
from services.trainer.main import TrainerRole
from tests.support.faults import Faults

#: Heartbeats come every round, for an account of each round.
_ROUND_S = 1 / 16
_GROUPS: dict[str, dict[str, Any]] = {
    "run": {
        "name": "r",
        "deterministic": True,
        "seed": 1,
        "metrics_every_s": 1.0,
        "checkpoint_every_s": 1000.0,
    },
    "env": {"id": "CartPole-v1"},
    "policy": {"architecture": "mlp", "hidden": [8]},
    "actors": {"processes": 2, "envs_per_group": 2, "unroll_length": 4},
    "trainer": {"device": "cpu", "unrolls_per_batch": 2},
    "compressor": {"every_s": 0.125},
    "predictor": {"device": "cpu"},
    "monitor": {"heartbeat_every_s": _ROUND_S},
}


class WholeRun(InProcessRun):
    """A started run of CartPole with two actors; all its clocks count rounds.

    Args:
        folder: of the run folder.
        resume: continue the existing run.
        groups: settings that extend or replace the default ones, by group.

    Attributes:
        sent: (incarnation, sequence, policy) of each sent unroll → its steps.
        heartbeats: the newest heartbeat of each role's name.
        passed: number of messages by kind.
        refused: number of unrolls that the trainer refused, by reason.
    """

    def __init__(self, folder: Path, *, resume: bool = False, **groups: Any) -> None:
        named = groups | {name: usual | groups.get(name, {}) for name, usual in _GROUPS.items()}
        named["run"]["dir"] = str(folder)
        config = config_from_yaml(yaml.safe_dump(named))
        self.spec = read_spec(config.env, patterns=config.patterns)
        self.path = folder / "r"
        opened = self._opened = open_run_folder(config, resume=resume)
        super().__init__(
            config, opened, self.spec, wall_clock=lambda: self.clock(), round_s=_ROUND_S
        )
        self.sent: dict[tuple[str, int, str], int] = {}
        self.heartbeats: dict[str, Heartbeat] = {}
        self.passed: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.faults = Faults(self.network)
        self.faults.observe = self._observe
        self.start_all()

    def run(self, *, most_rounds: int = 4000) -> dict[str, Any]:
        for _ in range(most_rounds):
            if not self.round():
                break
        else:
            raise AssertionError(f"not over after {most_rounds} rounds: {self.passed}")
        self.close()
        return self.summary()

    def run_until(self, condition: Any, what: str, *, most_rounds: int = 2000) -> None:
        for _ in range(most_rounds):
            if condition():
                return
            assert self.round(), f"the run was over before {what}"
        raise AssertionError(f"not within {most_rounds} rounds: {what}")

    def round(self) -> bool:
        """Run one round, after which the trainer's account must match the sent unrolls."""
        trainer_lives = "trainer-0" in self.roles
        goes_on = super().round()
        if trainer_lives and "trainer-0" in self.heartbeats:
            check_account(self.heartbeats["trainer-0"])
        return goes_on

    def summary(self) -> dict[str, Any]:
        return json.loads((self.path / "summary.json").read_text())

    def lines(self) -> list[dict[str, Any]]:
        text = (self.path / "metrics.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def checkpoint(self) -> Checkpoint:
        checkpoint = load_newest(self.path / "checkpoints")
        assert checkpoint is not None
        return checkpoint

    def assert_same_checkpoint(self, other: WholeRun) -> None:
        """Fail unless the newest checkpoint has the bits of another run's; torch's own aside."""
        expected, found = other.checkpoint().tensors, self.checkpoint().tensors
        assert expected.keys() == found.keys()
        for name in expected.keys() - {"random/torch"}:
            np.testing.assert_array_equal(found[name], expected[name], err_msg=name)

    def kill(self, name: str) -> None:
        """Kill a role as `kill -9`, which also closes the files and environments of the process."""
        killed = self.roles[name]
        super().kill(name)
        # a trainer has no environments, and would save its state
        if not isinstance(killed, TrainerRole):
            killed.close()

    def suspend(self, name: str) -> None:
        self.roles[name].step = lambda timeout_s: True

    def wake(self, name: str) -> None:
        del self.roles[name].step

    def close(self) -> None:
        super().close()
        self._opened.close()

    def _observe(self, sender: str, receiver: str, frames: list[bytes]) -> None:
        envelope = decode(frames)
        message = envelope.message
        kind = message.kind if isinstance(message, DirectiveMessage) else type(message).__name__
        self.passed[kind] += 1
        if isinstance(message, Unroll):
            key = (envelope.incarnation, envelope.sequence, message.policy)
            steps = int(message.valid.sum())
            assert self.sent.setdefault(key, steps) == steps
        elif isinstance(message, UnrollReply) and not message.accepted:
            self.refused[message.reason] += 1
        elif isinstance(message, Heartbeat):
            self.heartbeats[sender] = message


def check_account(heartbeat: Heartbeat) -> None:
    """Assert that each step in the trainer's account is learned, dropped or in flight."""
    counters = heartbeat.counters
    known = counters["learned_steps"] + counters["in_flight_steps"]
    assert counters["env_steps"] == known + sum(heartbeat.dropped.values())
