"""Environments that Python code gives: classes and functions, and where they come from."""

from __future__ import annotations

import functools
import sys
import types
from pathlib import Path

import gymnasium
import pytest

import aclearn
from aclearn.errors import AclearnError, ArgumentError
from services.api.environment_names import environment_name
from tests.support import space_envs
from tests.support.waiting import run_python

_SHORT = {"run.deterministic": True, "run.max_updates": 2, "actors.processes": 1}
_ENV = """
import gymnasium
import numpy as np
from gymnasium import spaces


class Line(gymnasium.Env):
    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 5
        return self.observation_space.sample(), {}

    def step(self, action):
        self.left -= 1
        return self.observation_space.sample(), float(action), self.left == 0, False, {}


def make(**kwargs):
    return Line(**kwargs)

"""


def test_a_class_is_named_by_its_module_and_found_in_its_folder() -> None:
    root = Path(__file__).parents[3]
    found = environment_name(space_envs.Gates, alone=False)
    assert found == ("tests.support.space_envs:Gates", {"run.pythonpath": [str(root)]})
    installed, places = environment_name(gymnasium.envs.classic_control.CartPoleEnv, alone=False)
    assert installed == "gymnasium.envs.classic_control.cartpole:CartPoleEnv" and places == {}
    assert environment_name("a:b", alone=False) == ("a:b", {})
    vector = gymnasium.envs.classic_control.cartpole.CartPoleVectorEnv
    assert environment_name(vector, alone=False)[0] == (
        "vector:gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv"
    )


@pytest.mark.parametrize(
    ("env", "said"),
    [
        (lambda: None, r"<locals>\.<lambda>|<lambda> has no name that other processes can import"),
        (functools.partial(space_envs.Gates), "partial .* has no name"),
        (gymnasium.make("CartPole-v1"), "got an environment .* give the class or function"),
        (3, r"expected an id, 'module:name', a class or a function, got an int"),
        (functools.wraps(space_envs.Gates)(lambda: None), "is another object than the given one"),
    ],
)
def test_what_no_other_process_can_import_is_refused_with_what_to_do(env, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        environment_name(env, alone=False)


def test_a_class_of_a_notebook_is_refused_or_trains_in_its_own_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    notebook = types.ModuleType("__main__")  # no file, no spec
    exec(_ENV, vars(notebook))
    monkeypatch.setitem(sys.modules, "__main__", notebook)
    with pytest.raises(ArgumentError, match=r"Line is defined in a notebook .*'my_env:Line'.*run"):
        aclearn.train(env=notebook.Line)
    # as an id, it is refused where the environment is tried
    with pytest.raises(AclearnError, match=r"cannot import Line from the main program"):
        aclearn.train(env="__main__:Line")
    run = aclearn.train(env=notebook.Line, overrides=_SHORT)
    assert run.summary["updates"] == 2 and run.summary["learned_steps"] > 0
    assert "Chosen keys" in capsys.readouterr().out
    env = aclearn.make_env(run)
    assert env.reset()[0].shape == (2,)
    env.close()


@pytest.mark.parametrize("name", ["time", "os", "json"])  # built in, frozen, in a file
def test_a_program_named_as_a_module_of_python_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    program = types.ModuleType("__main__")
    program.__file__ = str(tmp_path / f"{name}.py")
    Path(program.__file__).write_text(_ENV)
    exec(_ENV, vars(program))
    monkeypatch.setitem(sys.modules, "__main__", program)
    said = rf"'{name}', the name of this program, is also the module .*rename {program.__file__}"
    with pytest.raises(ArgumentError, match=said):
        environment_name(program.Line, alone=False)


def test_one_of_config_and_env_is_needed() -> None:
    for given in ({}, {"config": "cartpole", "env": "CartPole-v1"}):
        with pytest.raises(ArgumentError, match="either config or env"):
            aclearn.train(**given)
    with pytest.raises(AclearnError, match=r"config: expected the name of a shipped .* got a dict"):
        aclearn.train({"env": {"id": "CartPole-v1"}})


_PROGRAM = (
    _ENV
    + """
if __name__ == "__main__":
    import aclearn

    settings = {"run.max_updates": 2, "actors.processes": 1, "supervisor.max_restarts": 0}
    run = aclearn.train(env=make, overrides=settings)
    print(run.name, run.config.env.id, run.summary["reason"])
"""
)


def test_a_program_trains_its_own_function(tmp_path: Path) -> None:
    program = tmp_path / "own" / "my_program.py"
    program.parent.mkdir()
    program.write_text(_PROGRAM)
    done = run_python(program, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "my_program-make-1 my_program:make max_updates" in done.stdout, done.stdout
    nameless = program.rename(program.with_name("my-program.py"))
    done = run_python(nameless, cwd=tmp_path)
    assert "'my-program', the name of this program, is no module's name" in done.stderr
