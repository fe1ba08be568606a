"""An environment that changes the working directory; tests copy it beside their configuration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gymnasium


class Wandering(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole that goes to a folder whenever it is called."""

    def __init__(self, to: str) -> None:
        os.chdir(to)
        self.to = to
        super().__init__(gymnasium.make("CartPole-v1"))

    def step(self, action: Any) -> Any:
        os.chdir(self.to)
        return self.env.step(action)


def copy_into(folder: Path) -> None:
    """Write this as the module `wandering`."""
    (folder / "wandering.py").write_text(Path(__file__).read_text())
