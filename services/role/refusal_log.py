"""Logs refusals of peers, each reason once."""

from __future__ import annotations

import logging

from aclearn.wire import (
    ErrorReply,
)

_LOGGER = logging.getLogger(__name__)


def say_refusal(said: set[str], by: str, refusal: ErrorReply) -> None:
    """Log why a peer refused a message; `said` holds the reasons already logged."""
    if refusal.reason not in said:
        said.add(refusal.reason)
        _LOGGER.warning(
            "event=message_refused by=%s reason=%s detail=%r", by, refusal.reason, refusal.detail
        )
