"""Sample Factory on the board, with the settings of its examples; run with its own Python.

    BOARD_EPISODES=FILE python board_sample_factory.py cartpole --seed 1

`board_measure.py` judges the training by the episodes of its environments and ends it.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

from board_episodes import make
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import run_rl
from sf_examples.atari import atari_params, atari_utils
from sf_examples.mujoco import mujoco_params

#: The command of sf_examples/train_gym_env.py, for CartPole.
_GYM: Final = (
    "--algo=APPO",
    "--use_rnn=False",
    "--num_envs_per_worker=20",
    "--policy_workers_per_policy=2",
    "--recurrence=1",
    "--with_vtrace=False",
    "--batch_size=512",
    "--reward_scale=0.1",
    "--save_every_sec=10",
    "--experiment_summaries_interval=10",
)
_ATARI: Final = ("breakout", "pong")
_CONTINUOUS: Final = ("pendulum", "halfcheetah")


def _env(name: str, cfg: Any, env_config: Any, render_mode: str | None = None) -> Any:
    if name not in _ATARI:
        return make(name, render_mode=render_mode)
    spec = atari_utils.AtariSpec(name, f"board_episodes:board/{name}-v0")
    atari_utils.ATARI_ENVS.append(spec)  # make_atari_env finds it by its name
    return atari_utils.make_atari_env(name, cfg, env_config, render_mode)


def main() -> int:
    """Train the task of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task")
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    register_env(options.task, _env)
    given = [f"--env={options.task}", f"--seed={options.seed}", "--device=cpu"]
    given += ["--train_dir=.", "--experiment=board"]
    if options.task not in (*_ATARI, *_CONTINUOUS):
        given += _GYM
    arguments, _ = parse_sf_args(argv=given)
    if options.task in _ATARI:
        atari_params.atari_override_defaults(options.task, arguments)
    elif options.task in _CONTINUOUS:
        mujoco_params.mujoco_override_defaults(options.task, arguments)
    return int(run_rl(parse_full_cfg(arguments, given)))


if __name__ == "__main__":
    sys.exit(main())
