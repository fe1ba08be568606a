"""Modules that `aclearn[finance]` installs, imported when they are needed."""

from __future__ import annotations

import importlib
from typing import Any

from aclearn.errors import MarketError


def finance(module: str) -> Any:
    """A module of the extra.

    Raises:
        MarketError: it is not installed; says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MarketError(
            f"{error.name} is not installed; pip install 'aclearn[finance]'"
        ) from error
