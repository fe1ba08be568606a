"""Deterministic mode when a role fails."""

from __future__ import annotations

import json

import pytest

from aclearn.config import config_from_yaml
from aclearn.envs.sync_vector_env import SyncVectorEnv
from aclearn.errors import EnvironmentFailure
from aclearn.launch import StopFlag
from aclearn.metrics import MetricsAggregator
from aclearn.runs import RunFolder, load_newest
from services.launcher.local_run import train
from services.trainer.trainer import Trainer

_YAML = """
run: {{name: r, dir: {dir}, deterministic: true, max_updates: {updates}, checkpoint_every_s: 1000}}
env: {{id: CartPole-v1}}
policy: {{architecture: mlp, hidden: [8]}}
actors: {{processes: 2, envs_per_group: 1, unroll_length: 4}}
trainer: {{unrolls_per_batch: 2}}
"""


def fail_at(
    monkeypatch, owner, name: str, times, error: Exception, *, only=lambda *_: True
) -> None:
    """Let a method raise at its calls of these numbers."""
    method, calls = getattr(owner, name), []

    def failing(*args, **kwargs):
        if only(*args):
            calls.append(1)
            if len(calls) in times:
                raise error
        return method(*args, **kwargs)

    monkeypatch.setattr(owner, name, failing)


@pytest.mark.parametrize("dies", ["actor", "trainer", "monitor"])
def test_what_it_has_learned_is_saved_though_a_role_dies(tmp_path, monkeypatch, dies) -> None:
    if dies == "actor":
        error = EnvironmentFailure("it is broken")
        fail_at(monkeypatch, SyncVectorEnv, "recv", {60}, error)
    elif dies == "trainer":
        error = ZeroDivisionError("of the sixth to eighth batch")
        fail_at(monkeypatch, Trainer, "learn", {6, 7, 8}, error)
    else:
        error = ZeroDivisionError("of a heartbeat")
        of_trainer = lambda view, role, *_: role == "trainer"  # noqa: E731
        fail_at(monkeypatch, MetricsAggregator, "observe_heartbeat", {2}, error, only=of_trainer)
    config = config_from_yaml(_YAML.format(dir=tmp_path, updates=1000))
    with pytest.raises((type(error), RuntimeError)) as raised:
        train(config, resume=False, stop=StopFlag())
    assert error in (raised.value, raised.value.__cause__)
    folder = RunFolder.open(tmp_path / "r")
    saved = load_newest(folder.checkpoints_dir).state
    summary = json.loads(folder.summary_path.read_text())
    assert summary["reason"] == "failed"
    assert 1 < saved["counters"]["updates"] == summary["updates"]
    accounted = summary["learned_steps"] + sum(summary["dropped_steps"].values())
    assert summary["env_steps"] == accounted + summary["in_flight_steps"]
