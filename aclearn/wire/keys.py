"""Key files: the CURVE keys of one kind of role or of one host, readable by its owner only.

Only tcp needs keys: file permissions protect an ipc socket. A key has a name, and says for which
kinds of role it is. It knows the monitor's public key. All other servers make a pair of their own
at each start, whose public half the monitor tells the roles.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import zmq
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from aclearn.errors import EndpointError

SUFFIX = ".key"
#: Longest name of a key.
MOST_NAME = 32
_LOG = logging.getLogger(__name__)
_LOOK_EVERY_S = 1.0
_MOST_BYTES = 64 * 1024
_KEY_CHARACTERS = 40

#: Half of a CURVE pair, in Z85.
Half = Annotated[
    str, Field(min_length=_KEY_CHARACTERS, max_length=_KEY_CHARACTERS, pattern=r"^[!-~]+$")
]
#: Name of a key.
Name = Annotated[str, Field(max_length=MOST_NAME, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]


class Frozen(BaseModel):
    """Base of what key files have."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PublicKey(Frozen):
    """A public half; valid for ever, or until a time in seconds since 1970."""

    public: Half
    until: float | None = None

    def holds(self, now: float) -> bool:
        """Whether it is still valid."""
        return self.until is None or now < self.until


class KeyPair(PublicKey):
    """A CURVE pair; repr hides the secret half."""

    secret: Half = Field(repr=False)

    @model_validator(mode="after")
    def _belong_together(self) -> KeyPair:
        try:
            made = zmq.curve_public(self.secret.encode()).decode()
        except (zmq.ZMQError, ValueError, KeyError):
            made = ""
        if made != self.public:
            raise ValueError("its halves are not a key pair")
        return self


def new_pair() -> KeyPair:
    """A new CURVE pair."""
    public, secret = zmq.curve_keypair()
    return KeyPair(public=public.decode(), secret=secret.decode())


class RoleKey(Frozen):
    """A key: its name, kinds of role, pairs in the order of their use, and the monitor's keys.

    Of several pairs or keys of the monitor the first one that still holds is used.
    """

    name: Name
    roles: tuple[Name, ...] = Field(min_length=1)
    pairs: tuple[KeyPair, ...] = Field(min_length=1)
    monitor: tuple[PublicKey, ...] = Field(min_length=1)

    def pair(self, now: float) -> KeyPair:
        """The pair to use now."""
        return next((pair for pair in self.pairs if pair.holds(now)), self.pairs[-1])

    def monitor_key(self, now: float) -> str:
        """The public key that the monitor proves now."""
        return next((key for key in self.monitor if key.holds(now)), self.monitor[-1]).public


def key_path(directory: Path, role: str) -> Path:
    """The key file of a kind of role: that of its name, or the only one which is for it.

    Raises:
        EndpointError: there is none, or several.
    """
    named = directory / f"{role}{SUFFIX}"
    if named.exists():
        return named
    try:
        found = sorted(path for path in directory.iterdir() if path.suffix == SUFFIX)
    except OSError as exc:
        raise EndpointError(f"cannot read keys from {directory}: {exc.strerror}; {_HOW}") from exc
    fitting = [path for path in found if role in load_key(path).roles]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = ", ".join(path.name for path in fitting)
        raise EndpointError(
            f"{directory} has several keys for the role {role}: {names}; leave one of them there"
        )
    raise EndpointError(
        f"{directory} has no key for the role {role}: expected {named.name}, or another file which "
        f"is for that role; {_HOW}"
    )


_HOW = (
    "make keys with `aclearn keys new`, and copy to this machine the files of the roles that run "
    "here"
)


def load_key(path: Path) -> RoleKey:
    """The key in a file.

    Raises:
        EndpointError: the file is missing, damaged, or can be read by other users.
    """
    text = read_private(path)
    try:
        return RoleKey.model_validate_json(text)
    except ValidationError as exc:
        raise EndpointError(
            f"{path} is no key file of aclearn, or damaged ({why_invalid(exc)}); copy it again, or "
            "make one with `aclearn keys`"
        ) from None


def why_invalid(error: ValidationError) -> str:
    """What a file's first fault is; it never has the faulty value."""
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"]


def read_private(path: Path) -> bytes:
    """The text of a file that only its owner can read.

    A file of root may also be readable by its group, as those of a Kubernetes Secret are.

    Raises:
        EndpointError: it is missing, or other users can read or change it.
    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            text = file.read(_MOST_BYTES + 1)
    except OSError as exc:
        raise EndpointError(f"cannot read keys from {path}: {exc.strerror}; {_HOW}") from exc
    of_root = status.st_uid == 0 != os.geteuid()
    refused = 0o077 & ~(stat.S_IRGRP if of_root else 0)
    if status.st_mode & refused:
        raise EndpointError(f"{path} can be read by other users; mend it with `chmod 600 {path}`")
    if len(text) > _MOST_BYTES:
        raise EndpointError(f"{path} has more than {_MOST_BYTES} bytes; it is no file of aclearn")
    return text


class WatchedFile:
    """Tells when a file has been replaced or changed, and when to look."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path, self._clock = path, clock
        self._seen, self._next = self._state(), clock() + _LOOK_EVERY_S

    @property
    def due(self) -> bool:
        """Whether it is time for a look; true once a second."""
        if (now := self._clock()) < self._next:
            return False
        self._next = now + _LOOK_EVERY_S
        return True

    def changed(self) -> bool:
        """Whether it has changed since the last call; False while it is away."""
        state = self._state()
        if state is None or state == self._seen:
            return False
        self._seen = state
        return True

    def _state(self) -> tuple[int, int, int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        # the change of its mode alone may have mended it
        return status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size


class OwnKey:
    """The key of this process; a replaced file is read while it runs.

    Raises:
        EndpointError: there is no such key, or it cannot be used.
    """

    def __init__(self, directory: Path, role: str, wall: Callable[[], float] = time.time) -> None:
        self._file, self._wall = WatchedFile(key_path(directory, role)), wall
        self._key = load_key(self._file.path)
        self._take()

    @property
    def roles(self) -> tuple[str, ...]:
        """The kinds of role that it is for."""
        return self._key.roles

    def look(self) -> None:
        """See whether the file or the time wants another pair; at most once a second.

        A file that cannot be used changes nothing.
        """
        if self._file.due:
            if self._file.changed():
                self._read()
            self._take()

    def _read(self) -> None:
        try:
            self._key = load_key(self._file.path)
        except EndpointError as error:
            _LOG.error("event=key_not_read detail=%r", str(error))
        else:
            _LOG.info("event=key_read name=%s", self._key.name)

    def _take(self) -> None:
        now = self._wall()
        #: The pair to use now.
        self.pair: KeyPair = self._key.pair(now)
        #: The public key that the monitor proves now.
        self.monitor_key: str = self._key.monitor_key(now)
