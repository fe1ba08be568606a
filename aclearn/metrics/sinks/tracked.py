"""What a tracker of experiments gets of a run, and the run's id there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from aclearn.metrics.names import CHAIN_STEPS, PART_SECONDS
from aclearn.metrics.sinks.sink import SinkRun
from aclearn.runs import write_atomically

# Sums since the start, which make no useful curve.
_LEFT_OUT: Final = frozenset({PART_SECONDS, CHAIN_STEPS})


def figures(line: Mapping[str, Any]) -> dict[str, float | str]:
    """Path → number or text of a line or a summary, such as `wait_share/actor/emulator`."""
    return dict(_flat("", {name: value for name, value in line.items() if name not in _LEFT_OUT}))


def decided(decision: Mapping[str, Any]) -> dict[str, float | str]:
    """Path → number or text of a decision, behind the name of who has decided."""
    rest = {name: value for name, value in decision.items() if name not in ("by", "env_steps")}
    return dict(_flat(f"{decision['by']}/", rest))


def sent_config(run: SinkRun) -> dict[str, Any]:
    """The configuration without `env.kwargs` and those of `evaluator.env`, as nested mappings."""
    config = dict(run.config)
    evaluator = config["evaluator"]
    config["env"] = _without_kwargs(config["env"])
    config["evaluator"] = {**evaluator, "env": _without_kwargs(evaluator["env"])}
    return config


def failed(summary: Mapping[str, Any] | None) -> bool:
    """Whether a run has ended because it failed."""
    return "failed" in str((summary or {}).get("reason", ""))


def known_id(run: SinkRun, file: str) -> str | None:
    """The id of this run's earlier part, in that file of its folder; None if it has none."""
    path = run.path / file
    return path.read_text("utf-8") if run.resumed and path.exists() else None


def keep_id(folder: Path, file: str, number: str) -> str:
    """Write an id for the next part of this run; returns it."""
    write_atomically(folder / file, number.encode())
    return number


def _flat(path: str, values: Mapping[str, Any]) -> Iterator[tuple[str, float | str]]:
    """Path → number or text; None and lists are left out."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(f"{path}{name}/", value)
        elif isinstance(value, int | float | str):
            yield f"{path}{name}", value


def _without_kwargs(env: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in env.items() if key != "kwargs"}
