"""RLlib's PPO on the board, with the settings of its examples; run with its own Python.

    BOARD_EPISODES=FILE python board_rllib.py cartpole --seed 1

Settings are those of rllib/examples/algorithms/ppo/ in Ray 2.60: cartpole_ppo.py, pendulum_ppo.py,
mujoco_ppo.py (HalfCheetah), atari_ppo.py. The other tasks have none there: RLlib's defaults.
`board_measure.py` judges the training by the episodes of its environments and ends it.
"""

from __future__ import annotations

import argparse
from typing import Any

import ray
from board_episodes import make
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.connectors.env_to_module import MeanStdFilter
from ray.rllib.connectors.env_to_module.frame_stacking import FrameStackingEnvToModule
from ray.rllib.connectors.learner.frame_stacking import FrameStackingLearner
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.wrappers.atari_wrappers import wrap_atari_for_new_api_stack
from ray.tune.registry import register_env
from torch.nn.init import orthogonal_


def _normalised(*_: Any, **__: Any) -> MeanStdFilter:
    return MeanStdFilter()


def _cartpole(config: PPOConfig) -> PPOConfig:
    network = DefaultModelConfig(
        fcnet_hiddens=[32], fcnet_activation="linear", vf_share_layers=True
    )
    return (
        config.env_runners(num_env_runners=4, num_envs_per_env_runner=16)
        .learners(num_learners=1)
        .training(lr=0.0003, num_epochs=6, vf_loss_coeff=0.01)
        .rl_module(model_config=network)
    )


def _pendulum(config: PPOConfig) -> PPOConfig:
    return (
        config.env_runners(
            num_env_runners=2, num_envs_per_env_runner=20, env_to_module_connector=_normalised
        )
        .training(
            train_batch_size_per_learner=1024,
            minibatch_size=128,
            lr=0.0002,
            gamma=0.95,
            lambda_=0.5,
        )
        .rl_module(model_config=DefaultModelConfig(fcnet_activation="relu"))
    )


def _halfcheetah(config: PPOConfig) -> PPOConfig:
    network = DefaultModelConfig(
        vf_share_layers=False,
        fcnet_hiddens=[256, 256],
        fcnet_kernel_initializer=orthogonal_,
        fcnet_activation="tanh",
        head_fcnet_hiddens=[256],
        head_fcnet_activation=None,
        free_log_std=True,
    )
    return (
        config.env_runners(
            num_env_runners=4,
            num_envs_per_env_runner=16,
            rollout_fragment_length=32,
            env_to_module_connector=_normalised,
        )
        .learners(num_learners=1)
        .training(
            train_batch_size_per_learner=2048,
            minibatch_size=512,
            num_epochs=10,
            lr=0.0003,
            vf_loss_coeff=1.0,
            entropy_coeff=[[0, 0.01], [2_000_000, 0.0]],
            gamma=0.99,
            lambda_=0.95,
            kl_coeff=0.5,
            clip_param=0.2,
            vf_clip_param=10.0,
            grad_clip=50.0,
            grad_clip_by="global_norm",
        )
        .rl_module(model_config=network)
    )


def _atari(config: PPOConfig) -> PPOConfig:
    network = DefaultModelConfig(
        conv_filters=[[16, 4, 2], [32, 4, 2], [64, 4, 2], [128, 4, 2]],
        conv_activation="relu",
        head_fcnet_hiddens=[256],
        vf_share_layers=True,
    )
    return (
        config.environment(clip_rewards=True)
        .env_runners(
            env_to_module_connector=lambda *_, **__: FrameStackingEnvToModule(num_frames=4)
        )
        .training(
            learner_connector=lambda *_, **__: FrameStackingLearner(num_frames=4),
            train_batch_size_per_learner=4000,
            minibatch_size=128,
            lambda_=0.95,
            kl_coeff=0.5,
            clip_param=0.1,
            vf_clip_param=10.0,
            entropy_coeff=0.01,
            num_epochs=10,
            lr=0.00015,
            grad_clip=100.0,
            grad_clip_by="global_norm",
        )
        .rl_module(model_config=network)
    )


_SETTINGS = {
    "cartpole": _cartpole,
    "pendulum": _pendulum,
    "halfcheetah": _halfcheetah,
    "breakout": _atari,
    "pong": _atari,
}


def main() -> None:
    """Train the task of the command line until it is ended."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task")
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    if options.task in ("breakout", "pong"):
        env = lambda _: wrap_atari_for_new_api_stack(make(options.task), framestack=None)  # noqa: E731
    else:
        env = lambda _: make(options.task)  # noqa: E731
    register_env("board", env)
    config = PPOConfig().environment("board").debugging(seed=options.seed, log_level="ERROR")
    config = _SETTINGS.get(options.task, lambda given: given)(config)
    # More places than cores, for the examples' runners and learner. With as many as they are, the
    # runners did not start within minutes.
    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False)
    algorithm = config.build_algo()
    while True:
        algorithm.train()


if __name__ == "__main__":
    main()
