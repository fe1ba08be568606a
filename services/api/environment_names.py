"""An environment that Python code gives, as a name that other processes can import."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import gymnasium
import gymnasium.vector

from aclearn.errors import ArgumentError, kind_of

_MAIN: Final = "__main__"
#: Folders of installed packages, which every process searches.
_INSTALLED: Final = ("site-packages", "dist-packages")
_CURE: Final = (
    "write it into a file, e.g. my_env.py, and give env='my_env:{name}'; or train in this process "
    "alone, which is slower: {{'run.deterministic': True}}"
)


def environment_name(
    env: str | Callable[..., Any], *, alone: bool
) -> tuple[str, dict[str, list[str]]]:
    """`env.id` for an environment, and overrides with which other processes find its module.

    Args:
        env: an id, `module:name`, or a class or function that makes one environment; a class of
            `gymnasium.vector.VectorEnv` makes a group.
        alone: whether the whole run is in this process (`run.deterministic`), so that a class of a
            notebook works.

    Raises:
        ArgumentError: it has no name that the processes of the run can import; says what to do.
    """
    if isinstance(env, str):
        return env, {}
    if not callable(env) or isinstance(env, gymnasium.Env):
        raise ArgumentError(
            f"env: expected an id, 'module:name', a class or a function, got {_kind(env)}; each "
            "process makes environments of its own, so give the class or function that makes one"
        )
    name, module = getattr(env, "__qualname__", ""), getattr(env, "__module__", "")
    if not all(part.isidentifier() for part in name.split(".")) or not module:
        raise ArgumentError(
            f"env: {name or _kind(env)} has no name that other processes can import; give a class "
            "or a function at the top of a file, and its arguments as env.kwargs"
        )
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not env:
        raise ArgumentError(
            f"env: {module}.{name} is another object than the given one, which other processes "
            "therefore cannot import; give it a name of its own at the top of its file"
        )
    is_vector = isinstance(env, type) and issubclass(env, gymnasium.vector.VectorEnv)
    prefix = "vector:" if is_vector else ""
    if module == _MAIN:
        id_, overrides = _of_main(name, alone=alone)
        return f"{prefix}{id_}", overrides
    return f"{prefix}{module}:{name}", _folder_of(module)


def _of_main(name: str, *, alone: bool) -> tuple[str, dict[str, list[str]]]:
    """The name of an object of this program: its file is a module, without `__main__`'s guard."""
    main = sys.modules[_MAIN]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None and spec.name != _MAIN:  # python -m package.module
        return f"{spec.name}:{name}", {}
    if alone:
        return f"{_MAIN}:{name}", {}
    if file is None or not Path(file).is_file():
        raise ArgumentError(
            f"env: {name} is defined in a notebook or an interactive session, which other "
            f"processes cannot import; {_CURE.format(name=name)}"
        )
    path = Path(file).absolute()
    there = importlib.util.find_spec(path.stem) if path.stem.isidentifier() else None
    origin = there.origin if there is not None and there.has_location else None
    if origin is None or not Path(origin).exists() or not path.samefile(origin):
        is_also = f"is also the module {origin or 'of that name of Python'}"
        place = is_also if there else "is no module's name"
        raise ArgumentError(
            f"env: {path.stem!r}, the name of this program, {place}, so other processes cannot "
            f"import {name} from it; rename {path}, or {_CURE.format(name=name)}"
        )
    return f"{path.stem}:{name}", {"run.pythonpath": [str(path.parent)]}


def _folder_of(module: str) -> dict[str, list[str]]:
    """The folder from which this process imported a module of the user's."""
    file = getattr(sys.modules[module], "__file__", None)
    if file is None:
        return {}
    path, depth = Path(file).absolute(), module.count(".")
    folder = path.parents[depth + 1 if path.name == "__init__.py" else depth]
    return {} if folder.name in _INSTALLED else {"run.pythonpath": [str(folder)]}


def _kind(env: object) -> str:
    article = "an environment" if isinstance(env, gymnasium.Env) else kind_of(env)
    return f"{article} ({env!r:.100})"
