"""Stable-Baselines3's PPO with its defaults on the environments of `sanity_envs.py`.

    PEERS/bin/python benchmarks/sanity_sb3.py [--only identity grid] [--seeds 3] > FILE.csv

PEERS is a virtual environment with `stable-baselines3`; aclearn is not imported. Each run has one
environment, as `PPO("MlpPolicy", env)` makes it; Dict observations need "MultiInputPolicy".

One CSV row a run: agent steps until the mean return of the last 100 episodes reached the bar, empty
if the case's most steps were too few, and the mean at the end. A case that two seeds have not
solved gets no third one, which could not change the median.
"""

from __future__ import annotations

import argparse
import csv
import sys
from typing import Any

import torch
from gymnasium import spaces
from sanity_envs import CASES, make
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor

FIELDS = ("case", "seed", "n_envs", "solved", "most_steps", "solved_steps", "last_mean")


class _UntilSolved(BaseCallback):  # type: ignore[misc]  # not installed beside aclearn
    """Ends the training when the mean return of 100 episodes reaches a bar."""

    def __init__(self, bar: float) -> None:
        super().__init__()
        self._bar, self.mean, self.reached = bar, float("nan"), False

    def _on_step(self) -> bool:
        returns = [episode["r"] for episode in self.model.ep_info_buffer or ()]
        if returns:
            self.mean = sum(returns) / len(returns)
        self.reached = len(returns) == 100 and self.mean >= self._bar
        return not self.reached


def run(name: str, seed: int) -> dict[str, Any]:
    """Train until the bar or the case's most steps."""
    case = CASES[name]
    env = Monitor(make(name))
    mapping = isinstance(env.observation_space, spaces.Dict)
    model = PPO("MultiInputPolicy" if mapping else "MlpPolicy", env, seed=seed, device="cpu")
    callback = _UntilSolved(case.solved)
    model.learn(case.steps, callback=callback)
    return {
        "case": name,
        "seed": seed,
        "n_envs": model.n_envs,
        "solved": case.solved,
        "most_steps": case.steps,
        "solved_steps": model.num_timesteps if callback.reached else "",
        "last_mean": f"{callback.mean:.4g}",
    }


def main() -> None:
    """Train what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = csv.DictWriter(sys.stdout, FIELDS)
    table.writeheader()
    unsolved = dict.fromkeys(options.only, 0)
    for seed in range(1, options.seeds + 1):
        for name in options.only:
            if unsolved[name] > options.seeds // 2:
                continue
            row = run(name, seed)
            unsolved[name] += row["solved_steps"] == ""
            table.writerow(row)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
