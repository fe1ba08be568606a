"""Files that are written completely or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from aclearn.errors import ConfigError
from aclearn.files import open_to_write

TEMPORARY_SUFFIX: Final = ".tmp"


def write_atomically(path: Path, data: bytes | memoryview) -> None:
    """Write `data` to `path` durably: temporary file, fsync, rename, fsync of the folder.

    On failure the old file stays; a process killed meanwhile may leave `<name>.tmp`.

    Raises:
        OSError: the disk is full, the folder is missing, …
    """
    temporary = write_aside(path, data)
    try:
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_private(path: Path, data: bytes) -> None:
    """`write_atomically`, for a file that only this user may read (mode 600)."""
    temporary = temporary_of(path)
    temporary.unlink(missing_ok=True)  # an older one may have another mode
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(temporary, flags, 0o600)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    sync_folder(path.parent)


def write_aside(path: Path, data: bytes | memoryview) -> Path:
    """Write `data` durably to `temporary_of(path)`, which is returned; `path` stays.

    Raises:
        OSError: as of `write_atomically`; nothing is left then.
    """
    temporary = temporary_of(path)
    descriptor = open_to_write(temporary, os.O_TRUNC)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    return temporary


def temporary_of(path: Path) -> Path:
    """The file in which the content of `path` waits for its renaming."""
    return path.with_name(path.name + TEMPORARY_SUFFIX)


def check_file(path: Path, option: str, *, force: bool = False) -> None:
    """Check in advance that `write_file` can write a user's file to `path`.

    Raises:
        ConfigError: it cannot be written, or exists.
    """
    if path.is_dir():
        raise ConfigError(f"{option}: {path} is a folder; expected the name of a file")
    if os.path.lexists(path) and not path.is_file():
        raise ConfigError(f"{option}: {path} is a device or a broken link; expected a file's name")
    if (aside := temporary_of(path)).exists():
        raise ConfigError(
            f"{option}: {aside} exists, in which {path.name} is written first; remove or rename it"
        )
    if path.is_file() and not force:
        raise ConfigError(f"{option}: {path} exists already; --force replaces it")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir():
        raise ConfigError(f"{option}: {path} cannot be written, since {folder} is not a folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"{option}: {path} cannot be written; {folder} may only be read")


def write_file(path: Path, data: bytes, option: str) -> None:
    """Write a user's file that `check_file` has accepted, and make its folder.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
    except OSError as exc:
        raise ConfigError(f"{option}: {path} cannot be written ({exc.strerror})") from exc


def why_not_written(error: Exception, place: Path) -> str:
    """The reason of an `OSError`, or of its consequence: "No space left on device (/data/r)"."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return f"{cause.strerror} ({place})" if isinstance(cause, OSError) else str(error)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write every byte: a single `os.write` may stop early on a full disk.

    Raises:
        OSError: not everything could be written.
    """
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync_folder(folder: Path) -> None:
    """Make renames and removals in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
