"""What plots and comparisons read of a run: its learning curve and its settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from aclearn.errors import RunFolderError
from aclearn.metrics.names import POLICIES
from aclearn.views.decision_marks import Mark, read_marks
from aclearn.views.line_files import unusable_line

_PLACES: Final = ("time_s", "env_steps", "learned_steps")
_RETURN: Final = "return_mean_100"
_EVALUATED: Final = (
    "evaluator_return_mean",
    "evaluator_return_standard_error",
    "evaluator_env_steps",
    "evaluator_age_s",
)
#: Figures of which each policy has its own; steps and times are the run's.
_OF_A_POLICY: Final = (_RETURN, *_EVALUATED[:2], "target_return")
#: Keys in which the runs of one configuration may differ.
_NO_SETTINGS: Final = ("run.seed", "run.name", "run.dir", "run.experiment", "run.pythonpath")


class Reached(NamedTuple):
    """When a run reached its target.

    Attributes:
        env_steps: of the weights that reached it, where an evaluator judges.
        time_s: when that was known.
    """

    env_steps: float
    time_s: float


class Points(NamedTuple):
    """The points of a line; empty before the first.

    Attributes:
        time_s: seconds since the run's start.
        standard_errors: of the returns; empty if they are not known.
    """

    time_s: list[float]
    env_steps: list[float]
    learned_steps: list[float]
    returns: list[float]
    standard_errors: tuple[float, ...] = ()


_NONE: Final = Points([], [], [], [])


@dataclass(frozen=True)
class Curve:
    """One run's learning curves, or those of one of its policies.

    Attributes:
        policy: its name; None where the run has one policy.
        path: the run's folder.
        training: mean return of the newest 100 episodes of the actors.
        evaluator: mean return of each evaluation, where its weights were published.
        target: the run's `target_return`; None without one.
        reached: when the run reached it; None if it has not.
        damaged: number of metrics lines that are left out since they cannot be read.
        settings: dotted key → value in YAML, of the whole configuration but for the seed and the
            names; empty if it cannot be read.
    """

    path: Path
    training: Points
    evaluator: Points = _NONE
    target: float | None = None
    seed: int | None = None
    reached: Reached | None = None
    damaged: int = 0
    marks: list[Mark] = field(default_factory=list)
    settings: Mapping[str, str] = field(default_factory=dict)
    policy: str | None = None

    @property
    def name(self) -> str:
        """The run's name, with that of the policy behind it."""
        name = self.path.resolve().name
        return name if self.policy is None else f"{name}/{self.policy}"


def find_curves(paths: Sequence[Path]) -> list[Curve]:
    """The curves of the runs at these paths, of run folders and folders of runs, each run once.

    In a folder of runs, one without metrics is left out.

    Raises:
        RunFolderError: a path has no run with metrics, or a run cannot be read.
    """
    from aclearn.runs import runs_in  # here as in `read_curve`

    curves = dict[Path, list[Curve]]()
    for path in paths:
        found = runs_in(path)
        if found in ([], [path]):  # the message names the folder
            curves.setdefault(path.resolve(), read_curves(path))
            continue
        written = [run for run in found if _has_metrics(run)]
        if not written:
            raise RunFolderError(f"no run in {path} has written metrics yet; wait a few seconds")
        for run in written:
            curves.setdefault(run.resolve(), read_curves(run))
    return [curve for each in curves.values() for curve in each]


def _has_metrics(run: Path) -> bool:
    path = run / "metrics.jsonl"
    return path.exists() and path.stat().st_size > 0


def read_curves(run_dir: Path) -> list[Curve]:
    """The curves of a run, running or over, or of each of its policies.

    Lines before the first episode are left out.

    Raises:
        RunFolderError: it is no run folder, or has no metrics yet.
    """
    lines, damaged = _read_lines(run_dir)
    policies = lines[-1].get(POLICIES) or {}
    return [_curve(run_dir, lines, damaged, policy) for policy in policies or (None,)]


def read_curve(run_dir: Path) -> Curve:
    """The curve of a run; with several policies of those that count together. As `read_curves`."""
    return _curve(run_dir, *_read_lines(run_dir))


def _read_lines(run_dir: Path) -> tuple[list[Mapping[str, Any]], int]:
    """The usable metrics lines of a run, one at least, and the number of damaged ones."""
    # imported here: roles that import this package read no run
    from aclearn.runs import is_metrics_line, read_metrics_or_none, runs_in

    if not runs_in(run_dir):
        raise RunFolderError(
            f"there is no run folder {run_dir}, nor a folder of runs; expected runs/<name>, or runs"
        )
    path = run_dir / "metrics.jsonl"
    read = read_metrics_or_none(path)
    if not read:
        raise RunFolderError(
            f"{path} is empty: the run has written no metrics yet; wait a few seconds, or look "
            "into its logs"
        )
    lines, error = list[Mapping[str, Any]](), KeyError("metrics line")
    for line in read:
        try:
            if line is not None and is_metrics_line(line):
                _ = [float(line[name]) for name in _PLACES]
                lines.append(line)
        except (KeyError, TypeError) as missing:
            error = missing if isinstance(missing, KeyError) else error
    if not lines:
        raise unusable_line(path, error)
    return lines, len(read) - len(lines)


