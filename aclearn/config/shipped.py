"""The shipped configurations, e.g. `pong` and `accerl/int8`."""

from __future__ import annotations

import re
from pathlib import Path

from aclearn.errors import ConfigError, did_you_mean, kind_of

# in a checkout a link to configs/; a wheel holds the files
_FOLDER = Path(__file__).parents[1] / "configs"


def shipped_configs() -> dict[str, Path]:
    """Name → file of each shipped configuration; those in folders come last."""
    paths = [*sorted(_FOLDER.glob("*.yaml")), *sorted(_FOLDER.glob("*/*.yaml"))]
    return {_name(path.relative_to(_FOLDER)): path for path in paths}


def shipped_name(path: Path) -> str | None:
    """The name of a shipped configuration by its file; None for any other file."""
    inside = path.resolve().is_relative_to(_FOLDER.resolve())
    return _name(path.resolve().relative_to(_FOLDER.resolve())) if inside else None


def _name(relative: Path) -> str:
    return relative.with_suffix("").as_posix()


def shipped_config(name: str) -> Path:
    """The file of a shipped configuration.

    Raises:
        ConfigError: there is none of this name.
    """
    shipped = shipped_configs()
    if name in shipped:
        return shipped[name]
    if Path(name, "config.yaml").is_file():
        raise ConfigError(f"{name}: a folder of this name is given by a path: ./{name}")
    raise ConfigError(
        f"{name}: no configuration comes with aclearn under this name"
        f"{did_you_mean(name, shipped) or '.'} `aclearn configs` lists all names; a file of your "
        f"own is named by a path or with its suffix (./{name}, {name}.yaml){environment_hint(name)}"
    )


def shipped_with_loss(kind: str) -> list[str]:
    """The names of the shipped configurations that set this `loss.kind` themselves."""
    written = re.compile(rf"^loss:(\n  .*)*\n  kind: {re.escape(kind)}\b", re.MULTILINE)
    configs = shipped_configs().items()
    return [name for name, path in configs if written.search(path.read_text(encoding="utf-8"))]


def environment_hint(name: str) -> str:
    """The end of a message, if what should name a configuration looks like an environment."""
    named = re.fullmatch(r"([\w.-]+:)?([\w-]+/)?[\w-]+-v\d+|[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", name)
    return f". To train on an environment, without a file: --env {name}" if named else ""


def find_config(named: str | Path) -> Path:
    """The configuration file for a user's argument.

    A text without a suffix and without a folder, or with one of the shipped folders, as in
    accerl/int8, is the name of a shipped configuration, whatever the current folder has. Everything
    else is a path.

    Raises:
        ConfigError: no configuration of that name is shipped.
    """
    if not isinstance(named, str | Path):
        raise ConfigError(
            "config: expected the name of a shipped configuration, a path or, in Python, a Config, "
            f"got {kind_of(named)}"
        )
    if isinstance(named, str) and not Path(named).suffix:
        folder, slash, _ = named.rpartition("/")
        if not slash or folder in {name.rpartition("/")[0] for name in shipped_configs()} - {""}:
            return shipped_config(named)
    return Path(named)


def summary_of(path: Path) -> str:
    """The first sentence of a configuration's first comment, without its full stop."""
    comment: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        comment.append(line.removeprefix("#").strip())
    return re.split(r"(?<!et al)\.(?: |$)", " ".join(comment))[0]
