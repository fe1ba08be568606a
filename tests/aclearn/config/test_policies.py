"""The section `policies`: what each policy has of its own, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aclearn.algorithms.ppo import PPOConfig
from aclearn.config import Config, config_from_yaml, config_of_keys, doubts, load_config
from aclearn.config.loss import ALGORITHMS
from aclearn.errors import ConfigError

_TAG: dict[str, Any] = {
    "env": {"id": "m:tag"},
    "run": {"init_from": "/runs/before", "target_return": {"runner": -2}},
    "policy": {"hidden": [32], "memory": {"kind": "gru", "size": 8}},
    "loss": {"entropy_cost": 0.02},
    "optimiser": {"max_grad_norm": 1.0},
    "correctors": ["vtrace"],
    "policies": {
        "tagger": {
            "agents": "adversary_*",
            "policy": {"memory": {"size": 16}},
            "loss": {"discount": 0.9},
            "correctors": ["no_correction"],
            "optimiser": {"learning_rate": 1e-3},
        },
        "runner": {"agents": ["agent_0", "agent_1"], "init_from": "/runs/x", "learns": False},
        "judge": {"agents": "judge", "loss": {"kind": "ppo"}, "policy": {"memory": None}},
    },
}
_FIXED = {"agents": "c", "learns": False}


def test_a_policy_has_the_keys_of_the_run_with_its_own_on_top() -> None:
    config = Config(**_TAG)
    assert config.policy_names() == ("tagger", "runner", "judge")
    assert config.learning_policies() == ("tagger", "judge")
    assert config.policies["tagger"].agents == ("adversary_*",)
    tagger, runner = config.of_policy("tagger"), config.of_policy("runner")
    assert tagger.policies == {} and tagger.of_policy("default") is tagger
    memory = tagger.policy.memory
    assert (tagger.policy.hidden, memory.kind, memory.size) == ((32,), "gru", 16)
    assert (tagger.loss.discount, tagger.loss.model_dump()["entropy_cost"]) == (0.9, 0.02)
    assert [corrector.name for corrector in tagger.correctors] == ["no_correction"]
    assert (tagger.optimiser.learning_rate, tagger.optimiser.max_grad_norm) == (1e-3, 1.0)
    assert (tagger.run.init_from, tagger.run.target_return) == ("/runs/before", None)
    assert (runner.run.init_from, runner.run.target_return) == ("/runs/x", -2.0)
    assert runner.policy == config.policy and runner.loss == config.loss


def test_another_loss_begins_with_its_own_defaults_and_the_actors_stay_those_of_the_run() -> None:
    config = Config(**_TAG)
    judge, alone = config.of_policy("judge"), Config(env={"id": "m:tag"}, loss={"kind": "ppo"})
    assert (judge.loss, judge.correctors) == (alone.loss, alone.correctors)
    assert judge.trainer.epochs == alone.trainer.epochs != config.trainer.epochs
    assert judge.actors == config.actors and judge.actors != alone.actors
    with_epochs = Config(**{**_TAG, "trainer": {"epochs": 2}})
    assert with_epochs.of_policy("judge").trainer.epochs == 2


def test_ddpg_with_a_memory_has_the_memory_of_the_run() -> None:
    loss = {"kind": "ddpg", "memory": "replay"}
    env = {"id": "m:tag", "squash_actions": True}
    given = {"env": env, "loss": loss, "replay": {"size": 5000, "ratio": 16}}
    config = Config(**given, policies={"a": {"agents": "*"}})
    assert config.of_policy("a").replay == config.replay == Config(**given).replay


@pytest.mark.parametrize("of_policy", ALGORITHMS.names)
@pytest.mark.parametrize("of_run", ALGORITHMS.names)
def test_each_policy_has_the_same_after_the_file_of_a_run(of_run, of_policy) -> None:
    """Real processes read `config.yaml`: defaults of the run must not come back as set keys."""

    def loss(kind: str) -> dict[str, str]:
        return {"kind": kind} | ({"memory": "replay"} if kind == "ddpg" else {})

    policies = {"a": {"agents": "a", "loss": loss(of_policy)}, "b": {"agents": "b"}}
    env = {"id": "m:tag", "squash_actions": True}
    config = Config(env=env, loss=loss(of_run), policies=policies)
    again = config_from_yaml(config_from_yaml(config.to_yaml()).to_yaml())
    assert again == config
    for name in policies:
        assert again.of_policy(name) == config.of_policy(name)
    alone = Config(env=env, loss=loss(of_policy))
    own = again.of_policy("a")
    assert (own.loss, own.correctors) == (alone.loss, alone.correctors)
    assert (own.trainer, own.replay, own.optimiser) == (
        alone.trainer,
        alone.replay,
        alone.optimiser,
    )


def test_a_set_key_of_the_run_is_one_of_each_policy_also_after_the_file() -> None:
    trainer = {"epochs": 10, "minibatches": 32}  # which are the defaults of this loss
    policies = {"a": {"agents": "a", "loss": {"kind": "actor_critic"}}}
    config = Config(env={"id": "m:tag"}, loss=PPOConfig(), trainer=trainer, policies=policies)
    again = config_from_yaml(config.to_yaml())
    assert again.loss.kind == "ppo" and again.of_policy("a").trainer.epochs == 10


def test_a_run_with_one_policy_is_its_own_configuration() -> None:
    config = Config(env={"id": "m:tag"}, run={"target_return": 3})
    assert config.policy_names() == config.learning_policies() == ("default",)
    assert config.of_policy("default") is config and config.run.target_return == 3.0
    with pytest.raises(ConfigError, match="no policy 'tagger' in this run; its policies are defau"):
        config.of_policy("tagger")


def test_policies_are_read_from_files_and_overrides_as_other_sections_are(tmp_path: Path) -> None:
    base, above = tmp_path / "base.yaml", tmp_path / "tag.yaml"
    base.write_text(
        "env: {id: m:tag}\npolicies:\n"
        "  tagger: {agents: a_*, loss: {discount: 0.9}}\n  runner: {agents: b_0, init_from: old}\n"
    )
    above.write_text("base: base.yaml\npolicies:\n  tagger:\n    loss: {entropy_cost: 0.5}\n")
    config = load_config(above, ["policies.runner.loss.discount=0.5"])
    assert config.policies["tagger"].loss == {"discount": 0.9, "entropy_cost": 0.5}
    assert config.policies["runner"].loss == {"discount": 0.5}
    assert config.policies["runner"].agents == ("b_0",)
    assert config.policies["runner"].init_from == str(Path.cwd() / "old")
    assert config_from_yaml(config.to_yaml()) == config
    above.write_text("base: base.yaml\npolicies:\n  tagger:\n    loss: {entropy_cos: 0.5}\n")
    with pytest.raises(ConfigError, match=r"line 4: policies\.tagger\.loss\.entropy_cos: is not a"):
        load_config(above)
    assert config_of_keys({"env.id": "m:tag", "policies.a": {"agents": "*"}}).policies["a"].learns


def test_a_setting_without_effect_of_one_policy_is_doubted_with_its_name() -> None:
    linear = {"schedule": "linear", "schedule_steps": 10}
    config = Config(
        env={"id": "m:tag"},
        run={"max_env_steps": 100},
        policies={"a": {"agents": "*", "optimiser": linear}},
    )
    (said,) = [each for each in doubts(config) if "schedule" in each]
    assert said.startswith("policies.a.optimiser.schedule_steps: the rate is 0 after 10")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"policies": {"../red": {"agents": "*"}}}, r"^policies: '\.\./red' cannot be the name"),
        ({"policies": {"a.b": {"agents": "*"}}}, r"^policies: 'a\.b' cannot be the name"),
        ({"policies": {"default": {"agents": "*"}}}, r"^policies: 'default' is the name of the"),
        ({"policies": {1: {"agents": "*"}}}, r"^policies: 1 cannot be the name"),
        ({"policies": {"a": None}}, r"^policies\.a\.agents is missing"),
        ({"policies": {"a": "x"}}, r"^policies\.a: expected a section with keys, got 'x'"),
        ({"policies": {"a": {"agents": []}}}, r"^policies\.a\.agents: expected list of text"),
        ({"policies": {"a": {"agnts": "*"}}}, r"policies\.a\.agnts is not .*mean policies\.a\.age"),
        (
            {"policies": {"a": {"agents": "*", "loss": {"entropy_cost": "x"}}}},
            r"^policies\.a\.loss\.entropy_cost: expected number .*, got 'x'",
        ),
        (
            {"policies": {"a": {"agents": "*", "correctors": ["vtrac"]}}},
            r"^policies\.a\.correctors\[0\]: 'vtrac' is unknown",
        ),
        (
            {
                "trainer": {"burn_in_steps": 5},
                "policy": {"memory": {"kind": "lstm"}},
                "policies": {"a": {"agents": "*", "policy": {"memory": None}}},
            },
            r"^policies\.a: with its keys, trainer\.burn_in_steps: ",
        ),
        (
            {"policies": {"a": {"agents": "*"}}, "trainer": {"processes": 2}},
            r"^trainer\.processes: several policies learn in one trainer; set it to 1",
        ),
        ({"policies": {"a": {"agents": "*", "learns": False}}}, r"^policies: none of them learns"),
        (
            {"policies": {"a": {"agents": "*"}}, "run": {"target_return": 3}},
            r"^run\.target_return: .* by policy, for instance \{a: 3\}",
        ),
        (
            {"policies": {"a": {"agents": "*"}}, "run": {"target_return": {"b": 3}}},
            r"^run\.target_return: there is no policy 'b'; the policies are a",
        ),
        ({"run": {"target_return": {"b": 3}}}, r"^run\.target_return: there is one policy"),
        ({"run": {"target_return": {"b": "x"}}}, r"^run\.target_return: expected a number"),
        ({"run": {"target_return": {}}}, r"^run\.target_return: expected .*got \{\}; null: no"),
        ({"run": {"target_return": True}}, r"^run\.target_return: expected a number"),
    ],
)
def test_a_mistake_is_refused_by_its_key(keys, said) -> None:
    with pytest.raises(ConfigError, match=said):
        Config(**{"env": {"id": "m:tag"}, **keys})
