"""`aclearn new`: a commented configuration, and an environment of one's own to edit."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

from aclearn.config import inline_yaml
from aclearn.config.schema import schema_line, schema_text
from aclearn.runs import check_file, write_file
from aclearn.types import ActionSpec, EnvSpec, ObservationSpec
from services.commands.options import ForceOption
from services.commands.starting_point import Chosen, choose, start_from

_MODULE = "my_env"
_FACTORY = f"{_MODULE}:make"
_SCHEMA = "config.schema.json"

_OWN = '''"""An environment of your own: a point is to be led to a place on a line.

`my_env:make` in config.yaml names the function at the end. `aclearn check-env my_env:make` tests
it after each change.
"""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces


class Reach(gymnasium.Env):
    """Seen are the position and the place to reach; actions are left, stay and right."""

    def __init__(self, steps: int = 40) -> None:
        self.observation_space = spaces.Box(-2.0, 2.0, (2,), np.float32)
        self.action_space = spaces.Discrete(3)
        self._steps = steps

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)  # makes self.np_random; use no other random numbers
        self._position, self._place = self.np_random.uniform(-1.0, 1.0, 2)
        self._taken = 0
        return self._seen(), {}

    def step(self, action):
        self._position = np.clip(self._position + 0.1 * (action - 1), -1.5, 1.5)
        self._taken += 1
        distance = abs(self._position - self._place)
        terminated = bool(distance < 0.05)  # the goal: nothing comes after it
        truncated = self._taken >= self._steps  # the time is up: more could come
        reward = 1.0 if terminated else -0.1 * float(distance)
        return self._seen(), reward, terminated, truncated, {}

    def _seen(self):
        return np.array([self._position, self._place], np.float32)


def make(**kwargs) -> gymnasium.Env:
    """One environment; `kwargs` are env.kwargs of config.yaml."""
    return Reach(**kwargs)
'''
_WRAPPED = '''"""{id} to edit: change what is seen and rewarded here.

`my_env:make` in config.yaml names the function at the end. `aclearn check-env my_env:make` tests
it after each change.
"""

from __future__ import annotations

import gymnasium


class Edited(gymnasium.Wrapper):
    """The environment with your changes; without any it is the original."""

    def reset(self, *, seed=None, options=None):
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, info

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, info


def make(**kwargs) -> gymnasium.Env:
    """One environment; `kwargs` are env.kwargs of config.yaml."""
    return Edited(gymnasium.make("{id}", **kwargs))
'''


def new(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="folder to write to")],
    env: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="environment to begin with, e.g. CartPole-v1; default: a small one"
        ),
    ] = None,
    force: ForceOption = False,
) -> None:
    """Write a commented configuration and an environment of your own to edit."""
    if env is None:
        spec = EnvSpec(ObservationSpec.plain((2,), "float32"), ActionSpec.discrete(3))
        chosen, module = choose(_FACTORY, spec, 0.5), _OWN
    else:
        config, _, chosen = start_from(env)
        env = config.env.id  # an older id of an Atari game has become its present one
        # Atari games are played by the emulator's own loop; a factory is the user's already
        wrapped = not env.startswith("ALE/") and ":" not in env
        module = _WRAPPED.format(id=env) if wrapped else ""
    id_ = _FACTORY if module else str(env)
    files = {"config.yaml": f"{schema_line(_SCHEMA)}\n{config_text(id_, chosen)}"}
    files |= {f"{_MODULE}.py": module} if module else {}
    files[_SCHEMA] = schema_text()
    for name in files:
        check_file(directory / name, "new", force=force)
    for name, text in files.items():
        write_file(directory / name, text.encode(), "new")
    typer.echo(f"wrote {', '.join(str(directory / name) for name in files)}")
    for text in _next(directory, [f"aclearn check-env {id_}", "aclearn train config.yaml"]):
        typer.echo(text)


def _next(directory: Path, commands: list[str]) -> list[str]:
    """The next commands, after a change into the folder unless it is the current one."""
    if not directory.exists() or not directory.samefile(Path.cwd()):
        commands = [f"cd {shlex.quote(str(directory))}", *commands]
    first, *others = commands
    return [f"next: {first}", *(f"      {other}" for other in others)]


def config_text(env_id: str, chosen: Sequence[Chosen]) -> str:
    """The chosen keys as YAML, section by section, each with its reason."""
    entries = [each._replace(value=env_id) if each.key == "env.id" else each for each in chosen]
    lines = [
        f"# {env_id}: chosen by its spaces. Missing keys keep their defaults, which",
        "# docs/configuration.md explains. Change a value for one run:",
        "#     aclearn train config.yaml run.seed=2",
        "",
        "run:",
        "  seed: 1  # of weights, environments and sampling",
    ]
    order = {"run": 0, "env": 1, "policy": 2, "actors": 3, "trainer": 4, "loss": 5}
    entries.sort(key=lambda each: order.get(each.key.partition(".")[0], len(order)))
    for section, group in groupby(entries, key=lambda each: each.key.partition(".")[0]):
        if section != "run":
            lines += ["", *([f"{section}:"] if section != "correctors" else [])]
        for each in group:
            _, dot, key = each.key.partition(".")
            indent = f"  {key}" if dot else each.key
            lines.append(f"{indent}: {inline_yaml(each.value)}  # {each.why}")
    return "\n".join(lines) + "\n"
