"""Stable-Baselines3 on the board, with the settings of its zoo; run with its own Python.

    BOARD_EPISODES=FILE python board_sb3.py cartpole --seed 1

Trains for the zoo's number of steps; `board_measure.py` judges it and ends it.
"""

from __future__ import annotations

import argparse
from functools import partial

from board_episodes import make
from sb3_zoo import train

#: Task → its name in `sb3_zoo.py`.
_NAMES = {"cartpole": "cartpole_ppo"}


def main() -> None:
    """Train the task of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task")
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    name = _NAMES.get(options.task, options.task)
    train(name, options.seed, make_env=partial(make, options.task))


if __name__ == "__main__":
    main()
