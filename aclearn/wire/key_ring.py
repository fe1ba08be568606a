"""The keys of a cluster: the list of those that are allowed, and changes to it.

The folder has the list, which the monitor reads, and the key files, which are copied to the
machines of their roles. Each change is atomic: a running monitor sees the list before or after it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pydantic import Field, TypeAdapter, ValidationError

from aclearn.errors import EndpointError
from aclearn.wire.keys import (
    SUFFIX,
    Frozen,
    Half,
    KeyPair,
    Name,
    PublicKey,
    RoleKey,
    WatchedFile,
    load_key,
    new_pair,
    read_private,
    why_invalid,
)
from aclearn.wire.monitor_messages import AllowedKey

LIST_FILE: Final = "allowed.json"
MONITOR: Final = "monitor"
_LOCK_FILE: Final = ".lock"
#: Public halves on the list, at most: the monitor sends all of them in one header of 64 KiB.
MOST_KEYS: Final = 256
#: Revoked halves of one name that are told from unknown ones; the oldest is forgotten first.
_MOST_REVOKED = 8
_LOG = logging.getLogger(__name__)


class Listed(Frozen):
    """A key of the list: what it is for, its public halves, and its bounds.

    Attributes:
        processes, unrolls_per_s: most processes of it in the run, and unrolls a second of all of
            them at one trainer; None for no bound.
    """

    roles: tuple[Name, ...] = Field(min_length=1)
    public: tuple[PublicKey, ...] = ()
    revoked: tuple[Half, ...] = ()
    processes: int | None = Field(default=None, ge=1, le=100_000)
    unrolls_per_s: float | None = Field(default=None, gt=0.0, le=1e6)

    def revoke(self) -> Listed:
        """The key without a valid half."""
        halves = (*self.revoked, *(each.public for each in self.public))
        return self.model_copy(update={"public": (), "revoked": halves[-_MOST_REVOKED:]})


class KeyList(Frozen):
    """All keys by name."""

    keys: dict[Name, Listed]

    def allowed(self, now: float) -> tuple[AllowedKey, ...]:
        """The public halves that hold now, and the revoked ones."""
        return tuple(
            AllowedKey(
                public,
                name,
                list(key.roles),
                revoked,
                key.processes or 0,
                key.unrolls_per_s or 0.0,
            )
            for name, key in self.keys.items()
            for revoked, halves in (
                (False, [each.public for each in key.public if each.holds(now)]),
                (True, key.revoked),
            )
            for public in halves
        )


class WatchedList:
    """The list of a folder, for a monitor: read again when the file changes.

    Raises:
        EndpointError: it cannot be used.
    """

    def __init__(self, directory: Path, wall: Callable[[], float] = time.time) -> None:
        self._file, self._wall = WatchedFile(directory / LIST_FILE), wall
        self._list = load_list(directory)
        self.allowed: tuple[AllowedKey, ...] = self._list.allowed(wall())

    def look(self) -> bool:
        """Whether other keys are allowed than before; it looks at most once a second.

        A half whose time is over is off the list. A list that cannot be used changes nothing.
        """
        if not self._file.due:
            return False
        if self._file.changed():
            try:
                self._list = load_list(self._file.path.parent)
            except EndpointError as error:
                _LOG.error("event=key_list_not_read detail=%r", str(error))
        allowed = self._list.allowed(self._wall())
        changed, self.allowed = allowed != self.allowed, allowed
        return changed


def load_list(directory: Path) -> KeyList:
    """The list of a folder.

    Raises:
        EndpointError: it is missing, damaged, or can be read by other users.
    """
    path = directory / LIST_FILE
    try:
        return KeyList.model_validate_json(read_private(path))
    except ValidationError as exc:
        raise EndpointError(
            f"{path} is no list of keys of aclearn, or damaged ({why_invalid(exc)}); restore it, "
            "or make new keys in another folder"
        ) from None


def create_keys(directory: Path, roles: Sequence[str]) -> list[Path]:
    """Make a key for each kind of role in a folder, which is made if missing; returns their files.

    Raises:
        EndpointError: it has keys already, or cannot be written.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        there = next(folder for folder in (directory, *directory.parents) if folder.exists())
        raise EndpointError(
            f"{there} is a file; expected a folder, in which keys are made"
        ) from None
    except OSError as exc:
        raise EndpointError(f"cannot write keys to {directory}: {exc.strerror}") from exc
    with _lock(directory):
        if (directory / LIST_FILE).exists() or any(directory.glob(f"*{SUFFIX}")):
            try:
                load_list(directory)
            except EndpointError as error:
                raise EndpointError(
                    f"{directory} has keys, but {error}. To make new ones move all files of this "
                    "folder away, or name another one with --dir"
                ) from None
            raise EndpointError(
                f"{directory} has keys already; make new ones with `aclearn keys rotate`"
            )
        pairs = {role: new_pair() for role in (MONITOR, *roles)}
        known = (_public(pairs[MONITOR]),)
        listed = {}
        for role, pair in pairs.items():
            listed[role] = Listed(roles=(role,), public=(_public(pair),))
            _write_key(directory, RoleKey(name=role, roles=(role,), pairs=(pair,), monitor=known))
        _write(directory / LIST_FILE, KeyList(keys=listed))
    return [_file(directory, role) for role in pairs]


