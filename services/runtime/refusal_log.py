"""Refusals of peers in the log, each reason once."""

from __future__ import annotations

import logging

from aclearn.wire import (
    ErrorReply,
)

_LOGGER = logging.getLogger(__name__)


def say_refusal(said: set[str], by: str, refusal: ErrorReply) -> None:
    """Log why a peer has refused a message, once for each reason; `said` remembers them."""
    if refusal.reason not in said:
        said.add(refusal.reason)
        _LOGGER.warning(
            "event=message_refused by=%s reason=%s detail=%r", by, refusal.reason, refusal.detail
        )
