"""What the monitors of live runs say, asked in a thread of its own; and users' actions."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import zmq

from aclearn.errors import AclearnError, EndpointError, RunFolderError
from aclearn.wire import (
    Action,
    ActionReply,
    Client,
    ClientKeys,
    ErrorReply,
    KeyPair,
    Message,
    OwnKey,
    Status,
    StatusRequest,
    ZmqTransport,
    connect_dealer,
    new_incarnation,
)
from services.monitor.address_file import MonitorAddress, read_address
from services.wiring import SUPERVISOR

_LOG: Final = logging.getLogger(__name__)
_FILE: Final = "monitor.json"
#: Seconds between two looks of the thread, and between two questions to a monitor.
_LOOK_EVERY_S, _ASK_EVERY_S = 0.2, 1.0
#: Silence after which a monitor counts as one that does not answer.
_SILENT_AFTER_S: Final = 4.0
#: Seconds for which a run is asked after a page was shown it.
_WATCHED_S: Final = 15.0
#: Runs that are asked at a time at most.
_MOST_RUNS: Final = 64
_ACTION_WITHIN_S: Final = 5.0
_CLOSE_WITHIN_S: Final = 5.0


class ActionRefused(AclearnError):
    """The run does not do what a user wants; says why."""


@dataclass(frozen=True)
class Told:
    """What a run's monitor has said last.

    Attributes:
        status: None if it has not answered lately.
        words: why there is no status, and what is shown instead; "" where there is one.
    """

    status: Mapping[str, Any] | None
    words: str = ""


_ASKED: Final = Told(None, "the monitor is asked; until then this is what the files say")


class Monitors:
    """Asks the monitors of the runs that a page shows; used in a `with` block.

    A monitor that hangs costs nobody else anything: the thread waits for none.

    Attributes:
        revision: grows when something else than a metrics line has changed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched = dict[Path, float]()
        self._told = dict[Path, Told]()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="monitors", daemon=True)
        self.revision = 0

    def __enter__(self) -> Monitors:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(_CLOSE_WITHIN_S)

    def look(self, run_dir: Path) -> Told:
        """What the monitor of a live run has said; it is asked from now on, for a while."""
        with self._lock:
            self._watched[run_dir] = time.monotonic()
            return self._told.get(run_dir, _ASKED)

    def _follow(self) -> None:
        context = zmq.Context[zmq.Socket[bytes]]()
        asked = dict[Path, _Asked]()
        try:
            while not self._stop.wait(_LOOK_EVERY_S):
                now = time.monotonic()
                paths = self._paths(now)
                for path in [each for each in asked if each not in paths]:
                    asked.pop(path).close()
                told = {}
                for path in paths:
                    if path not in asked:
                        asked[path] = _Asked(path, context)
                    told[path] = asked[path].look_or_log(now)
                with self._lock:
                    changed = any(
                        _without_line(told[path]) != _without_line(self._told.get(path, _ASKED))
                        for path in paths
                    )
                    self._told = told
                self.revision += changed
        finally:
            for each in asked.values():
                each.close()
            context.destroy(linger=0)

    def _paths(self, now: float) -> list[Path]:
        """The runs to ask, those looked at last."""
        with self._lock:
            newest = sorted(self._watched.items(), key=lambda item: -item[1])[:_MOST_RUNS]
            self._watched = {path: at for path, at in newest if now - at < _WATCHED_S}
            return list(self._watched)


