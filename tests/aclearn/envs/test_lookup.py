from __future__ import annotations

import logging

import gymnasium
import pytest

from aclearn.config import EnvConfig
from aclearn.envs import read_spec
from aclearn.envs.lookup import maker
from aclearn.errors import EnvironmentFailure


class Room(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, doors=1):
        self.doors = doors


class House:
    make = Room
    floors = 3


def make_pong(**kwargs):
    import ale_py  # noqa: F401  # registers it

    return gymnasium.wrappers.GrayscaleObservation(gymnasium.make("ALE/Pong-v5", **kwargs))


def make_nothing():
    return "a room"


@pytest.mark.parametrize(
    ("env_id", "said"),
    [
        ("CartPol-v1", "did you mean CartPole-v1"),
        ("cartpole-v1", "did you mean CartPole-v1"),
        ("CartPole", "did you mean CartPole-v1"),
        ("CartPole-v99", "did you mean CartPole-v1"),
        ("PonggNoFrameskip-v4", "did you mean ALE/Pong-v5"),
        ("ale_py:Breakoutt-v4", "did you mean ALE/Breakout-v5"),
        ("pong-v4", "did you mean ALE/Pong-v5"),
        ("not an id", "gymnasium knows no such environment"),
        ("ALE/Pongg-v5", "did you mean ALE/Pong-v5"),
        ("ALE/SpaceInvader-v5", "did you mean ALE/SpaceInvaders-v5"),
        ("ALE/space_invaders-v5", "ALE/SpaceInvaders-v5"),
        ("no_such_module:make", "'no_such_module' cannot be imported.*PYTHONPATH"),
        ("no_such_module:Env-v0", "'no_such_module' cannot be imported"),
        (f"{__name__}:Rooom", "no Rooom; did you mean Room"),
        (f"{__name__}:House.mak", "no House.mak; did you mean make"),
        (f"{__name__}:House.floors", "is a int, expected a callable"),
        (f"{__name__}:make_nothing", "returned a str of builtins, expected a gymnasium.Env"),
    ],
)
def test_an_id_that_names_nothing_is_explained(env_id, said):
    with pytest.raises(EnvironmentFailure, match=f"(?s){env_id}.*{said}"):
        read_spec(EnvConfig(id=env_id))


def test_a_factory_is_called_with_the_keyword_arguments():
    assert maker(EnvConfig(id=f"{__name__}:Room", kwargs={"doors": 4}))().doors == 4
    assert maker(EnvConfig(id=f"{__name__}:House.make"))().doors == 1


def test_a_keyword_argument_that_a_factory_does_not_know_is_told():
    with pytest.raises(EnvironmentFailure, match=r"(?s)cannot be made.*'windows'"):
        read_spec(EnvConfig(id=f"{__name__}:Room", kwargs={"windows": 1}))


def test_a_module_in_front_of_an_id_is_imported_and_gymnasium_makes_the_rest():
    made = maker(EnvConfig(id="gymnasium.envs.classic_control:CartPole-v1"))()
    assert made.spec.id == "CartPole-v1"
    made.close()


def test_the_time_limit_stays_and_the_checking_wrappers_go():
    made = maker(EnvConfig(id="CartPole-v1"))()
    assert isinstance(made, gymnasium.wrappers.TimeLimit)
    assert made.env is made.unwrapped
    made.close()
    # the registry itself is unchanged
    assert gymnasium.spec("CartPole-v1").order_enforce


def test_an_atari_game_that_env_atari_does_not_prepare_is_told_in_one_line(caplog):
    with caplog.at_level(logging.WARNING):
        spec = read_spec(EnvConfig(id=f"{__name__}:make_pong"))
        read_spec(EnvConfig(id="PongNoFrameskip-v4"))
        read_spec(EnvConfig(id="CartPole-v1"))
    assert caplog.messages == [spec.warning]
    for word in ("make_pong", "ALE/Pong-v5", "(1, 210, 160)", "env.atari"):
        assert word in spec.warning
    assert "\n" not in spec.warning


@pytest.mark.parametrize("env_id", ["leaving:make", "leaving:Room-v0"])
def test_a_module_that_exits_while_it_is_imported_is_told(tmp_path, monkeypatch, env_id):
    (tmp_path / "leaving.py").write_text("import sys; sys.exit()")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(EnvironmentFailure, match=r"'leaving' cannot be imported \(SystemExit"):
        maker(EnvConfig(id=env_id))
