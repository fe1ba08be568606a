"""Past and present ids of Atari games."""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path

_ID = re.compile(
    r"(?:ale_py:)?(?:ALE/)?(?P<game>[A-Z][A-Za-z0-9]*?)(?P<ram>-ram)?"
    r"(?:NoFrameskip|Deterministic)?-v[045]"
)
#: ROMs of games for two players; ale-py gives them no id either.
_FOR_TWO = frozenset({"combat", "joust", "maze_craze", "warlords"})


def current_id(env_id: str) -> str:
    """The present id of an Atari game: PongNoFrameskip-v4 → ALE/Pong-v5.

    Other ids are returned unchanged.

    Raises:
        ValueError: the id is of a game that shows the console's memory instead of its screen.
    """
    found = _ID.fullmatch(env_id)
    if found is None or found["game"] not in _games():
        return env_id
    game = f"ALE/{found['game']}-v5"
    if found["ram"]:
        raise ValueError(
            f"{env_id} shows the console's memory, which is not supported; {game} shows its screen"
        )
    return game


def guessed_id(env_id: str) -> str:
    """The id whose neighbours to suggest: a present one if the game's name is misspelt."""
    found = _ID.fullmatch(env_id)
    return f"ALE/{found['game']}-v5" if found else env_id


@functools.cache
def _games() -> frozenset[str]:
    """Names of the games as in ids: SpaceInvaders."""
    # found, not imported: most readers of a configuration play no game
    package = importlib.util.find_spec("ale_py")
    if package is None or package.origin is None:
        return frozenset()
    roms = (path.stem for path in (Path(package.origin).parent / "roms").glob("*.bin"))
    return frozenset(rom.title().replace("_", "") for rom in roms if rom not in _FOR_TWO)
