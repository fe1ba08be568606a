"""The folder of a publication, which appears whole or not at all."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from aclearn.errors import ConfigError, RunFolderError, RunFolderTaken
from aclearn.files import open_to_write
from aclearn.runs import PUBLICATION_FILE, is_publication, write_file
from aclearn.runs.atomic_file import sync_folder

_FORMAT: Final = 2
_OPTION: Final = "--out"
#: In the workplace: its lock, what is written, and what that replaces.
_LOCK, _NEW, _OLD = ".lock", "new", "old"


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
def new_folder(out: Path, *, force: bool = False, discard_edits: bool = False) -> Iterator[Path]:
    """A folder beside `out` to fill, which takes its place at the end; removed after an error.

    A kill leaves `out` as it was or as it will be. Between the two renames, where it has no `out`,
    the next call puts the old one back.

    Args:
        out: absolute; a missing or empty folder, or with `force` another publication.
        discard_edits: replace also files that were edited since they were published.

    Raises:
        RunFolderTaken: `out` exists and may not be replaced, or another process publishes there.
        ConfigError: it cannot be made.
    """
    out = out.resolve()
    with _workplace(out) as place:
        _check_free(out, force, discard_edits)
        new = place / _NEW
        yield new
        files = sorted(path for path in new.rglob("*") if path.is_file())
        digests = {str(path.relative_to(new)): _digest(path) for path in files}
        text = json.dumps({"format": _FORMAT, "files": digests}, indent=2) + "\n"
        write_file(new / PUBLICATION_FILE, text.encode(), _OPTION)
        _check_free(out, force, discard_edits)
        try:
            if out.exists():
                os.replace(out, place / _OLD)
            os.replace(new, out)
            sync_folder(out.parent)
        except OSError as error:
            raise _cannot_be_made(out, error) from error


def files_of(publication: Path) -> list[str]:
    """The files that `aclearn publish` has written, by their paths in the folder.

    Raises:
        RunFolderError: it is no publication, or its list cannot be read.
    """
    return [*_digests_of(publication), PUBLICATION_FILE]


def _digests_of(publication: Path) -> dict[str, str]:
    """Path of each file in the folder → digest of what was published; raises as `files_of`."""
    path = publication / PUBLICATION_FILE
    try:
        document = json.loads(path.read_bytes())
        if document["format"] != _FORMAT:
            raise ValueError(f"format {document['format']!r:.20}, expected {_FORMAT}")
        return {str(name): str(digest) for name, digest in document["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunFolderError(
            f"{path} is not the list of a publication's files ({error}); publish into a new folder"
        ) from error


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_free(out: Path, force: bool, discard_edits: bool) -> None:
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
    known = _digests_of(out)
    there = {
        str(path.relative_to(out))
        for path in out.rglob("*")
        if path.is_symlink() or not path.is_dir()
    }
    if foreign := sorted(there - known.keys() - {PUBLICATION_FILE}):
        raise RunFolderTaken(
            f"{_OPTION}: {out} has files that no publication wrote, for instance {foreign[0]}; "
            "move them away, or name a new folder"
        )
    edited = sorted(name for name in known.keys() & there if _digest(out / name) != known[name])
    if edited and not discard_edits:
        raise RunFolderTaken(
            f"{_OPTION}: files in {out} were edited since they were published: "
            f"{', '.join(edited)}; copy them elsewhere, or replace them too with --discard-edits"
        )


@contextmanager
def _workplace(out: Path) -> Iterator[Path]:
    """A hidden folder beside `out` for one process, in which the folder `_NEW` is empty.

    What a killed process has left there is mended first.
    """
    place = out.with_name(f".{out.name}.publishing")
    try:
        place.mkdir(parents=True, exist_ok=True)
        lock = open_to_write(place / _LOCK, 0)
    except OSError as error:
        raise _cannot_be_made(out, error) from error
    try:
        _hold(lock, out)
        _mend(place, out)
        try:
            try:
                (place / _NEW).mkdir()
            except OSError as error:
                raise _cannot_be_made(out, error) from error
            yield place
        finally:
            _mend(place, out)
            with suppress(OSError):  # another process may want the same place
                (place / _LOCK).unlink()
                place.rmdir()
    finally:
        os.close(lock)


def _hold(lock: int, out: Path) -> None:
    """Lock the open file of a workplace; the kernel releases it at the end of the process."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        taken = os.fstat(lock).st_nlink == 0  # its holder has just removed it
    except BlockingIOError:
        taken = True
    except OSError as error:
        raise _cannot_be_made(out, error) from error
    if taken:
        raise RunFolderTaken(f"{_OPTION}: another process publishes to {out}; wait for its end")


def _mend(place: Path, out: Path) -> None:
    """Put back what was to be replaced, unless a publication has; remove what is left over."""
    old = place / _OLD
    try:
        if old.is_dir() and not is_publication(out):
            os.replace(old, out)  # also in place of an empty folder
    except OSError as error:
        raise ConfigError(
            f"{_OPTION}: {out} is in {old} and cannot be put back ({error.strerror}); move it"
        ) from error
    for each in (place / _NEW, old):
        shutil.rmtree(each, ignore_errors=True)


def _cannot_be_made(out: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{_OPTION}: {out} cannot be made ({error.strerror})")
