"""Marks on a learning curve where a strategy changed the compression."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aclearn.views.line_files import read_lines, unusable_line

#: With more marks than this in a plot, they have no text.
_MOST_TEXTS = 40
#: Field of the log of decisions → the text of its mark.
_TEXTS = {"rung": "rung {:.0f}", "compressed_share": "α {:.2f}"}


@dataclass(frozen=True)
class Mark:
    """A change of the compression."""

    time_s: float
    env_steps: float
    text: str


def read_marks(run_dir: Path) -> list[Mark]:
    """The changes by the strategies of a run; empty without strategies.

    Raises:
        RunFolderError: the log of decisions cannot be read, or a line lacks a value.
    """
    from aclearn.runs import STRATEGIES_FILE  # here as in `read_lines`

    if not (run_dir / STRATEGIES_FILE).exists():
        return []
    try:
        return marks_of(read_lines(run_dir, STRATEGIES_FILE))
    except (KeyError, TypeError, ValueError) as error:
        raise unusable_line(run_dir / STRATEGIES_FILE, error) from error


def marks_of(decisions: Iterable[Mapping[str, Any]]) -> list[Mark]:
    """The changes among the decisions of strategies.

    Raises:
        KeyError, TypeError, ValueError: a line lacks a value.
    """
    marks, before = list[Mark](), dict[str, float]()
    for line in decisions:
        name, [(kind, text)] = line["strategy"], [x for x in _TEXTS.items() if x[0] in line]
        if line[kind] != before.get(name, 1.0 if kind == "compressed_share" else 0):
            shown = text.format(line[kind])
            marks.append(Mark(float(line["time_s"]), float(line["env_steps"]), shown))
        before[name] = line[kind]
    return marks


def draw_marks(axes: Any, at: Sequence[float], texts: Sequence[str], color: Any) -> None:
    """Draw a dotted line for each mark, with its text unless there are too many."""
    for x, text in zip(at, texts, strict=True):
        axes.axvline(x, color=color, linestyle=":", linewidth=1.0, zorder=1)
        if len(at) <= _MOST_TEXTS:
            style = {"fontsize": 7, "rotation": 90, "ha": "right", "va": "top", "color": color}
            axes.text(x, 0.99, text, transform=axes.get_xaxis_transform(), **style)
