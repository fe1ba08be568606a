"""Errors as the command line tells them: their message, without the calls inside aclearn."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from aclearn.errors import AclearnError, ArgumentError

_P = ParamSpec("_P")
_T = TypeVar("_T")


def plain_errors(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """`function`, whose `AclearnError`s begin their traceback at the caller's line."""

    @functools.wraps(function)
    def told(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except AclearnError as error:
            raise error.with_traceback(None) from None

    return told


def at_least(name: str, value: int, least: int) -> None:
    """Raise an `ArgumentError` if an argument is below its least value."""
    if value < least:
        raise ArgumentError(f"{name}: expected {least} or more, got {value}")
