"""Bounds on what a role says of itself, checked when the monitor takes it in."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from aclearn.wire import Beat, Hello
from services.role_name import MOST_NUMBER, ROLES

_Value = TypeVar("_Value", int, float)

#: Most bytes of an incarnation and of a label, most endpoints of a role and bytes of each, most
#: gauges and most labels of a beat: one peer must not fill the messages that tell of all.
MOST_LABEL_BYTES = 64
_MOST_ENDPOINTS, _MOST_ENDPOINT_BYTES = 8, 256
MOST_GAUGES, MOST_LABELS = 64, 72


def hello_fault(incarnation: str, hello: Hello) -> str | None:
    """Why this hello cannot be taken in, in words for its sender; None where it can."""
    if (fault := role_fault(hello.role)) is not None:
        return fault
    if hello.number > MOST_NUMBER:
        return f"its number is above {MOST_NUMBER}; give it a lower one with --name"
    if len(incarnation.encode()) > MOST_LABEL_BYTES:
        return f"its incarnation has more than {MOST_LABEL_BYTES} bytes"
    endpoints = hello.endpoints
    long = [t for pair in endpoints.items() for t in pair if len(t.encode()) > _MOST_ENDPOINT_BYTES]
    if len(endpoints) > _MOST_ENDPOINTS or long:
        return (
            f"it names {len(endpoints)} endpoints, at most {_MOST_ENDPOINTS} of at most "
            f"{_MOST_ENDPOINT_BYTES} bytes are possible"
        )
    return None


def role_fault(role: str) -> str | None:
    """Why a process cannot have this role, in words for its log; None where it can."""
    if role in ROLES:
        return None
    return f"its role is unknown; expected one of {', '.join(ROLES)}"


def without_too_much(beat: Beat) -> Beat:
    """The beat with no more than a status can tell; a link of the user's may have many gauges."""
    gauges = _bounded(beat.gauges, MOST_GAUGES)
    waits, parts = _bounded(beat.waits, MOST_LABELS), _bounded(beat.parts, MOST_LABELS)
    dropped = _bounded(beat.dropped, MOST_LABELS)
    if (gauges, waits, parts, dropped) == (beat.gauges, beat.waits, beat.parts, beat.dropped):
        return beat
    return replace(beat, gauges=gauges, waits=waits, parts=parts, dropped=dropped)


def _bounded(values: Mapping[str, _Value], most: int) -> dict[str, _Value]:
    fitting = (item for item in values.items() if len(item[0].encode()) <= MOST_LABEL_BYTES)
    return dict(itertools.islice(fitting, most))
