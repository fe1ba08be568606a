"""Stable-Baselines3's PPO, SAC and recurrent PPO on the environments of aclearn's configurations.

    PEERS/bin/python benchmarks/sb3_zoo.py [--only cartpole_ppo acrobot] [--seeds 3] > FILE.csv

PEERS is a virtual environment with `requirements/stable_baselines3.txt`; aclearn is not imported.
Settings are those of its zoo (rl-baselines3-zoo 22e3ff24, hyperparams/ppo.yml, sac.yml and
ppo_lstm.yml); SAC has twice its 20 000 steps on Pendulum, which are only 100 episodes.

One CSV row a run: agent steps and seconds, imports left out, until the mean return of the last 100
episodes reached the bound of aclearn's configuration of that name; empty if the zoo's number of
steps was too small, with the mean at the end.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import torch
from sb3_contrib import RecurrentPPO
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.atari_wrappers import AtariWrapper
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecFrameStack, VecNormalize


def _linear(first: float) -> Callable[[float], float]:
    return lambda remaining: remaining * first


def _without_velocities() -> gym.Env:
    env = gym.make("CartPole-v1")
    space = env.observation_space
    shown = gym.spaces.Box(space.low[::2], space.high[::2])
    return gym.wrappers.TransformObservation(env, lambda observation: observation[::2], shown)


def _flat_doorkey() -> gym.Env:
    from minigrid.wrappers import FlatObsWrapper

    return FlatObsWrapper(gym.make("minigrid:MiniGrid-DoorKey-5x5-v0"))


_CARTPOLE = {
    **{"n_envs": 8, "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98},
    **{"n_epochs": 20, "learning_rate": _linear(1e-3), "clip_range": _linear(0.2)},
}
_LANDER = {
    **{"n_envs": 16, "n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98, "gamma": 0.999},
    **{"n_epochs": 4, "ent_coef": 0.01},
}
_ATARI = {
    **{"atari": True, "policy": "CnnPolicy", "n_envs": 8, "n_steps": 128, "batch_size": 256},
    **{"n_epochs": 4, "learning_rate": _linear(2.5e-4), "clip_range": _linear(0.1)},
    **{"vf_coef": 0.5, "ent_coef": 0.01},
}
#: Configuration → environment, bound, steps and settings of the zoo.
ZOO: dict[str, tuple[str | Callable[[], gym.Env], float, int, dict[str, Any]]] = {
    "cartpole_ppo": ("CartPole-v1", 475, 100_000, _CARTPOLE),
    "cartpole_lstm": (
        *(_without_velocities, 450, 100_000),
        {"algorithm": RecurrentPPO, "policy": "MlpLstmPolicy", **_CARTPOLE},
    ),
    "acrobot": (
        *("Acrobot-v1", -100, 1_000_000),
        {
            **{"normalise": True, "n_envs": 16, "n_steps": 256, "gae_lambda": 0.94},
            **{"gamma": 0.99, "n_epochs": 4},
        },
    ),
    "pendulum": (
        *("Pendulum-v1", -200, 100_000),
        {
            **{"n_envs": 4, "n_steps": 1024, "gae_lambda": 0.95, "gamma": 0.9, "n_epochs": 10},
            **{"learning_rate": 1e-3, "use_sde": True, "sde_sample_freq": 4},
        },
    ),
    "pendulum_sac": (
        *("Pendulum-v1", -200, 40_000),
        {"algorithm": SAC, "n_envs": 1, "learning_rate": 1e-3},
    ),
    "lunarlander": ("LunarLander-v3", 200, 1_000_000, _LANDER),
    "lunarlander_continuous": ("LunarLanderContinuous-v3", 200, 1_000_000, _LANDER),
    "doorkey": (
        *(_flat_doorkey, 0.93, 100_000),
        {
            **{"normalise": True, "n_envs": 8, "n_steps": 128, "batch_size": 64, "n_epochs": 10},
            **{"gae_lambda": 0.95, "gamma": 0.99, "learning_rate": 2.5e-4},
        },
    ),
    "breakout": ("BreakoutNoFrameskip-v4", 15, 10_000_000, _ATARI),
    "pong": ("PongNoFrameskip-v4", 18, 10_000_000, _ATARI),
    "halfcheetah": (
        *("HalfCheetah-v5", 2000, 1_000_000),
        {
            **{"normalise": True, "n_envs": 1, "n_steps": 512, "batch_size": 64, "gamma": 0.98},
            **{"learning_rate": 2.0633e-05, "ent_coef": 0.000401762, "clip_range": 0.1},
            **{"n_epochs": 20, "gae_lambda": 0.92, "max_grad_norm": 0.8, "vf_coef": 0.58096},
            "policy_kwargs": {
                **{"log_std_init": -2, "ortho_init": False, "activation_fn": torch.nn.ReLU},
                "net_arch": {"pi": [256, 256], "vf": [256, 256]},
            },
        },
    ),
}
FIELDS = ("configuration", "seed", "bound", "reached_steps", "reached_s", "last_mean")


class _UntilBound(BaseCallback):  # type: ignore[misc]  # not installed beside aclearn
    """Ends the training when the mean return of 100 episodes reaches a bound."""

    def __init__(self, bound: float) -> None:
        super().__init__()
        self._bound, self.mean, self.reached = bound, float("nan"), False

    def _on_step(self) -> bool:
        returns = [episode["r"] for episode in self.model.ep_info_buffer or ()]
        if returns:
            self.mean = sum(returns) / len(returns)
        self.reached = len(returns) == 100 and self.mean >= self._bound
        return not self.reached


def train(
    name: str,
    seed: int,
    *,
    make_env: Callable[[], gym.Env] | None = None,
    callback: BaseCallback | None = None,
) -> Any:
    """Train for the zoo's number of steps, or until the callback says so; returns the model.

    Args:
        make_env: makes the environment of that name, in place of the one in `ZOO`.
    """
    env_id, _, steps, settings = ZOO[name]
    settings = dict(settings)
    atari = settings.pop("atari", False)
    env = make_vec_env(
        make_env or env_id,
        n_envs=settings.pop("n_envs"),
        seed=seed,
        wrapper_class=AtariWrapper if atari else None,
    )
    if atari:
        env = VecFrameStack(env, n_stack=4)
    if settings.pop("normalise", False):
        env = VecNormalize(env, gamma=settings["gamma"])
    algorithm, policy = settings.pop("algorithm", PPO), settings.pop("policy", "MlpPolicy")
    model = algorithm(policy, env, seed=seed, device="cpu", **settings)
    return model.learn(steps, callback=callback)


def run(name: str, seed: int) -> dict[str, Any]:
    """Train until the bound or the zoo's number of steps."""
    bound = ZOO[name][1]
    callback = _UntilBound(bound)
    started = time.monotonic()
    model = train(name, seed, callback=callback)
    took_s = time.monotonic() - started
    return {
        "configuration": name,
        "seed": seed,
        "bound": bound,
        "reached_steps": model.num_timesteps if callback.reached else "",
        "reached_s": round(took_s, 1) if callback.reached else "",
        "last_mean": round(callback.mean, 1),
    }


def main() -> None:
    """Train what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=ZOO, default=list(ZOO))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    table = csv.DictWriter(sys.stdout, FIELDS)
    table.writeheader()
    for name in options.only:
        for seed in range(1, options.seeds + 1):
            table.writerow(run(name, seed))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