def _curve(
    run_dir: Path, lines: Sequence[Mapping[str, Any]], damaged: int, policy: str | None = None
) -> Curve:
    if policy is not None:
        lines = [_of_policy(line, policy) for line in lines]
    points = [line for line in lines if line.get(_RETURN) is not None]
    config = _config(run_dir / "config.yaml")
    settings = settings_of(config)
    run = run if isinstance(run := config.get("run"), dict) else {}
    found = run.get("target_return")
    if isinstance(found, Mapping):
        found = found.get(policy) if policy is not None else None
    target = float(found) if isinstance(found, int | float) else None
    own = {} if policy is None else {"policy": policy}
    return Curve(
        path=run_dir,
        training=Points(
            time_s=[float(line["time_s"]) for line in points],
            env_steps=[float(line["env_steps"]) for line in points],
            learned_steps=[float(line["learned_steps"]) for line in points],
            returns=[float(line[_RETURN]) for line in points],
        ),
        evaluator=_evaluations(lines),
        target=target,
        seed=seed if isinstance(seed := run.get("seed"), int) else None,
        reached=_reached(lines, target, evaluated=_evaluator_judges(config)),
        damaged=damaged,
        marks=read_marks(run_dir),
        settings={**settings, **own} if settings else {},
        policy=policy,
    )


def _of_policy(line: Mapping[str, Any], policy: str) -> Mapping[str, Any]:
    """The line with the figures of one policy in place of the run's."""
    part = (line.get(POLICIES) or {}).get(policy, {})
    return {**line, **{name: part.get(name) for name in _OF_A_POLICY}}


def _evaluations(lines: Sequence[Mapping[str, Any]]) -> Points:
    """The evaluations, each from the first line that has it."""
    counts = [line.get("evaluator_evaluations") for line in lines]
    new = [
        line
        for line, count, before in zip(lines, counts, [0, *counts], strict=False)
        if count != before and all(line.get(name) is not None for name in _EVALUATED)
    ]
    means, errors, env_steps, ages = ([float(line[name]) for line in new] for name in _EVALUATED)
    known, learned = ([float(line[name]) for line in lines] for name in _PLACES[1:])
    return Points(
        time_s=[float(line["time_s"]) - age_s for line, age_s in zip(new, ages, strict=True)],
        env_steps=env_steps,
        learned_steps=[float(steps) for steps in np.interp(env_steps, known, learned)],
        returns=means,
        standard_errors=tuple(errors),
    )


def _reached(
    lines: Sequence[Mapping[str, Any]], target: float | None, *, evaluated: bool
) -> Reached | None:
    if target is None:
        return None
    for line in lines:
        time_s, of_line = line.get("reached_target_at_s"), line.get("target_return")
        # an earlier part of a resumed run may have reached a higher target
        if time_s is not None and of_line is not None and of_line >= target:
            steps = line.get("evaluator_env_steps") if evaluated else None
            return Reached(float(line["env_steps"] if steps is None else steps), float(time_s))
    return None


def _evaluator_judges(config: Mapping[str, Any]) -> bool:
    """As `Config.judge`, of a configuration of any version."""
    groups = (config.get(name) for name in ("run", "evaluator"))
    run, evaluator = (group if isinstance(group, dict) else {} for group in groups)
    if (judge := run.get("judge")) is not None:
        return bool(judge == "evaluator")
    return any(evaluator.get(key) is not None for key in ("every_s", "every_steps"))


def _config(path: Path) -> Mapping[str, Any]:
    """A run's configuration, of any version; {} if it cannot be read."""
    from aclearn.config import YamlError, parse_yaml  # here as in `read_curve`

    try:
        config = parse_yaml(path.read_text(encoding="utf-8")).value
    except (OSError, ValueError, YamlError):
        return {}
    return config if isinstance(config, dict) else {}


def settings_of(config: Mapping[str, Any]) -> Mapping[str, str]:
    """The values of a configuration for `Curve.settings`; {} if it is not a whole one."""
    run = config.get("run")
    return dict(_settings(config)) if isinstance(run, Mapping) and "seed" in run else {}


def _settings(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    from aclearn.config import inline_yaml  # here as in `read_curve`

    for name, value in config.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            yield from _settings(value, f"{key}.")
        elif key not in _NO_SETTINGS:
            yield key, inline_yaml(value)