def add_key(
    directory: Path,
    name: str,
    roles: Sequence[str],
    *,
    processes: int | None = None,
    unrolls_per_s: float | None = None,
) -> Path:
    """Make a further key, for instance of one host; a revoked name gets a new pair.

    Raises:
        EndpointError: the name is taken or no name, a bound is none, or the list is full.
    """
    with _lock(directory):
        there = load_list(directory)
        before = there.keys.get(name)
        if before is not None and before.public:
            raise EndpointError(
                f"{directory} has a key {name} already; choose another name, or revoke that one"
            )
        pair = new_pair()
        try:
            TypeAdapter(Name).validate_python(name)
            key = Listed(
                roles=tuple(roles),
                public=(_public(pair),),
                revoked=() if before is None else before.revoked,
                processes=processes,
                unrolls_per_s=unrolls_per_s,
            )
        except ValidationError as exc:
            raise EndpointError(f"key {name!r:.50}: {why_invalid(exc)}") from None
        monitor = _monitor_keys(load_key(_file(directory, MONITOR)), time.time())
        _write_list(directory, KeyList(keys={**there.keys, name: key}))
        made = RoleKey(name=name, roles=tuple(roles), pairs=(pair,), monitor=monitor)
        return _write_key(directory, made)


def revoke_key(directory: Path, name: str) -> None:
    """Take a key off the list, and remove its file here.

    Raises:
        EndpointError: there is no such key, it is revoked already, or it is the monitor's.
    """
    with _lock(directory):
        there = load_list(directory)
        key = _named(directory, there, name)
        if MONITOR in key.roles:
            raise EndpointError(
                f"{name} is the key by which roles know the monitor; replace it with "
                f"`aclearn keys rotate {name} --grace 0`, and copy all key files to their machines"
            )
        others = {each: listed for each, listed in there.keys.items() if each != name}
        # last: what is revoked first is forgotten first
        _write_list(directory, KeyList(keys={**others, name: key.revoke()}))
        _file(directory, name).unlink(missing_ok=True)


