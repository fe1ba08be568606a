"""Events, notes and silent processes for the supervisor and the user."""

from __future__ import annotations

import json
import logging
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Any

from aclearn.config import MAX_PROCESSES
from services.monitor.claims import MOST_LABEL_BYTES
from services.monitor.registry import Member

_LOGGER = logging.getLogger(__name__)

#: Most characters of an event, and most bytes of a status, which is one text of a message.
MOST_EVENT, _MOST_STATUS_BYTES = 300, 48 * 1024


#: Silent processes in a status: as many as may fall silent together and fit it.
_MOST_SILENT = 1024
#: Reasons that are remembered, a few for each of thousands of processes.
_MOST_REPORTED = 1 << 15


#: Most characters of the numbers in a range of names.
_MOST_NUMBERS = 32


class StatusReport:
    """The newest events, notes and silent processes, as fields of a status."""

    def __init__(self) -> None:
        self.events: deque[str] = deque(maxlen=50)
        self._notes: deque[str] = deque(maxlen=50)
        self._noted = 0
        self._silent: deque[tuple[str, int]] = deque(maxlen=_MOST_SILENT)
        self._silences = 0
        #: Name → incarnation of a process that has not said goodbye; the oldest is dropped.
        self._incarnations: dict[str, str] = {}
        #: Role → number of its processes that died and came back.
        self._restarts: Counter[str] = Counter()
        # incarnations and reasons that an event names already; the oldest is dropped
        self._reported: dict[tuple[str, str], None] = {}

    def event(self, text: str) -> None:
        """Add an event and log it."""
        text = text[:MOST_EVENT]
        self.events.append(text)
        _LOGGER.info("event=run text=%r", text)

    def event_once(self, incarnation: str, reason: str, text: str) -> None:
        """Add an event the first time that a process gives this reason."""
        key = (incarnation[:MOST_LABEL_BYTES], reason)
        if key not in self._reported:
            self._reported[key] = None
            if len(self._reported) > _MOST_REPORTED:
                del self._reported[next(iter(self._reported))]
            self.event(text)

    def note(self, text: str) -> None:
        """Add a line for the user."""
        self._notes.append(text)
        self._noted += 1
        self.events.append(text)

    def joined(self, member: Member) -> None:
        """Count a restart if the name's previous process has not said goodbye."""
        before = self._incarnations.pop(member.name, member.incarnation)
        self._restarts[member.role] += before != member.incarnation
        self._incarnations[member.name] = member.incarnation
        if len(self._incarnations) > 2 * MAX_PROCESSES:
            del self._incarnations[next(iter(self._incarnations))]

    def left(self, member: Member) -> None:
        """Take note of a goodbye: who has this name next is no restart."""
        self._incarnations.pop(member.name, None)

    def silent(self, member: Member) -> None:
        """Report a process that was silent for too long."""
        self._silent.append((member.name, member.pid))
        self._silences += 1
        self.event(f"{member.name} is silent")

    def fields(self, members: Sequence[Member]) -> dict[str, Any]:
        """The fields of a status about processes, events and notes."""
        pids: dict[str, dict[str, int]] = {}  # host → name → process id
        for member in members:
            pids.setdefault(member.host, {})[member.name] = member.pid
        return {
            "members": _ranges(members),
            "restarts": dict(self._restarts),
            "pids": pids,
            "events": list(self.events)[-10:],
            "silent": list(self._silent),
            "silences": self._silences,
            "notes": list(self._notes),
            "noted": self._noted,
        }


def member_names(members: Iterable[object]) -> list[str]:
    """The names in a status, which has neighbours as `actor-0..7`; at most `MAX_PROCESSES`."""
    names: list[str] = []
    for each in members:
        role, _, numbers = str(each).rpartition("-")
        first, _, last = numbers.partition("..")
        fits = role and len(numbers) <= _MOST_NUMBERS
        if fits and first.isdecimal() and (last or first).isdecimal():
            after = int(first) + MAX_PROCESSES - len(names)
            names += (f"{role}-{n}" for n in range(int(first), min(int(last or first) + 1, after)))
    return names


def _ranges(members: Sequence[Member]) -> list[str]:
    """The members' names, in order of role and number; neighbours as one."""
    ranges: list[tuple[str, int, int]] = []
    for member in members:
        role, first, last = ranges[-1] if ranges else ("", 0, 0)
        if (role, last + 1) == (member.role, member.number):
            ranges[-1] = role, first, member.number
        else:
            ranges.append((member.role, member.number, member.number))
    return [f"{r}-{first}" + (f"..{last}" if last > first else "") for r, first, last in ranges]


def status_text(status: dict[str, Any]) -> str:
    """A status as JSON in ASCII that fits a message."""
    if len(text := json.dumps(status)) <= _MOST_STATUS_BYTES:
        return text
    # of thousands of processes they are most of it
    if len(text := json.dumps(status | {"pids": {}})) <= _MOST_STATUS_BYTES:
        return text
    # the supervisor's decisions need these fields; the rest is for display
    small = status | {"line": {}, "events": [], "notes": [], "pids": {}}
    room = _MOST_STATUS_BYTES - len(json.dumps(small))
    notes: deque[str] = deque()
    for note in reversed(status["notes"]):  # the newest: older ones were shown already
        room -= len(json.dumps(note)) + len(", ")
        if room < 0:
            break
        notes.appendleft(note)
    return json.dumps(small | {"notes": list(notes)})
