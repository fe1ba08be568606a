"""The folder of a publication, which appears whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from aclearn.errors import ConfigError, RunFolderError, RunFolderTaken
from aclearn.runs import PUBLICATION_FILE, is_publication, write_file
from aclearn.runs.atomic_file import sync_folder

_FORMAT: Final = 1
_OPTION: Final = "--out"


@dataclass(frozen=True)
class Publication:
    """A published folder, which `load` and `open_run` take.

    Attributes:
        files: their paths in the folder.
        missing: a file that a publication may have → why this one does not.
    """

    path: Path
    files: Sequence[str]
    missing: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def new_folder(out: Path, *, force: bool = False) -> Iterator[Path]:
    """A folder beside `out` to fill, which takes its place at the end; removed after an error.

    Args:
        out: absolute; a missing or empty folder, or with `force` another publication.

    Raises:
        RunFolderTaken: `out` exists and may not be replaced.
        ConfigError: it cannot be made.
    """
    out = out.resolve()
    _check_free(out, force)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    except OSError as error:
        raise ConfigError(f"{_OPTION}: {out} cannot be made ({error.strerror})") from error
    try:
        yield new
        files = sorted(str(path.relative_to(new)) for path in new.rglob("*") if path.is_file())
        document = {"format": _FORMAT, "files": [*files, PUBLICATION_FILE]}
        text = json.dumps(document, indent=2) + "\n"
        write_file(new / PUBLICATION_FILE, text.encode(), _OPTION)
        _check_free(out, force)
        _put(new, out)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def files_of(publication: Path) -> list[str]:
    """The files that `aclearn publish` has written, by their paths in the folder.

    Raises:
        RunFolderError: it is no publication, or its list cannot be read.
    """
    path = publication / PUBLICATION_FILE
    try:
        document = json.loads(path.read_bytes())
        if document["format"] != _FORMAT:
            raise ValueError(f"format {document['format']!r:.20}, expected {_FORMAT}")
        return [str(name) for name in document["files"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(
            f"{path} is not the list of a publication's files ({error}); publish into a new folder"
        ) from error


def _check_free(out: Path, force: bool) -> None:
    """Raise `RunFolderTaken` unless `out` is missing, empty or a publication to replace."""
    if not out.exists():
        return
    if out.is_dir() and not any(out.iterdir()):
        return
    if not is_publication(out):
        raise RunFolderTaken(
            f"{_OPTION}: {out} exists and is no publication; name a new folder, or an empty one"
        )
    if not force:
        raise RunFolderTaken(f"{_OPTION}: {out} exists already; --force replaces it")
    known = set(files_of(out))
    there = (str(path.relative_to(out)) for path in out.rglob("*") if not path.is_dir())
    if foreign := sorted(set(there) - known):
        raise RunFolderTaken(
            f"{_OPTION}: {out} has files that no publication wrote, for instance {foreign[0]}; "
            "move them away, or name a new folder"
        )


def _put(new: Path, out: Path) -> None:
    """Give `new` the name `out`; what was there is removed afterwards, or put back on an error."""
    umask = os.umask(0)
    os.umask(umask)
    new.chmod(0o777 & ~umask)  # a temporary folder is its owner's alone
    old = new.with_name(f"{new.name}.old")
    try:
        if out.exists():
            os.replace(out, old)
        try:
            os.replace(new, out)
        except OSError:
            if old.exists():
                os.replace(old, out)
            raise
        sync_folder(out.parent)
    except OSError as error:
        raise ConfigError(f"{_OPTION}: {out} cannot be made ({error.strerror})") from error
    shutil.rmtree(old, ignore_errors=True)