def rotate_keys(
    directory: Path, names: Sequence[str] = (), *, grace_s: float
) -> tuple[list[Path], list[str]]:
    """Make new pairs for some names, or for all that are not revoked.

    Both pairs of a role are good for `grace_s` seconds, in which its new file is copied to its
    machines. The monitor uses its new pair after them.

    Returns:
        The files that have changed; and the names of the keys that should learn the monitor's new
        one, but whose files are not here.

    Raises:
        EndpointError: there is no such key, or it is revoked.
    """
    with _lock(directory):
        there, now = load_list(directory), time.time()
        chosen = list(names) or [name for name, key in there.keys.items() if key.public]
        until = now + grace_s
        listed, changed, missing = dict(there.keys), list[RoleKey](), list[str]()
        monitor = load_key(_file(directory, MONITOR))
        if MONITOR in chosen:
            old = monitor.pair(now)
            pairs = (old.model_copy(update={"until": until}), new_pair())
            monitor = monitor.model_copy(
                update={"pairs": pairs, "monitor": tuple(map(_public, pairs))}
            )
        known = _monitor_keys(monitor, now)
        for name, key in there.keys.items():
            if name in chosen:
                _named(directory, there, name)
            if name == MONITOR and name in chosen:
                made = monitor
            elif name in chosen:
                made = RoleKey(name=name, roles=key.roles, pairs=(new_pair(),), monitor=known)
            elif key.public and MONITOR in chosen:
                if not _file(directory, name).exists():
                    missing.append(name)
                    continue
                made = load_key(_file(directory, name)).model_copy(update={"monitor": known})
            else:
                continue
            changed.append(made)
            if name in chosen:
                kept = [
                    PublicKey(public=each.public, until=min(until, each.until or until))
                    for each in key.public
                ]
                halves = (*(each for each in kept if each.holds(now)), _public(made.pairs[-1]))
                listed[name] = key.model_copy(update={"public": halves})
        for name in chosen:
            _named(directory, there, name)
        _write_list(directory, KeyList(keys=listed))  # first: the new halves must be allowed
        return [_write_key(directory, key) for key in changed], missing


def _named(directory: Path, there: KeyList, name: str) -> Listed:
    key = there.keys.get(name)
    if key is None:
        raise EndpointError(
            f"{directory} has no key {name!r:.50}; expected one of {', '.join(there.keys)}"
        )
    if not key.public:
        raise EndpointError(
            f"the key {name} is revoked already; `aclearn keys add` makes a new one"
        )
    return key


def _monitor_keys(monitor: RoleKey, now: float) -> tuple[PublicKey, ...]:
    return tuple(_public(pair) for pair in monitor.pairs if pair.holds(now))


def _public(pair: KeyPair) -> PublicKey:
    return PublicKey(public=pair.public, until=pair.until)


def _file(directory: Path, name: str) -> Path:
    return directory / f"{name}{SUFFIX}"


def _write_list(directory: Path, keys: KeyList) -> None:
    over = sum(len(key.public) + len(key.revoked) for key in keys.keys.values()) - MOST_KEYS
    kept, now = dict[str, Listed](), time.time()
    for name, key in keys.keys.items():
        ended = (*key.revoked, *(each.public for each in key.public if not each.holds(now)))
        dropped = ended[: max(0, over)]  # they are refused as unknown ones are
        over -= len(dropped)
        left = {
            "public": tuple(each for each in key.public if each.public not in dropped),
            "revoked": tuple(half for half in key.revoked if half not in dropped),
        }
        if any(left.values()):
            kept[name] = key.model_copy(update=left)
    if over > 0:
        raise EndpointError(
            f"the list of {directory} would have {MOST_KEYS + over} valid keys, at most "
            f"{MOST_KEYS} are possible; let hosts share keys"
        )
    _write(directory / LIST_FILE, KeyList(keys=kept))


def _write_key(directory: Path, key: RoleKey) -> Path:
    path = _file(directory, key.name)
    _write(path, key)
    return path


def _write(path: Path, content: Frozen) -> None:
    """Replace a file by one that only its owner can read."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(content.model_dump_json(indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except OSError as exc:
        raise EndpointError(f"cannot write keys to {path}: {exc.strerror}") from exc


@contextmanager
def _lock(directory: Path) -> Iterator[None]:
    """One change at a time."""
    # of a file: another owner of the folder may hold a lock on the folder itself
    try:
        descriptor = os.open(directory / _LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as exc:
        raise EndpointError(f"cannot read keys from {directory}: {exc.strerror}") from exc
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
