"""The folder of the manifests: one object a file, and nothing of others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from aclearn.errors import ConfigError
from services.schedulers.pods import Object

_MARK = "# Made by `aclearn manifests`, which replaces it.\n"
_OPTION = "--out"


def check_folder(folder: Path) -> list[Path]:
    """The manifests that are in a folder now.

    Raises:
        ConfigError: it has something else in it, or is no folder.
    """
    if not folder.exists():
        return []
    if not folder.is_dir():
        raise ConfigError(f"{_OPTION}: {folder} is a file; expected a folder")
    found = sorted(folder.iterdir())
    for path in found:
        if not _is_ours(path):
            raise ConfigError(
                f"{_OPTION}: {path} was not made by `aclearn manifests`, which replaces the whole "
                "folder; name a new or empty one"
            )
    return found


def write_folder(folder: Path, objects: Mapping[str, Object]) -> None:
    """Write one file an object, for its owner only if it is a Secret; remove older manifests.

    Raises:
        ConfigError: it has something else in it, or cannot be written.
    """
    old = check_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # the older ones stay until all of these are written
        with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as aside:
            for name, each in objects.items():
                text = _MARK + yaml.safe_dump(each, sort_keys=False, width=1000)
                mode = 0o600 if each["kind"] == "Secret" else 0o666
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
                with os.fdopen(os.open(Path(aside, f"{name}.yaml"), flags, mode), "w") as file:
                    file.write(text)
            for name in objects:
                os.replace(Path(aside, f"{name}.yaml"), folder / f"{name}.yaml")
        for path in old:
            if path.stem not in objects:
                path.unlink()
    except OSError as exc:
        raise ConfigError(f"{_OPTION}: {folder} cannot be written ({exc.strerror})") from exc


def _is_ours(path: Path) -> bool:
    if path.suffix != ".yaml" or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_MARK)) == _MARK.encode()
