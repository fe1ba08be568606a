"""Any checkpoint of a run, by its agent steps or its part of the run (`--at`)."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from aclearn.errors import CheckpointError
from aclearn.runs.checkpoint import (
    Checkpoint,
    Mark,
    list_checkpoints,
    load_best,
    load_checkpoint,
    load_newest,
    mark_of,
    read_state,
)

NEWEST: Final = "newest"
BEST: Final = "best"


class Kept(NamedTuple):
    """A checkpoint that exists.

    Attributes:
        percent: its agent steps as a part of those of the newest one.
        is_judged: whether it was judged to be the best of its time.
    """

    path: Path
    env_steps: int
    percent: float
    mark: Mark
    is_judged: bool

    def __str__(self) -> str:
        mark = f", {self.mark}" if self.mark == BEST else ""
        return f"{self.env_steps} ({self.percent:.0f}%{mark})"


def checkpoint_in(dir: Path, at: str | int = NEWEST) -> Checkpoint:
    """The checkpoint in `dir` that `at` names.

    Args:
        at: "newest", "best", agent steps ("120320"), or a part of the run ("50%"): the checkpoint
            nearest to it.

    Raises:
        CheckpointError: there is none, or it is damaged; names those that there are.
    """
    at = str(at).strip()
    found = load_newest(dir) if at == NEWEST else load_best(dir) if at == BEST else None
    if found is not None:
        return found
    there = kept_in(dir)
    if at == BEST and (judged := [each for each in there if each.is_judged]):
        return load_checkpoint(judged[-1].path)  # of a population, in its folder best
    if at == NEWEST or not there:
        raise CheckpointError(f"{dir}: no checkpoint yet; train first")
    if at == BEST:
        raise CheckpointError(
            f"{dir}: no checkpoint was saved as the best, which takes a mean of 100 episodes or an "
            f"evaluation; choose {_those(there)}"
        )
    if at.endswith("%"):
        percent = _number(at.removesuffix("%"))
        if percent is not None and 0 <= percent <= 100:
            nearest = min(there, key=lambda each: abs(each.percent - percent))
            return _load_after(nearest.env_steps, there)
    elif (steps := _number(at)) is not None:
        if any(each.env_steps == steps for each in there):
            return _load_after(steps, there)
        raise CheckpointError(
            f"{dir}: no checkpoint after {at} agent steps; choose {_those(there)}"
        )
    raise CheckpointError(
        f"--at: expected newest, best, agent steps or 0% to 100%, got {at!r:.100}; there are "
        f"checkpoints at {_those(there)}"
    )


def kept_in(dir: Path) -> list[Kept]:
    """The checkpoints in `dir` by their agent steps, of equal ones the last first.

    What cannot be read is left out.
    """
    found: list[tuple[Path, int, bool]] = []
    for path in list_checkpoints(dir) if dir.is_dir() else []:
        try:
            state = read_state(path)
            judged = state.get("judged") is not None
            found.append((path, int(state["account"]["env_steps"]), judged))
        except (CheckpointError, KeyError, TypeError, ValueError):  # loading it would say why
            continue
    if not found:
        return []
    newest = max(1, found[0][1])
    kept = [
        Kept(path, steps, 100 * steps / newest, mark_of(path), judged)
        for path, steps, judged in found
    ]
    return sorted(kept, key=lambda each: each.env_steps)


def _load_after(steps: float, there: list[Kept]) -> Checkpoint:
    """The first whole one after so many steps; where none is, the error names the others."""
    damages = []
    for each in there:
        if each.env_steps == steps:
            try:
                return load_checkpoint(each.path)
            except CheckpointError as error:
                damages.append(error)
    others = _those([each for each in there if each.env_steps != steps])
    raise CheckpointError(
        f"{damages[0]}; " + (f"choose {others}" if others else "there is no other")
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _those(there: list[Kept]) -> str:
    """One text for each number of steps; of equal ones the best is named."""
    found: dict[int, Kept] = {}
    for each in there:
        if each.mark == BEST:
            found[each.env_steps] = each
        else:
            found.setdefault(each.env_steps, each)
    return ", ".join(map(str, found.values()))
