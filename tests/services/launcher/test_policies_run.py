"""Whole runs of several policies in this process."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

from aclearn.config import config_from_yaml
from aclearn.errors import CheckpointError, ConfigError
from aclearn.learning import too_old
from aclearn.runs import load_newest
from services.launcher.local_run import open_run_folder
from services.policy.factory import architecture_of
from services.roles import TRAINER
from services.trainer import server
from services.trainer.warm_start import warm_start
from tests.support.metrics_lines import check_line, check_lines
from tests.support.whole_run import WholeRun

_ENV = {"id": "tests.support.agents_env:Uneven"}
_POLICIES = {
    "slow": {"agents": "long"},
    "fast": {"agents": "sh*", "loss": {"kind": "ppo"}, "optimiser": {"learning_rate": 1e-2}},
}
_BOTH = {"env": _ENV, "policies": _POLICIES}
_CHAIN = {"compressor": {"chain": ["int8", "onnx"], "every_s": 0.125}}
_MEMORY = {"policies": {**_POLICIES, "slow": {"agents": "long", "policy": {
    "memory": {"kind": "lstm", "size": 4}}}}}  # fmt: skip
_PREDICTOR = {
    "actors": {"processes": 2, "envs_per_group": 2, "unroll_length": 4, "inference": "predictor"}
}


def weights_of(run: WholeRun, policy: str) -> dict[str, np.ndarray]:
    tensors = run.checkpoint().of_policy(policy).tensors
    return {name: each for name, each in tensors.items() if name.startswith("weights/")}


def same(one, other) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[n], other[n]) for n in one)


@pytest.mark.parametrize(
    "groups",
    [{}, _CHAIN, _PREDICTOR, _CHAIN | _PREDICTOR | _MEMORY],
    ids=["local", "compressor", "predictor", "all five and a memory"],
)
def test_each_policy_learns_its_own_steps_and_all_have_one_version(start, groups) -> None:
    run = start(run={"max_updates": 12}, **{**_BOTH, **groups})
    first = {policy: weights_of(run, policy) for policy in _POLICIES}
    summary = run.run()
    check_lines(run.lines())
    check_line(summary)
    assert summary["reason"] == "max_updates" and run.refused.keys() <= {"max_updates"}
    state = run.checkpoint().state
    parts = state["policies"]
    for policy, part in parts.items():
        account = part["account"]
        assert part["counters"]["updates"] == 12 and account["in_flight_steps"] == 0
        dropped = sum(account["dropped_steps"].values())
        assert account["env_steps"] == account["learned_steps"] + dropped > 0
        assert not same(first[policy], weights_of(run, policy))
    versions = {part["counters"]["policy_version"] for part in parts.values()}
    assert versions == {summary["policy_version"]}
    assert summary["learned_steps"] == sum(p["account"]["learned_steps"] for p in parts.values())
    # unrolls of the same steps have the same number, and each policy has one of each
    sent = {policy: {key[:2] for key in run.sent if key[2] == policy} for policy in _POLICIES}
    assert sent["slow"] == sent["fast"] and len(run.sent) == run.passed["Unroll"]
    # "long" plays 8 steps of an episode and "short" 4, so a whole unroll may be of one alone
    assert parts["slow"]["account"]["env_steps"] > parts["fast"]["account"]["env_steps"]


def test_numbers_by_policy_and_their_sums_are_in_the_heartbeats(start) -> None:
    run = start(run={"max_updates": 6}, **_BOTH)
    run.run()
    for role, names in (("trainer-0", ("env_steps", "learned_steps")), ("actor-1", ("episodes",))):
        heartbeat = run.heartbeats[role]
        assert heartbeat.policies.keys() == _POLICIES.keys()
        for name in names:
            each = [heartbeat.of_policy(policy).counters[name] for policy in _POLICIES]
            assert heartbeat.counters[name] == sum(each) and min(each) > 0
    gauges = run.heartbeats["trainer-0"].of_policy("fast").gauges
    assert {"entropy", "lag_mean"} <= gauges.keys()
    assert run.heartbeats["trainer-0"].gauges.keys() >= {"lag_mean", "lag_max"}


def test_both_policies_learn_and_the_run_ends_when_each_has_reached_its_target(start) -> None:
    # chance is 8/3 of 8 points for "long", and 4/4 of 4 for "short"
    target = {"slow": 5.0, "fast": 2.0}
    loss = {"kind": "actor_critic", "normalise_advantages": True}
    policies = {"slow": {"agents": "long"}, "fast": {"agents": "short"}}
    run = start(
        run={"target_return": target, "max_updates": 1500, "metrics_every_s": 5.0},
        env=_ENV,
        policies=policies,
        loss=loss,
        optimiser={"learning_rate": 0.02},
        actors={"processes": 1, "envs_per_group": 8, "unroll_length": 8},
        monitor={"heartbeat_every_s": 1.0},
    )
    summary = run.run(most_rounds=8000)
    assert summary["reason"] == "target_reached"
    for name, least in target.items():
        assert summary["policies"][name]["return_mean_100"] >= least


def test_equal_networks_begin_with_weights_of_their_own(start) -> None:
    run = start(env={"id": "tests.support.agents_env:Pairs"}, policies=_POLICIES)
    slow, fast = (weights_of(run, policy) for policy in _POLICIES)
    assert slow.keys() == fast.keys() and not same(slow, fast)


def test_the_seed_decides_all_policies_and_a_resumed_run_continues(start, tmp_path) -> None:
    groups = {"actors": {"processes": 1}, **_BOTH}
    runs = [start(tmp_path / name, run={"max_updates": 8}, **groups) for name in ("a", "b")]
    for run in runs:
        run.run()
    runs[0].assert_same_checkpoint(runs[1])
    accounts = runs[0].checkpoint().state["policies"]
    again = start(tmp_path / "a", resume=True, run={"max_updates": 12}, **groups)
    summary = again.run()
    assert (summary["generation"], summary["updates"]) == (1, 12)
    for policy, part in again.checkpoint().state["policies"].items():
        assert part["counters"]["updates"] == 12
        before, after = accounts[policy]["account"], part["account"]
        assert after["learned_steps"] > before["learned_steps"]
    assert again.checkpoint().state["counters"]["policy_version"] > 8


def test_a_trainer_that_is_killed_continues_all_policies_from_its_checkpoint(start) -> None:
    run = start(run={"max_updates": 30, "checkpoint_every_s": 0.5}, **_BOTH)
    updates = lambda: run.heartbeats["trainer-0"].counters["updates"]  # noqa: E731
    run.run_until(lambda: "trainer-0" in run.heartbeats and updates() > 8, "it has learned")
    run.kill("trainer-0")
    run.start(TRAINER)
    summary = run.run()
    check_line(summary)
    parts = run.checkpoint().state["policies"].values()
    assert summary["generation"] == 1 and {p["counters"]["updates"] for p in parts} == {30}
    for part in parts:
        account = part["account"]
        dropped = account["dropped_steps"]
        assert account["env_steps"] == account["learned_steps"] + sum(dropped.values())
        assert dropped.keys() & {"lost", "old_generation"}  # of what it had not saved


def test_what_one_policy_learned_is_saved_while_the_memory_of_another_fills(start) -> None:
    keys = {"max_env_steps": 600, "checkpoint_every_s": 0.25}
    run = start(run=keys, loss={"kind": "dqn"}, replay={"start": 10_000}, **_BOTH)
    saved = lambda: run.checkpoint().of_policy("fast").state["counters"]["updates"]  # noqa: E731
    run.run_until(lambda: saved() > 0, "a checkpoint has what was learned")
    summary = run.run()
    parts = run.checkpoint().state["policies"]
    made = {name: part["counters"]["updates"] for name, part in parts.items()}
    assert made["slow"] == 0 == summary["updates"] == summary["unsaved_updates"]
    assert made["fast"] == summary["policies"]["fast"]["updates"] == run.checkpoint().label > 0


def test_a_worker_that_fails_drops_the_other_policies_batches_of_its_round(
    start, monkeypatch
) -> None:
    run = start(run={"max_updates": 6}, **_BOTH)
    run.run_until(lambda: "trainer-0" in run.heartbeats, "there is a trainer")
    trainers = run.roles["trainer-0"]._trainer
    failing = Mock(side_effect=[RuntimeError("the device has no memory left")])
    with monkeypatch.context() as patch:
        patch.setattr(trainers.by_policy["fast"].learner, "learn", failing)  # the first of a round
        run.run_until(lambda: failing.called, "a worker has failed")
    dropped = {
        n: each.dropped_steps["worker_failed"] for n, each in trainers.accounts.by_policy.items()
    }
    assert all(0 < steps <= 2 * 2 * 4 for steps in dropped.values())  # of one batch
    run.run()
    for policy, part in run.checkpoint().state["policies"].items():
        account = part["account"]
        assert part["counters"]["updates"] == 6 and account["in_flight_steps"] == 0
        assert account["dropped_steps"]["worker_failed"] == dropped[policy]


def test_each_half_is_checked_as_it_comes_by_the_bounds_of_its_own_policy(
    start, monkeypatch
) -> None:
    bounds = {}

    def asked(unroll, newest, *, max_lag_versions):
        bounds[unroll.policy] = max_lag_versions
        return too_old(unroll, newest, max_lag_versions=max_lag_versions)

    monkeypatch.setattr(server, "too_old", asked)
    policies = {**_POLICIES, "fast": {"agents": "sh*", "loss": {"kind": "dqn"}}}
    run = start(run={"max_updates": 2}, env=_ENV, policies=policies)
    loop, halves = run.roles["trainer-0"]._loop, []
    take = loop._take_unroll
    loop._take_unroll = lambda *each: (halves.append(each), take(*each))
    run.run_until(lambda: halves, "an unroll has come")
    assert bounds.items() <= {"slow": 100, "fast": 1_000_000}.items()
    (routing_id, envelope), *_ = halves
    nan = np.full_like(envelope.message.rewards, np.nan)
    bad = replace(envelope.message, rewards=nan)
    take(routing_id, replace(envelope, incarnation="another", message=bad))  # and no other half
    run.run_until(
        lambda: run.heartbeats["trainer-0"].counters.get("refused.bad_unroll") == 1, "it is refused"
    )
    run.run()
    assert bounds == {"slow": 100, "fast": 1_000_000}


def test_a_fixed_opponent_plays_with_the_weights_of_another_run_and_sends_nothing(
    start, tmp_path
) -> None:
    first = start(tmp_path / "first", run={"max_updates": 6}, **_BOTH)
    first.run()
    fixed = {"slow": _POLICIES["slow"], "fast": {**_POLICIES["fast"], "learns": False}}
    fixed["fast"]["init_from"] = str(first.path)
    run = start(tmp_path / "second", run={"max_updates": 6}, env=_ENV, policies=fixed)
    begun = weights_of(run, "slow")
    summary = run.run()
    assert {policy for *_, policy in run.sent} == {"slow"}
    assert same(weights_of(run, "fast"), weights_of(first, "fast"))
    assert not same(weights_of(run, "slow"), begun)
    parts = run.checkpoint().state["policies"]
    assert parts["fast"]["account"]["env_steps"] == 0
    assert parts["slow"]["account"]["env_steps"] == summary["accounted_env_steps"]
    # it is of the same version, and its agents have returns
    assert len({part["counters"]["policy_version"] for part in parts.values()}) == 1
    assert run.heartbeats["actor-0"].of_policy("fast").counters["episodes"] > 0


def test_a_fixed_policy_of_other_spaces_is_refused_by_name(start, tmp_path) -> None:
    first = start(tmp_path, run={"max_updates": 2}, **_BOTH)
    first.run()
    config = config_from_yaml((first.path / "config.yaml").read_text())
    fixed = config.policies["fast"].model_copy(
        update={"learns": False, "init_from": str(first.path)}
    )
    config = config.model_copy(update={"policies": {**config.policies, "fast": fixed}})
    # the agents of the new run's "fast" have the spaces that "slow" had
    other = {name: first.spec.kinds[1] for name in config.policies}
    architectures = {n: architecture_of(config.of_policy(n), other[n]) for n in other}
    with pytest.raises(ConfigError) as caught:
        warm_start(config, architectures)
    said = str(caught.value)
    assert said.startswith("policies.fast.init_from: ")
    assert "it plays" in said and "4 actions, and these agents have" in said and "3 actions" in said


def test_a_run_has_the_policies_that_it_began_with(start, tmp_path) -> None:
    run = start(tmp_path, run={"max_updates": 2}, **_BOTH)
    run.run()
    one = {"all": {"agents": "*"}}
    changes = [
        {"policies": {**_POLICIES, "third": {"agents": "long"}, "slow": {"agents": "longer"}}},
        {"policies": {"slow": {"agents": ["long", "short"]}}},
        {"policies": one},
    ]
    for change in changes:
        config = config_from_yaml((run.path / "config.yaml").read_text())
        policies = {
            name: type(config.policies["slow"])(**own) for name, own in change["policies"].items()
        }
        other = config.model_copy(update={"policies": policies})
        with pytest.raises(ConfigError, match=r"policies\.\w+.* there, .* here.*Start a new one"):
            open_run_folder(other, resume=True).close()


def test_a_checkpoint_of_other_policies_says_what_to_do(start, tmp_path) -> None:
    run = start(tmp_path, run={"max_updates": 2}, **_BOTH)
    run.run()
    folder = run.path / "checkpoints"
    with pytest.raises(CheckpointError) as caught:
        load_newest(folder, policies=("slow", "fast", "third"))
    said = str(caught.value)
    assert "is of the policies fast, slow, and this run has fast, slow, third" in said
    assert f"policies.NAME.init_from: {run.path}" in said
    with pytest.raises(CheckpointError, match=r"no policy 'third'; its policies are .*slow"):
        run.checkpoint().of_policy("third")