@dataclass
class _Asked:
    """One run's monitor; belongs to the thread."""

    run_dir: Path
    context: zmq.Context[zmq.Socket[bytes]]
    _written: tuple[int, int] | None = None
    _address: MonitorAddress | None = None
    _client: Client | None = None
    _key: OwnKey | None = None
    _pair: KeyPair | None = None
    _fault: str = ""
    _status: Mapping[str, Any] | None = None
    _asked_at: float = field(default=float("-inf"))
    _heard_at: float = 0.0
    _failed: str = ""

    def look_or_log(self, now: float) -> Told:
        """As `look`; a failure is told and logged once, so that other runs are still asked."""
        try:
            told = self.look(now)
            self._failed = ""
        except Exception as error:
            failed = f"the monitor cannot be asked ({error!r:.200})"
            if failed != self._failed:
                _LOG.exception("%s: %s", self.run_dir, failed)
            self.close()
            self._failed, self._written = failed, None  # the next look connects anew
            told = Told(None, f"{failed}; this is what the files say")
        return told

    def look(self, now: float) -> Told:
        """Take answers, and ask again when it is time; never waits."""
        self._open(now)
        if self._client is None or self._address is None:
            return Told(None, f"{self._fault}; this is what the files say")
        while (envelope := self._client.receive(0.0)) is not None:
            status = _status_in(envelope.message)
            if status is not None:
                self._status, self._heard_at = status, now
        if now - self._asked_at >= _ASK_EVERY_S:
            self._asked_at = now
            self._client.send(StatusRequest(supervises=False))
        silent_s = now - self._heard_at
        if silent_s <= _SILENT_AFTER_S:
            return _ASKED if self._status is None else Told(self._status)
        where = f"process {self._address.pid} on {self._address.host}"
        return Told(None, f"the monitor ({where}) does not answer; this is what the files say")

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _open(self, now: float) -> None:
        """Connect to the monitor that the run folder names, if that has changed."""
        if self._key is not None:
            self._key.look()
        pair = None if self._key is None else self._key.pair
        written = _written(self.run_dir / _FILE)
        if written is not None and written == self._written and pair is self._pair:
            return
        self.close()
        self._written, self._status, self._heard_at = written, None, now
        self._asked_at = float("-inf")
        try:
            self._address = read_address(self.run_dir / _FILE)
            if self._address is None:
                self._fault = "no monitor has said in the run folder where it answers"
                return
            self._key = _key_for(self._address)
            self._pair = None if self._key is None else self._key.pair
            self._client = _connect(self._address, self._key, self.context)
        except (EndpointError, RunFolderError, zmq.ZMQError) as error:
            self._fault = str(error)


def act(run_dir: Path, kind: str, values: Mapping[str, Any]) -> None:
    """Let the monitor of a live run put a user's action in force; waits 5 s at most.

    Args:
        kind: name of a directive.
        values: its values by name.

    Raises:
        ActionRefused: it is not in force, or the monitor has not answered.
    """
    context = zmq.Context[zmq.Socket[bytes]]()
    try:
        address = read_address(run_dir / _FILE)
        if address is None:
            raise ActionRefused("no monitor has said in the run folder where it answers")
        client = _connect(address, _key_for(address), context)
        client.send(Action(address.key, kind, dict(values)), timeout_s=_ACTION_WITHIN_S)
        answer = client.receive(_ACTION_WITHIN_S)
    except (EndpointError, RunFolderError, ValueError) as error:
        raise ActionRefused(str(error)) from error
    finally:
        context.destroy(linger=0)
    if answer is None:
        raise ActionRefused(
            f"the monitor has not answered for {_ACTION_WITHIN_S:g} s; whether it has taken the "
            "action is seen in its events"
        )
    message = answer.message
    if isinstance(message, ErrorReply):
        raise ActionRefused(f"the monitor cannot read it: {message.detail}")
    if not isinstance(message, ActionReply):
        raise ActionRefused("the monitor has answered something else; see its log")
    if message.refusal:
        raise ActionRefused(message.refusal)


def _key_for(address: MonitorAddress) -> OwnKey | None:
    return None if address.keys_dir is None else OwnKey(Path(address.keys_dir), SUPERVISOR)


def _connect(
    address: MonitorAddress, key: OwnKey | None, context: zmq.Context[zmq.Socket[bytes]]
) -> Client:
    keys = None if key is None else ClientKeys(key.pair, key.monitor_key)
    incarnation = new_incarnation()
    socket = connect_dealer(
        context, address.from_here(), routing_id=incarnation.encode(), keys=keys
    )
    return Client(ZmqTransport(socket), address.run, incarnation)


def _status_in(message: Message) -> Mapping[str, Any] | None:
    """The status in a message; None if it has none that can be shown."""
    if not isinstance(message, Status):
        return None
    try:
        found = json.loads(message.json)
    except (ValueError, RecursionError):
        return None
    kinds = {"members": list, "events": list, "pids": dict, "restarts": dict, "actions": dict}
    whole = isinstance(found, dict) and all(
        isinstance(found.get(name), kind) for name, kind in kinds.items()
    )
    return found if whole else None


def _without_line(told: Told) -> Told:
    """What must change for the page to be told."""
    if told.status is None:
        return told
    changing = ("line", "answers")
    return Told({name: each for name, each in told.status.items() if name not in changing})


def _written(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
