"""Valid configurations in which a setting has no effect."""

from __future__ import annotations

import pytest

from aclearn.config import config_from_yaml, doubts, load_config, shipped_configs

_SOLE = "trainer: {epochs: 1, minibatches: 1}"


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        (f"loss: {{kind: ppo}}\n{_SOLE}", "trainer.epochs", "loss.clip_range never acts"),
        (
            f"loss: {{kind: impact, target_update_every: 1}}\n{_SOLE}",
            "trainer.epochs",
            "to the target network is 1",
        ),
        ("loss: {kind: ppo, target_kl: 0.1}\ntrainer: {epochs: 1}", "loss.target_kl", "is 1"),
        ("loss: {kind: a2c}\ntrainer: {epochs: 4}", "trainer.epochs", "each of 4 passes"),
        ("optimiser: {schedule_steps: 5}", "optimiser.schedule_steps", "no effect"),
        (
            "run: {max_env_steps: 65_000}\noptimiser: {schedule: linear, schedule_steps: 60_000}",
            "optimiser.schedule_steps",
            "the rate is 0 after 60000 of run.max_env_steps: 65000",
        ),
    ],
)
def test_a_setting_without_effect_is_told_with_its_key(text: str, key: str, words: str) -> None:
    [sentence] = doubts(config_from_yaml(f"env: {{id: a}}\n{text}"))

    assert sentence.startswith(f"{key}: ")
    assert words in sentence


@pytest.mark.parametrize(
    "text",
    [
        "loss: {kind: ppo}\ntrainer: {epochs: 1, minibatches: 2}",
        "loss: {kind: ppo, target_kl: 0.1}\ntrainer: {epochs: 2, minibatches: 1}",
        # its centre is older than the batch
        f"loss: {{kind: impact}}\n{_SOLE}",
        f"loss: {{kind: actor_critic}}\n{_SOLE}",
        "run: {max_env_steps: 60_000}\noptimiser: {schedule: linear, schedule_steps: 60_000}",
    ],
)
def test_settings_that_act_are_not_doubted(text: str) -> None:
    assert not list(doubts(config_from_yaml(f"env: {{id: a}}\n{text}")))


@pytest.mark.parametrize("name", shipped_configs())
def test_no_shipped_configuration_is_doubted(name: str) -> None:
    assert not list(doubts(load_config(name)))
