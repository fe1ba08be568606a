from __future__ import annotations

import ale_py  # registers the ids
import gymnasium
import pytest

from aclearn.types.atari_ids import current_id
from tests.support.waiting import run_python


@pytest.mark.parametrize(
    "spelt",
    [
        "{}NoFrameskip-v4",
        "{}NoFrameskip-v0",
        "{}Deterministic-v4",
        "{}-v0",
        "{}-v4",
        "{}-v5",
        "ALE/{}-v5",
        "ALE/{}-v4",
        "ale_py:{}NoFrameskip-v4",
        "ale_py:ALE/{}-v5",
    ],
)
def test_an_id_of_older_days_is_that_of_today(spelt):
    for game in ("Pong", "SpaceInvaders", "UpNDown", "TicTacToe3D", "MsPacman"):
        assert current_id(spelt.format(game)) == f"ALE/{game}-v5"


def test_every_id_that_ale_py_registers_has_one_of_today_that_it_registers_too():
    assert ale_py
    specs = {
        known: spec
        for known, spec in gymnasium.registry.items()
        if str(spec.entry_point).startswith("ale_py")
    }
    assert len(specs) > 300
    for known, spec in specs.items():
        assert specs[current_id(known)].kwargs["game"] == spec.kwargs["game"]


def test_what_is_no_atari_game_stays_as_it_is():
    others = [
        known
        for known, spec in gymnasium.registry.items()
        if not str(spec.entry_point).startswith("ale_py")
    ]
    others += ["mine:Pong-v4", "mine:make", "Pongg-v4", "Pong-v1", "pong-v4", "Pong", "ALE/Pong"]
    others += ["MinAtar/Breakout-v0", "Joust-v4", "my.module:PongNoFrameskip-v4", "-v4", ""]
    assert [current_id(env_id) for env_id in others] == others


@pytest.mark.parametrize("env_id", ["Pong-ram-v4", "ALE/Pong-ram-v5", "Pong-ramNoFrameskip-v0"])
def test_the_memory_of_the_console_is_refused_with_the_game_that_shows_its_screen(env_id):
    with pytest.raises(ValueError, match=r"memory.*not supported; ALE/Pong-v5 shows its screen"):
        current_id(env_id)


def test_the_games_are_known_without_the_emulator():
    code = "import sys; from aclearn.types.atari_ids import current_id as i; print(i('Pong-v4'), "
    code += "any(name.startswith(('ale_py', 'gymnasium')) for name in sys.modules))"
    done = run_python("-c", code)
    assert done.stdout == "ALE/Pong-v5 False\n", done.stderr
