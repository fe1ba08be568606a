"""Projects of `aclearn new`, whose modules have the same names in every test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest


@pytest.fixture
def forget() -> Iterator[Callable[[], None]]:
    """Makes this process forget a project's modules and folders, as at the test's begin and end."""
    path = list(sys.path)

    def forget() -> None:
        sys.path[:] = path
        for name in ("my_env", "my_network"):
            sys.modules.pop(name, None)

    forget()
    yield forget
    forget()
