"""Errors as the command line tells them: their message, without the calls inside aclearn."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from aclearn.errors import AclearnError, ArgumentError, kind_of

_P = ParamSpec("_P")
_T = TypeVar("_T")
_OPTION = re.compile(
    r"--(?:(resume|overwrite|force|greedy|discard-edits)|(to|out|licence|chain|passes|env|seeds|on|best|at-once|at(?!-)))\b"
)


def plain_errors(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """`function`, whose `AclearnError`s begin at the caller's line and name Python's arguments."""

    @functools.wraps(function)
    def told(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except AclearnError as error:
            error.args = tuple(_in_python(each) for each in error.args)
            raise error.with_traceback(None) from None

    return told


def _in_python(text: object) -> object:
    """Options of the command line as the arguments of the same name."""

    def argument(option: re.Match[str]) -> str:
        return f"{option[1]}=True".replace("-", "_") if option[1] else option[2].replace("-", "_")

    return _OPTION.sub(argument, text) if isinstance(text, str) else text


def at_least(name: str, value: Any, least: int) -> int:
    """The argument as an int; `ArgumentError` unless it is a whole number of at least `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentError(f"{name}: expected a whole number, got {value!r:.100}") from None
    if number < least:
        raise ArgumentError(f"{name}: expected {least} or more, got {number}")
    return number


def as_path(name: str, value: Any) -> Path:
    """The argument as a path; `ArgumentError` if it is none."""
    if not isinstance(value, str | Path):
        raise ArgumentError(f"{name}: expected a path, got {kind_of(value)}")
    return Path(value)
