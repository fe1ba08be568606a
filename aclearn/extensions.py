"""A user's own classes and functions, named by `module:Name`."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import pkgutil
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from aclearn.errors import AclearnError, ConfigError, did_you_mean, install_hint, words_of

_T = TypeVar("_T")
_ROOT = Path(__file__).parents[1]
#: Beginnings of the names of files that are ours or Python's own.
_NOT_THE_USERS = (
    "<",
    sysconfig.get_path("stdlib"),
    *(str(_ROOT / package) for package in ("correctors", "aclearn", "compress", "services")),
)


def load_extension(name: str, *, key: str, error: type[AclearnError] = ConfigError) -> Any:
    """The object that `module:Name` or `module:Name.attribute` names.

    The folders of `search_modules_in`, then the current one, are searched last, so that they do
    not hide packages.

    Args:
        key: of the configuration, with which a message begins.

    Raises:
        AclearnError: of class `error`: the name has another form, its module cannot be imported, or
            the module lacks it. The message is one line; `__cause__` is the module's own error, if
            any.
    """
    module_name, _, attributes = name.partition(":")
    if not module_name or not all(part.isidentifier() for part in attributes.split(".")):
        raise error(f"{key}: expected module:Name, for instance my_module:MyClass, got {name!r}")
    where = f"{key} {name!r}"
    if module_name.endswith(".py") or "/" in module_name:
        path = Path(module_name)
        raise error(
            f"{where}: expected the name of a module, not a path: {path.stem}:{attributes}; add "
            f'"run.pythonpath=[{path.parent}]" unless that is the current folder'
        )
    found = import_module(module_name, key=where, error=error)
    for part in attributes.split("."):
        if not hasattr(found, part):
            near = did_you_mean(part, dir(found))
            raise error(f"{where}: {module_name} has no {attributes}{near}")
        found = getattr(found, part)
    return found


def make_extension(
    name: str,
    arguments: Mapping[str, Any],
    *,
    key: str,
    expected: type[_T],
    ours: Mapping[str, str] = MappingProxyType({}),
    given: tuple[Any, ...] = (),
) -> _T:
    """The result of one of our classes, or of the user's class or function, for its arguments.

    Args:
        key: of the configuration; a message begins with it and the name.
        given: by position, before the arguments.

    Raises:
        ConfigError: as `load_extension`, it raises, or its result is of another class; one line.
    """
    made_by, where = load_extension(ours.get(name, name), key=key), f"{key} {name!r}"
    try:
        made = made_by(*given, **arguments)
    except Exception as failure:
        if missing := install_hint(failure):
            raise ConfigError(f"{where}: {missing}") from failure
        takes = ""
        with contextlib.suppress(TypeError, ValueError):  # some callables have no signature
            takes = f"; it takes {', '.join(inspect.signature(made_by).parameters) or 'none'}"
        raise ConfigError(f"{where}: {words_of(failure)}{takes}{users_line(failure)}") from failure
    if not isinstance(made, expected):
        raise ConfigError(
            f"{where}: expected an instance of {expected.__module__}.{expected.__name__}, "
            f"got {made!r:.200}"
        )
    return made


def make_extensions(
    entries: Iterable[tuple[str, Mapping[str, Any]]],
    *,
    key: str,
    expected: type[_T],
    ours: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, _T]:
    """The results of several entries of a configuration, by name; a repeated name gets a number."""
    made: dict[str, _T] = {}
    for number, (name, arguments) in enumerate(entries):
        one = make_extension(name, arguments, key=key, expected=expected, ours=ours)
        made[name if name not in made else f"{name} {number}"] = one
    return made


def search_modules_in(folders: Iterable[str]) -> None:
    """Search modules of the user's in these folders too (`run.pythonpath`), from now on."""
    for folder in folders:
        if folder not in sys.path:
            sys.path.append(folder)


def import_module(name: str, *, key: str, error: type[AclearnError] = ConfigError) -> Any:
    """The user's module `name`; arguments and errors as of `load_extension`."""
    search_modules_in([str(Path.cwd())])
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as failure:  # the module is the user's code
        if missing := install_hint(failure):
            raise error(f"{key}: {missing}") from failure
        if isinstance(failure, ModuleNotFoundError) and failure.name == name:
            modules = (module.name for module in pkgutil.iter_modules())
            near = did_you_mean(name, modules, cutoff=0.8) or "."
            hint = (
                f"{near} Is its folder that of the configuration, the current one, or on "
                "PYTHONPATH (run.pythonpath)?"
            )
        else:
            hint = users_line(failure)
        raise error(
            f"{key}: module {name!r} cannot be imported ({words_of(failure)}){hint}"
        ) from failure


def users_line(error: BaseException) -> str:
    """The deepest line of the user's files in the error's traceback: ` [line 2 of x.py, in f]`.

    Empty if there is none.
    """
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        installed = "site-packages" in Path(frame.filename).parts
        if not installed and not frame.filename.startswith(_NOT_THE_USERS):
            return f" [line {frame.lineno} of {frame.filename}, in {frame.name}]"
    return ""
