"""CleanRL on the board: its own file, unchanged, with its published settings; run with its Python.

    BOARD_EPISODES=FILE python board_cleanrl.py cartpole --seed 1 --sources DIR

Each algorithm of CleanRL is one file. None is copied into this repository: DIR gets them at a
pinned commit, and every file must have the digest written here. `board_measure.py` judges the
training by the episodes of its environments and ends it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import urllib.request
from pathlib import Path
from typing import Final

COMMIT: Final = "fe8d8a03c41a7ef5b523e2e354bd01c363e786bb"
_URL: Final = f"https://raw.githubusercontent.com/vwxyzjn/cleanrl/{COMMIT}/"
#: File → SHA-256.
FILES: Final = {
    "cleanrl/ppo.py": "d8dfbb7ac0b21e747b77d6e6673e566db4d6cdacc83bcebcd19cf87ad0e459ae",
    "cleanrl/ppo_atari.py": "5fa8e1a1b609a6a5cc69ec7a4cddb957101f175e056a20471c7ac403182155b9",
    "cleanrl/ppo_continuous_action.py": (
        "326dd8678bf9cc51abec833eb551ef2409a3804d604b689e1f0a084eca41f655"
    ),
    "cleanrl_utils/atari_wrappers.py": (
        "7fbb7a5d6b9c020c99b6e1037f502657bbba4973f1e9c70c9629f66110c81f2d"
    ),
}
#: Task → its script, whose defaults are the published settings.
SCRIPTS: Final = {
    "cartpole": "ppo",
    "acrobot": "ppo",
    "pendulum": "ppo_continuous_action",
    "lunarlander": "ppo",
    "doorkey": "ppo",
    "halfcheetah": "ppo_continuous_action",
    "breakout": "ppo_atari",
    "pong": "ppo_atari",
}


def download(folder: Path) -> None:
    """Fetch what is not there.

    Raises:
        SystemExit: a file cannot be fetched, or is not the one of that commit.
    """
    for name, digest in FILES.items():
        path = folder / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with urllib.request.urlopen(_URL + name, timeout=60) as answer:
                    path.write_bytes(answer.read())
            except OSError as error:
                raise SystemExit(
                    f"{_URL + name}: {error}; or check out that commit and give it as --sources"
                ) from error
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != digest:
            raise SystemExit(f"{path} has the SHA-256 {found}, expected {digest}; delete it")


def main() -> None:
    """Become the script of the task."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=SCRIPTS)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--sources", type=Path, required=True)
    options = parser.parse_args()
    download(options.sources)
    script = options.sources.resolve() / f"cleanrl/{SCRIPTS[options.task]}.py"
    here = Path(__file__).resolve().parent
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, (here, options.sources.resolve())))
    given = [f"--env-id=board_episodes:board/{options.task}-v0", f"--seed={options.seed}"]
    os.execv(sys.executable, [sys.executable, str(script), *given, "--no-cuda"])


if __name__ == "__main__":
    main()
