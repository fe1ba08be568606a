"""What the board sees of a peer's training: its environments, below every wrapper of the library.

Imported by the peers' own Python, so it needs only gymnasium. The library makes its environments
here. Each begin and end of an episode appends a record to the file in BOARD_EPISODES, from which
`board_measure.py` judges the training.
"""

from __future__ import annotations

import os
import struct
import time
from typing import Any, ClassVar, Final

import gymnasium as gym

#: Process; number of the episode in it; its steps so far in all environments; when the episode
#: began, in seconds of the machine's clock; its return, NaN while it runs, infinite if it was left.
RECORD: Final = struct.Struct("<qqqdd")
#: Name of the file in the environment of the library's processes.
FILE: Final = "BOARD_EPISODES"
_RUNS: Final = float("nan")
_LEFT: Final = float("inf")
#: Steps between two records of a process whose episodes are long.
_RECORD_EVERY: Final = 1000
#: Task → id of its environment; the second one where gymnasium is older than 1.0.
_IDS: Final[dict[str, tuple[str, str]]] = {
    "cartpole": ("CartPole-v1", "CartPole-v1"),
    "acrobot": ("Acrobot-v1", "Acrobot-v1"),
    "pendulum": ("Pendulum-v1", "Pendulum-v1"),
    "lunarlander": ("LunarLander-v3", "LunarLander-v2"),
    "doorkey": ("minigrid:MiniGrid-DoorKey-5x5-v0", "minigrid:MiniGrid-DoorKey-5x5-v0"),
    "halfcheetah": ("HalfCheetah-v5", "HalfCheetah-v4"),
    "breakout": ("ale_py:BreakoutNoFrameskip-v4", "ale_py:BreakoutNoFrameskip-v4"),
    "pong": ("ale_py:PongNoFrameskip-v4", "ale_py:PongNoFrameskip-v4"),
}


class _Log:
    """The records of this process."""

    _of: ClassVar[dict[int, _Log]] = {}  # by process: a fork has its own

    def __init__(self) -> None:
        self._file = os.open(os.environ[FILE], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._process = os.getpid()
        self._episodes = self.steps = 0

    @classmethod
    def here(cls) -> _Log:
        process = os.getpid()
        if process not in cls._of:
            cls._of[process] = cls()
        return cls._of[process]

    def begin(self) -> tuple[int, float]:
        self._episodes += 1
        begun = self._episodes, time.monotonic()
        self.record(begun, _RUNS)
        return begun

    def record(self, begun: tuple[int, float], return_: float) -> None:
        number, at_s = begun
        os.write(self._file, RECORD.pack(self._process, number, self.steps, at_s, return_))


class Recorded(gym.Wrapper):  # type: ignore[misc]
    """Records the true returns of an environment; an episode begins at its first step."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._log: _Log | None = None
        self._begun: tuple[int, float] | None = None
        self._return = 0.0

    def reset(self, **given: Any) -> Any:
        """The environment's; leaves the running episode."""
        if self._begun is not None and self._log is not None:
            self._log.record(self._begun, _LEFT)
        self._begun, self._return = None, 0.0
        return self.env.reset(**given)

    def step(self, action: Any) -> Any:
        """The environment's."""
        if self._log is None:
            self._log = _Log.here()
        if self._begun is None:
            self._begun = self._log.begin()
        given = self.env.step(action)
        self._log.steps += 1
        self._return += float(given[1])
        if given[2] or given[3]:
            self._log.record(self._begun, self._return)
            self._begun, self._return = None, 0.0
        elif self._log.steps % _RECORD_EVERY == 0:
            self._log.record(self._begun, _RUNS)
        return given


def make(task: str, **keywords: Any) -> Any:
    """The recorded environment of a task, as gymnasium makes it; DoorKey as one flat vector."""
    older = int(gym.__version__.split(".")[0]) < 1
    env = Recorded(gym.make(_IDS[task][older], **keywords))
    if task == "doorkey":
        from minigrid.wrappers import FlatObsWrapper

        return FlatObsWrapper(env)
    return env


# For libraries that take the id of an environment: board_episodes:board/TASK-v0.
for _task in _IDS:
    gym.register(
        f"board/{_task}-v0",
        entry_point=make,
        kwargs={"task": _task},
        disable_env_checker=True,
        order_enforce=False,
    )
