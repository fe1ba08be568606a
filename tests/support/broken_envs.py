"""Environments with one mistake each, which a run must reject at its start."""

from __future__ import annotations

import os
import sys
import time

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete


class Broken(gymnasium.Env):
    observation_space = Box(-1.0, 1.0, (3,), np.float32)
    action_space = Discrete(2)

    def __init__(self, how="", at="reset"):
        self.how, self.at = how, at
        self._fail("made")

    def reset(self, *, seed=None, options=None):
        self._fail("reset")
        return self.observation_space.sample(), {}

    def step(self, action):
        self._fail("step")
        return self.observation_space.sample(), 0.0, False, False, {}

    def _fail(self, now):
        if now != self.at:
            return
        if self.how == "raises":
            raise OSError("no licence\nfor this machine")
        if self.how == "exits":
            sys.exit("the window was closed")
        if self.how == "ends the process":
            print("goodbye", file=sys.stderr)
            os._exit(3)
        if self.how == "crashes":
            os.abort()
        if self.how == "hangs":
            time.sleep(1000.0)


class Talkative(Broken):
    """Works, but prints a lot, changes the directory and leaves a process behind."""

    def __init__(self, folder):
        super().__init__()
        os.chdir(folder)
        print("x" * 200_000, flush=True)
        print("y" * 200_000, file=sys.stderr, flush=True)
        if os.fork() == 0:
            time.sleep(1000.0)
            os._exit(0)


class Storyteller(Broken):
    observation_space = Dict({"eye": Box(0, 1, (2,)), "story": gymnasium.spaces.Text(8)})


class Promising(Broken):
    def reset(self, *, seed=None, options=None):
        return np.zeros(5, np.float32), {}


class Picture(Broken):
    observation_space = Box(0, 255, (36, 36, 3), np.uint8)


class Speaking(Broken):
    action_space = gymnasium.spaces.Text(4)
