"""Agent steps that were never learned, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aclearn.metrics.formatting import amount

#: Reasons that the end of a run, or of one of its processes, gives.
_OF_ENDS: Final = {"actor_lost", "max_env_steps", "max_updates", "shutdown", "trainer_restart"}


def dropped_words(line: Mapping[str, Any], most: int = 20) -> str:
    """Dropped steps by reason, the most frequent first: "lag 12.3 k, env_fault 20".

    Args:
        most: number of reasons; rarer ones are one sum.
    """
    by_reason = sorted((line.get("dropped_steps") or {}).items(), key=lambda item: -item[1])
    shown = [(name, steps) for name, steps in by_reason if steps]
    if len(shown) > most + 1:
        others = sum(steps for _, steps in shown[most:])
        shown = [*shown[:most], ("others", others)]
    return ", ".join(f"{name} {amount(steps)}" for name, steps in shown)


def nothing_learned(line: Mapping[str, Any]) -> str | None:
    """Why a run has learned none of its steps; None if it has learned some, or ended before."""
    refused = (line.get("dropped_steps") or {}).keys() - _OF_ENDS
    if line.get("learned_steps", 1) or not refused:
        return None
    return (
        f"the run has learned nothing: none of its {line['env_steps']} agent steps entered an "
        f"update. Steps were dropped for: {dropped_words(line)}; docs/architecture.md explains the "
        "reasons, and logs/ in the run folder has the first of each"
    )
