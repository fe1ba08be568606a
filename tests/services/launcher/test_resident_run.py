"""A whole run whose trainer steps the environments itself."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
import yaml

from aclearn.config import config_from_yaml
from aclearn.config.resident import RESIDENT_ENVS
from aclearn.errors import AclearnError, ConfigError
from aclearn.learning import StopCheck
from aclearn.runs import read_metrics
from compress import ChainError
from services.evaluator.evaluate import evaluate
from services.policy.factory import acting_chain, architecture_of
from services.role import torch_checks
from services.trainer.build import make_trainer
from tests.support.whole_run import WholeRun

resident = pytest.importorskip("aclearn.resident")
find_env = resident.find_env

_RESIDENT: dict[str, Any] = {
    "resident": {"envs": 64, "device": "cpu"},
    "actors": {"envs_per_group": 16, "unroll_length": 8},  # 16: the default, which WholeRun changes
    "trainer": {"device": "cpu", "amp": "off", "minibatches": 2, "epochs": 2},
    "loss": {"normalise_advantages": True},
}


@pytest.mark.parametrize(
    ("loss", "memory"), [("actor_critic", None), ("ppo", None), ("actor_critic", "lstm")]
)
def test_a_resumed_run_ends_with_the_bits_of_an_unbroken_one(
    loss: str, memory: str | None, tmp_path: Path
) -> None:
    groups = _RESIDENT | {"loss": {"kind": loss, "normalise_advantages": True}}
    if memory:
        groups |= {"policy": {"memory": {"kind": memory, "size": 8}}}
    whole = WholeRun(tmp_path / "whole", **groups, run={"max_updates": 48})
    assert set(whole.roles) == {"monitor-0", "trainer-0"}
    summary = whole.run()
    # 12 batches of 64 × 8 steps, less one invalid step after each end
    assert summary["updates"] == 48
    assert summary["env_steps"] == summary["learned_steps"]
    assert summary["dropped_steps"] == {}
    assert 0 <= 12 * 64 * 8 - summary["learned_steps"] <= summary["episodes"]
    assert summary["episodes"] > 100
    # an untrained policy balances the pole for about 20 steps
    assert 12.0 < summary["return_mean_100"] < 40.0

    broken = tmp_path / "broken"
    WholeRun(broken, **groups, run={"max_updates": 20}).run()
    resumed = WholeRun(broken, resume=True, **groups, run={"max_updates": 48})
    again = resumed.run()
    assert again["generation"] == 1
    assert again["learned_steps"] == summary["learned_steps"]
    resumed.assert_same_checkpoint(whole)

    # and it is evaluated in gymnasium's own environment
    result = evaluate(whole.path, episodes=20)
    assert 8.0 < result.mean < 60.0


def test_a_run_of_actors_is_continued_by_resident_environments(tmp_path: Path) -> None:
    WholeRun(tmp_path, run={"max_updates": 4}).run()
    summary = WholeRun(tmp_path, resume=True, **_RESIDENT, run={"max_updates": 8}).run()
    assert (summary["updates"], summary["generation"]) == (8, 1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"env": {"id": "Taxi-v3"}}, "there is no resident environment for env.id Taxi-v3"),
        ({"resident": {"envs": 4, "env": "Cartpole"}}, "did you mean CartPole"),
        ({"resident": {"envs": 4, "device": "cuda:7"}}, "resident.device: cuda:7"),
    ],
    ids=("not resident", "unknown", "no device"),
)
def test_a_mistake_is_found_before_the_start(changes: dict[str, Any], words: str) -> None:
    settings = {"env": {"id": "CartPole-v1"}, "resident": {"envs": 4}} | changes
    config = config_from_yaml(yaml.safe_dump(settings))
    assert torch_checks.learning_may_fail(config)
    with pytest.raises(AclearnError, match=words):
        torch_checks.check_learning(config)


def test_a_pruned_copy_acts_and_the_correctors_see_the_difference(tmp_path: Path) -> None:
    pruned = _RESIDENT | {
        "resident": _RESIDENT["resident"] | {"chain": [{"prune": 0.75}], "policy": "bf16"},
        "policy": {"hidden": [32]},
    }
    whole = WholeRun(tmp_path, **pruned, run={"max_updates": 24})
    trainer = whole.roles["trainer-0"]._trainer
    summary = whole.run()
    assert summary["updates"] == 24 and summary["learned_steps"] > 2500
    acted = dict(trainer.source._rollout._network.named_parameters())
    assert acted["hidden.0.weight"].shape == (8, 4)  # a quarter of 32 units
    # the recorded log-probabilities are the copy's, whose last weights the rollout still has
    buffers = trainer.source.envs.buffers
    network = trainer.source._rollout._network
    outputs = network.outputs(buffers.observations[:-1].flatten(0, 1))["policy"]
    taken = outputs.log_softmax(-1).gather(1, buffers.actions.flatten()[:, None])
    np.testing.assert_allclose(taken[:, 0], buffers.log_probs.flatten(), atol=1e-5)
    [last] = read_metrics(whole.path / "metrics.jsonl")[-1:]
    assert last["compressed_share"] == 1.0
    assert 1e-8 < last["behaviour_kl_estimate"] < 0.3
    evaluate(whole.path, episodes=2)  # the whole policy


@pytest.mark.parametrize(
    "items",
    [["int8"], ["onnx"], [{"distill": "mlp"}], [{"prune": {"sparsity": 0.5, "scope": "global"}}]],
    ids=("int8", "onnx", "distill", "widths of the weights"),
)
def test_a_copy_that_cannot_act_is_refused_by_name(items: list[Any]) -> None:
    spec = find_env("CartPole").spec()
    settings = {"env": {"id": "CartPole-v1"}, "resident": {"envs": 4, "chain": items}}
    config = config_from_yaml(yaml.safe_dump(settings | {"policy": {"architecture": "mlp"}}))
    with pytest.raises(ChainError, match=r"resident.chain: .* expected prune: 0.5"):
        acting_chain(config.resident.chain, architecture_of(config, spec))


def test_our_environments_start_without_a_check_of_seconds() -> None:
    assert RESIDENT_ENVS.keys() == resident.ENVIRONMENTS.keys()
    for env_id in RESIDENT_ENVS.values():
        settings = {"env": {"id": env_id}, "resident": {"envs": 4}}
        assert not torch_checks.learning_may_fail(config_from_yaml(yaml.safe_dump(settings)))


def test_actors_step_resident_environments(tmp_path: Path) -> None:
    bridged = {"env": {"id": "resident:CartPole"}, "run": {"max_updates": 6}}
    summary = WholeRun(tmp_path, **bridged, actors={"processes": 1, "envs_per_group": 300}).run()
    assert summary["updates"] == 6
    assert summary["learned_steps"] > 6 * 2 * 300 * 3


def _trainer(*, threads: int = 1, **groups: Any) -> Any:
    """A trainer of CartPole; four updates a batch."""
    settings = {
        "env": {"id": "CartPole-v1", "clip_rewards": True},
        "policy": {"architecture": "mlp", "hidden": [16]},
    }
    config = config_from_yaml(yaml.safe_dump(_RESIDENT | settings | groups))
    spec = find_env("CartPole").spec()
    trainer = make_trainer(config, spec, threads=threads)
    trainer.publish()
    return trainer


@pytest.mark.parametrize(
    ("loss", "each", "named"),
    [
        # 56 of the state, 8 rows of 35 and an observation, 8 of the policy, 26 a step on the host
        ("actor_critic", 56 + 296 + 8 + 8 * 26, "8 recorded steps 2.8, the account 1.9, states"),
        # and 56 of a step's targets, which are copied twice with it
        ("ppo", 568 + 8 * (56 + 2 * (35 + 56)), "targets and shuffled steps 17.7, 8 recorded"),
    ],
)
def test_the_memory_of_the_updates_counts(
    loss: str, each: int, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=2**30))
    fit = 2**30 * 4 // 5 // each
    words = rf"10000000 environments need .* of cpu \({named}.*; at most {fit} fit"
    with pytest.raises(ConfigError, match=words):
        _trainer(resident={"envs": 10**7, "device": "cpu"}, loss={"kind": loss})


def test_steps_of_the_burn_in_are_no_steps_of_a_chain() -> None:
    groups = {"resident": {"envs": 8, "device": "cpu"}, "actors": {"unroll_length": 8}}
    memory = {"memory": {"kind": "lstm", "size": 4}}
    trainer = _trainer(threads=1, **groups, policy=memory, trainer={"burn_in_steps": 5})
    worker = trainer.make_worker()
    batch = trainer.source.next(0.0, worker)
    assert batch.chain_steps == {"none": int(batch.valid[5:].sum())}
    trainer.source.close()
    worker.close()


@pytest.mark.parametrize(("loss", "after"), [("ppo", 0), ("actor_critic", 1), ("ppo", 3)])
def test_a_batch_ends_where_the_run_does(loss: str, after: int) -> None:
    # 4000 environments: two threads, and minibatches of two chunks each
    groups = {"resident": {"envs": 4000, "device": "cpu"}, "loss": {"kind": loss}}
    trainer = _trainer(threads=2, **groups)
    worker = trainer.make_worker()
    trainer.step(0.0, worker)
    before, told = trainer.heartbeat_fields()["counters"], []
    assert before["updates"] == 4 and trainer.take_episodes()["episode_returns"]

    def goes_on() -> bool:
        told.append((trainer.heartbeat_fields()["counters"], trainer.take_episodes()))
        produced = trainer.account.counters()[0]["env_steps"]
        return produced == before["env_steps"] or trainer.counters.updates < 4 + after

    worker.watch(StopCheck(goes_on))
    trainer.step(0.0, worker)
    # meanwhile the monitor is told of the batch before
    assert len(told) > 8 and all(fields == (before, {}) for fields in told)
    fields = trainer.heartbeat_fields()
    after_it, dropped = fields["counters"], fields["dropped"]
    assert after_it["updates"] == 4 + after
    assert after_it["policy_version"] == before["policy_version"] + (after > 0)
    new, learned = (after_it[n] - before[n] for n in ("env_steps", "learned_steps"))
    assert 30_000 < new < 32_000
    # both halves are learned in the first pass
    assert learned == pytest.approx(new * min(after, 2) / 2, abs=500)
    assert dropped.get("shutdown", 0) == new - learned and after_it["in_flight_steps"] == 0
    assert trainer.take_episodes()["episode_returns"]

    # stopped before, a batch leaves no trace
    state = {n: t.copy() for n, t in trainer.snapshot().tensors.items()}
    worker.watch(StopCheck(lambda: False))
    assert not trainer.step(0.0, worker)
    assert trainer.heartbeat_fields() == fields
    for name, array in trainer.snapshot().tensors.items():
        np.testing.assert_array_equal(array, state[name], err_msg=name)
    trainer.source.close()
    worker.close()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"resident": {"envs": 4, "env": "Pendulum", "device": "cpu"}},
            "resident.env: Pendulum has observations",
        ),
        ({"policy": {"architecture": "nature"}}, "'nature' needs images"),
    ],
    ids=("other spaces", "another policy"),
)
def test_an_environment_that_does_not_fit(changes: dict[str, Any], words: str) -> None:
    settings = {"env": {"id": "CartPole-v1"}, "policy": {"architecture": "mlp"}}
    config = config_from_yaml(yaml.safe_dump(settings | _RESIDENT | changes))
    with pytest.raises(AclearnError, match=words):
        make_trainer(config, find_env("CartPole").spec())
