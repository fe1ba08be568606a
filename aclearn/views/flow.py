"""The flow of a run's data: its roles and queues, from one metrics line.

The console, `aclearn top` and the dashboard show these words and figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aclearn.metrics import Bottleneck, queue_fills
from aclearn.metrics.formatting import amount
from aclearn.metrics.names import WAIT_SHARE
from aclearn.telemetry import WORKING

#: The roles that data passes, in its order; then actors again. Others come behind them.
ORDER: Final = ("actor", "predictor", "trainer", "compressor")
#: The monitor is in the flow only if it works for this share of its time.
_MONITOR_BUSY: Final = 0.5
#: Role → queue before it.
_QUEUE_BEFORE: Final = {"trainer": "training queue", "predictor": "prediction queue"}


@dataclass(frozen=True)
class Box:
    """One role in the flow.

    Attributes:
        processes: number of its processes; None if unknown, as of a run that is only read.
        rates: figures with their units, the most important first: "1.12 k steps/s".
        waits: label → share of its time, the largest first, without "working".
        working: share of its time; None if the role has not reported.
        restarts: of its processes together; None if unknown.
        slowest: whether the run is limited by this role.
    """

    role: str
    processes: int | None
    rates: tuple[str, ...]
    waits: Mapping[str, float]
    working: float | None
    restarts: int | None
    slowest: bool


@dataclass(frozen=True)
class Flow:
    """The roles of a run in the order of its data.

    Attributes:
        queues: queue → its fill, 0 to 1, of the known ones.
        queue_before: role → queue that it reads.
        lag: versions between behaviour and target policy, in words; None before the first batch.
        advice: the slowest part and what would help, in a sentence.
    """

    boxes: tuple[Box, ...]
    queues: Mapping[str, float]
    queue_before: Mapping[str, str]
    lag: str | None
    advice: str


def flow_of(
    line: Mapping[str, Any], found: Bottleneck, roles: Sequence[Mapping[str, Any]] = ()
) -> Flow:
    """The flow by a metrics line.

    Args:
        found: of a `SteadyBottleneck` that has observed the line.
        roles: of the run's supervisor, as in `RunConsole`; empty if only files are read.
    """
    waits: Mapping[str, Mapping[str, float]] = line.get(WAIT_SHARE) or {}
    named = {str(role.get("role")) for role in roles}
    queues = queue_fills(line)
    return Flow(
        boxes=tuple(
            _box(line, found, role, waits.get(role), roles)
            for role in dict.fromkeys((*ORDER, "evaluator", *sorted(waits.keys() | named)))
            if role != "monitor" or waits.get(role, {}).get(WORKING, 0.0) >= _MONITOR_BUSY
            if role in waits or role in named or _has_figures(line, role)
        ),
        queues=queues,
        queue_before={role: name for role, name in _QUEUE_BEFORE.items() if name in queues},
        lag=lag_words(line) if line.get("updates") else None,
        advice=found.sentence,
    )


def lag_words(line: Mapping[str, Any]) -> str:
    """The lag in versions: "5.5 (max 6)"."""
    return f"{amount(line.get('lag_mean'))} (max {amount(line.get('lag_max'))})"


def rates_of(line: Mapping[str, Any], role: str) -> tuple[str, ...]:
    """The figures of one role's work with their units."""
    if role == "actor":
        return (f"{amount(line.get('env_steps_per_s'))} steps/s",)
    if role == "predictor":
        return (f"{amount(line.get('pps'))} predictions/s",)
    if role == "trainer":
        learned = f"{amount(line.get('learned_steps_per_s'))} steps/s"
        return (learned, f"{amount(line.get('tps'))} batches/s")
    if role == "compressor":
        interval_s, size = line.get("compressor_artifact_interval_s"), _bytes(line)
        made = None if interval_s is None else f"an artifact each {interval_s:.3g} s"
        return tuple(words for words in (made, size) if words)
    if role == "evaluator" and (count := line.get("evaluator_evaluations")) is not None:
        return (f"{amount(count)} evaluations",)
    return ()


def _bytes(line: Mapping[str, Any]) -> str | None:
    size = line.get("compressor_artifact_bytes")
    return None if size is None else f"{amount(size)}B"


def _has_figures(line: Mapping[str, Any], role: str) -> bool:
    names = (name for name, value in line.items() if value is not None)
    return any(name.startswith(f"{role}_") for name in names)


def _box(
    line: Mapping[str, Any],
    found: Bottleneck,
    role: str,
    shares: Mapping[str, float] | None,
    roles: Sequence[Mapping[str, Any]],
) -> Box:
    own = [each for each in roles if each.get("role") == role]
    waits = sorted((shares or {}).items(), key=lambda item: -item[1])
    return Box(
        role=role,
        processes=len(own) if roles else None,
        rates=rates_of(line, role),
        waits={label: share for label, share in waits if label != WORKING},
        working=None if shares is None else shares.get(WORKING, 0.0),
        restarts=sum(int(each.get("restarts") or 0) for each in own) if roles else None,
        slowest=found.role == role,
    )
