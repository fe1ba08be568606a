from __future__ import annotations

import logging
import sys

import gymnasium
import pytest

from aclearn.config import EnvConfig
from aclearn.envs import make_vector_env, read_spec
from aclearn.envs.lookup import maker
from aclearn.errors import EnvironmentFailure


class Room(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, doors=1):
        self.doors = doors


class Digs(Room):
    def __init__(self, walls):
        self.walls = walls
        walls[0].pop()


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
        ("cartpole-v1", "did you mean CartPole-v1"),
        ("CartPole-v99", "did you mean CartPole-v1"),
        ("PonggNoFrameskip-v4", "did you mean ALE/Pong-v5"),
        ("ale_py:Breakoutt-v4", "did you mean ALE/Breakout-v5"),
        ("ALE/SpaceInvader-v5", "did you mean ALE/SpaceInvaders-v5"),
        ("not an id", "gymnasium knows no such environment"),
        ("no_such_module:make", "'no_such_module' cannot be imported.*PYTHONPATH"),
        ("no_such_module:Env-v0", "'no_such_module' cannot be imported"),
        (f"{__name__}:House.mak", "no House.mak; did you mean make"),
        (f"{__name__}:House.floors", "is an int, expected a callable"),
        (f"{__name__}:make_nothing", "returned a str of builtins, expected a gymnasium.Env"),
    ],
)
def test_an_id_that_names_nothing_is_explained(env_id, said):
    with pytest.raises(EnvironmentFailure, match=f"(?s){env_id}.*{said}"):
        read_spec(EnvConfig(id=env_id))


def test_a_factory_is_called_with_the_keyword_arguments_that_it_knows():
    assert maker(EnvConfig(id=f"{__name__}:Room", kwargs={"doors": 4}))().doors == 4
    assert maker(EnvConfig(id=f"{__name__}:House.make"))().doors == 1
    with pytest.raises(EnvironmentFailure, match=r"(?s)cannot be made.*'windows'"):
        read_spec(EnvConfig(id=f"{__name__}:Room", kwargs={"windows": 1}))


def test_environments_share_no_argument():
    made = maker(config := EnvConfig(id=f"{__name__}:Digs", kwargs={"walls": [[1, 2]]}))
    assert [made().walls for _ in range(3)] == [[[1]]] * 3
    assert config.kwargs == {"walls": [[1, 2]]}


def test_a_module_in_front_of_an_id_is_imported_and_gymnasium_makes_the_rest():
    made = maker(EnvConfig(id="gymnasium.envs.classic_control:CartPole-v1"))()
    assert made.spec.id == "CartPole-v1"
    # the time limit stays and the checking wrappers go
    assert isinstance(made, gymnasium.wrappers.TimeLimit)
    assert made.env is made.unwrapped
    made.close()
    # the registry itself is unchanged
    assert gymnasium.spec("CartPole-v1").order_enforce


def make_two_agents():
    import pettingzoo

    return pettingzoo


@pytest.mark.parametrize(
    ("env_id", "module", "extra"),
    [
        ("LunarLander-v3", "Box2D", "box2d"),
        ("gymnasium.envs.classic_control:BipedalWalker-v3", "Box2D", "box2d"),
        ("HalfCheetah-v5", "mujoco", "mujoco"),
        ("minigrid:MiniGrid-DoorKey-5x5-v0", "minigrid", "minigrid"),
        ("pettingzoo.butterfly:make", "pettingzoo", "pettingzoo"),
        (f"{__name__}:make_two_agents", "pettingzoo", "pettingzoo"),
    ],
)
def test_a_missing_package_is_told_with_the_extra_that_installs_it(
    monkeypatch, env_id, module, extra
):
    # Given a hidden package, whatever was imported before
    dependants = ("gymnasium.envs.box2d", "gymnasium.envs.mujoco", module)
    for name in [name for name in sys.modules if name.startswith(dependants)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    said = f"env.id '{env_id}': {module} is not installed; pip install 'aclearn[{extra}]'"
    with pytest.raises(EnvironmentFailure) as refused:
        read_spec(EnvConfig(id=env_id))
    assert str(refused.value) == said


def test_an_id_of_minigrid_needs_its_module_in_front():
    with pytest.raises(EnvironmentFailure, match=r"write minigrid:MiniGrid-.*aclearn\[minigrid\]"):
        read_spec(EnvConfig(id="MiniGrid-DoorKey-5x5-v0"))
    made = maker(EnvConfig(id="minigrid:MiniGrid-DoorKey-5x5-v0"))()
    assert made.spec.id == "MiniGrid-DoorKey-5x5-v0"
    made.close()


@pytest.mark.parametrize(
    ("env_id", "module"), [("LunarLander-v3", "Box2D"), ("HalfCheetah-v5", "mujoco")]
)
def test_environments_of_an_extra_are_made_and_reset(env_id, module):
    pytest.importorskip(module)
    group = make_vector_env(
        EnvConfig(id=env_id), num_envs=1, seed=0, step_timeout_s=60, max_faults=0
    )
    assert group.reset()["observation"].shape[0] == 1
    group.close()


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
