"""Members that are trained as a batch of models, beside the same runs that are trained apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aclearn.config import Config
from aclearn.errors import ConfigError
from aclearn.runs import RunFolder, load_newest

pytest.importorskip("warp")

from aclearn.resident import resident_env_of
from services.trainer.batchable import check_batchable
from services.trainer.build import make_trainer
from services.trainer.members import MemberTrainers
from services.trainer.snapshot import Snapshot

M, ENVS, T = 3, 4, 8
CASES: dict[str, dict[str, Any]] = {
    "actor_critic": {
        "env": {"id": "CartPole-v1"},
        "trainer": {"amp": "off", "minibatches": 2, "epochs": 2},
        "loss": {"normalise_advantages": True},
    },
    "ppo": {
        "env": {"id": "CartPole-v1", "clip_rewards": True},
        "policy": {"normalise_observations": True},
        "trainer": {"amp": "off", "minibatches": 3, "epochs": 2},
        "loss": {"kind": "ppo", "target_kl": 0.01},
    },
    "numbers": {
        "env": {"id": "Pendulum-v1", "squash_actions": True},
        "trainer": {"amp": "off"},
        "loss": {"kind": "a2c", "normalise_returns": True},
    },
}


def _config(case: str, member: int, **run: Any) -> Config:
    """Members differ in seed and numbers."""
    given = CASES[case]
    loss = {"discount": 0.97 + 0.01 * member, "entropy_cost": 0.01 * member}
    return Config(
        **{key: value for key, value in given.items() if key not in ("loss", "policy")},
        run={"name": f"m{member}", "seed": member, **run},
        resident={"envs": ENVS, "device": "cpu"},
        actors={"unroll_length": T},
        policy={"architecture": "mlp", "hidden": [8], **given.get("policy", {})},
        loss={**given["loss"], **loss},
        correctors=[{"vtrace": {"lambda": 0.9 + 0.02 * member}}, "importance_sampling"],
        optimiser={"kind": "adam", "learning_rate": 1e-3 * (1 + member)},
    )


def _runs(folder: Path, case: str, **run: Any) -> list[tuple[Config, RunFolder]]:
    configs = [_config(case, member, **run) for member in range(M)]
    return [(c, RunFolder.create(folder, str(c.run.name), c.to_yaml())) for c in configs]


def _assert_alike(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        if name == "resident/state":  # of floats alone, in these environments
            array, found[name] = (each.view(np.float32) for each in (array, found[name]))
        if name != "random/torch":  # of this process
            np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("case", CASES)
def test_five_batches_later_they_are_what_runs_of_their_own_are(tmp_path: Path, case: str) -> None:
    runs = _runs(tmp_path, case)
    members = MemberTrainers(runs)
    for _ in range(5):
        members.step()
    members.save()
    members.close()
    for (config, folder), member in zip(runs, members.members, strict=True):
        spec = resident_env_of(config).spec(squash=config.env.squash_actions)
        apart = make_trainer(config, spec, incarnation=member.incarnation, threads=1)
        apart.publish()
        worker = apart.make_worker()
        for _ in range(5):
            assert apart.step(0.0, worker)
        expected = apart.snapshot()
        apart.source.close()
        saved = load_newest(folder.checkpoints_dir)
        assert saved is not None
        _assert_alike(saved.tensors, expected.tensors)
        assert saved.state["counters"] == expected.state["counters"]
        for account in (saved.state["account"], expected.state["account"]):
            account["opened"][member.incarnation].pop("sequence")  # counted less often
        assert saved.state["account"] == expected.state["account"]
        mine, theirs = member.trainer.heartbeat_fields(), apart.heartbeat_fields()
        assert mine["counters"] == theirs["counters"]
        # a ratio is clipped above 1, which it is but for rounding
        gauges, others = (
            {name: value for name, value in of["gauges"].items() if "clipped_" not in name}
            for of in (mine, theirs)
        )
        assert gauges == pytest.approx(others, rel=1e-3, abs=1e-4)
        assert member.trainer.take_episodes() == apart.take_episodes()


def test_a_batch_continues_from_its_checkpoints_as_an_unbroken_one(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for folder, parts in ((whole, (4,)), (broken, (2, 2))):
        runs = _runs(folder, "ppo")
        for steps in parts:
            members = MemberTrainers(runs)
            for _ in range(steps):
                members.step()
            members.save()
            members.close()
    for member in range(M):
        found, expected = (
            load_newest(folder / f"m{member}" / "checkpoints") for folder in (broken, whole)
        )
        assert found is not None and expected is not None
        for name in expected.tensors.keys() - {"random/torch"}:
            array = expected.tensors[name]
            np.testing.assert_array_equal(found.tensors[name], array, err_msg=name)


def test_a_member_at_its_bound_stops_and_any_trainer_continues_it(tmp_path: Path) -> None:
    runs = _runs(tmp_path, "actor_critic", max_env_steps=3 * T * ENVS)
    members = MemberTrainers(runs)
    while not members.over:
        members.step()
    members.save()
    members.close()
    for config, folder in runs:
        saved = load_newest(folder.checkpoints_dir)
        assert saved is not None
        steps = saved.state["account"]["env_steps"]
        assert 3 * T * ENVS <= steps < 4 * T * ENVS
        trainer = make_trainer(config, resident_env_of(config).spec(), threads=1)
        trainer.restore(Snapshot(saved.tensors, saved.state))
        assert trainer.account.env_steps == steps
        trainer.source.close()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"resident": {"envs": None}, "actors": {}}, "resident.envs"),
        ({"loss": {"kind": "dqn"}, "correctors": []}, "loss.kind dqn"),
        ({"policy": {"architecture": "mlp", "memory": {"kind": "lstm"}}}, "policy.memory.kind"),
        ({"resident": {"envs": 4, "device": "cpu", "policy": "bf16"}}, "resident.policy"),
        ({"resident": {"envs": 4, "device": "cpu", "devices": 2}}, "resident.devices"),
        ({"trainer": {"amp": "off", "compile": True}}, "trainer.compile"),
        ({"run": {"flight_recorder": 4}}, "run.flight_recorder"),
        ({"metrics": {"prometheus_port": 9100}}, "metrics.prometheus_port: its members have no"),
        ({"run": {"audit": True}}, "run.audit"),
    ],
)
def test_what_cannot_be_batched_is_refused_by_name(change: dict[str, Any], named: str) -> None:
    given = {
        "env": {"id": "CartPole-v1"},
        "resident": {"envs": 4, "device": "cpu"},
        "trainer": {"amp": "off"},
    }
    config = Config(**{**given, **change})
    with pytest.raises(ConfigError, match=named):
        check_batchable([config, config])


def test_a_dead_member_does_not_make_the_others_count_each_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members, counted = MemberTrainers(_runs(tmp_path, "actor_critic")), []
    members.members[1].fault = FloatingPointError("20 updates refused")
    members._tally.refused_in_a_row[1] = 20
    monkeypatch.setattr(members, "count", lambda: counted.append(True))
    members.step()
    assert counted == []
    members.close()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"env": {"id": "resident:tag_continuous"}}, "has several agents"),
        (
            {"resident": {"envs": 4, "device": "cpu", "chain": ["int8"]}, "correctors": "auto"},
            r"resident\.chain",
        ),
        (
            {"policy": {"architecture": "tests.support.own_networks:Latch", "hidden": None}},
            "a network of your own",
        ),
        ({"correctors": "auto"}, "correctors"),
        ({"correctors": ["second_moment"]}, "correctors: one of them looks at all steps"),
        ({"correctors": [{"adaptive": {}}]}, "correctors: one of them looks at all steps"),
    ],
)
def test_what_a_batch_cannot_compute_is_refused_by_name(
    tmp_path: Path, change: dict[str, Any], named: str
) -> None:
    given = {
        "env": {"id": "CartPole-v1"},
        "resident": {"envs": 4, "device": "cpu"},
        "trainer": {"amp": "off", "device": "cpu"},
    }
    config = Config(**{**given, **change})
    with pytest.raises(ConfigError, match=named):
        MemberTrainers([(config, RunFolder.create(tmp_path, "m", config.to_yaml()))])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"policy": {"architecture": "mlp", "hidden": [9]}}, r"policy\.hidden: .*\[9\]"),
        ({"optimiser": {"kind": "adam", "epsilon": 0.1}}, r"optimiser\.epsilon"),
        ({"correctors": [{"vtrace": {"rho_bar": 2.0}}, "importance_sampling"]}, "correctors"),
        ({"actors": {"unroll_length": 9}}, r"actors\.unroll_length"),
    ],
)
def test_members_that_differ_in_anything_else_are_refused(
    change: dict[str, Any], named: str
) -> None:
    first = _config("actor_critic", 0)
    other = Config(**{**first.model_dump(by_alias=True), **change})
    with pytest.raises(ConfigError, match=named):
        check_batchable([first, other])
