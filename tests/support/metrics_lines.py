"""Properties of each metrics line, and from line to line."""

from __future__ import annotations

import math
import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from aclearn.runs import is_metrics_line

#: Names in every line of metrics.jsonl.
FIXED_NAMES = {
    "time_s",
    "env_steps",
    "learned_steps",
    "dropped_steps",
    "in_flight_steps",
    "updates",
    "generation",
    "policy_version",
    "env_steps_per_s",
    "learned_steps_per_s",
    "pps",
    "tps",
    "return_mean_100",
    "judged_return",
    "episodes",
    "lag_mean",
    "lag_max",
    "wait_share",
}
#: Names that never fall; the others may fall when a trainer goes back to its checkpoint.
NEVER_FALL = ("time_s", "env_steps", "episodes", "generation")
WITHIN_A_GENERATION = ("learned_steps", "updates", "policy_version")


_NAME = re.compile(r"`([a-z0-9_]+(?:<\w+>_?[a-z0-9_]*)*)`")
_PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text("utf-8")
_METRICS = _PAGE.partition("\n## Tuner decisions\n")[0]
#: Names in docs/metrics.md; `<B>` and the like are placeholders.
DOCUMENTED = re.compile("|".join(re.sub(r"<\w+>", ".+", name) for name in _NAME.findall(_METRICS)))


@cache
def _is_documented(name: str) -> bool:
    return DOCUMENTED.fullmatch(name) is not None


def check_line(line: dict[str, Any]) -> None:
    assert line.keys() >= FIXED_NAMES, FIXED_NAMES - line.keys()
    assert is_metrics_line({**line, "reason": None}), line  # a summary's is text
    undocumented = [name for name in line if not _is_documented(name)]
    assert undocumented == [], undocumented
    dropped = line["dropped_steps"]
    accounted = line["learned_steps"] + sum(dropped.values()) + line["in_flight_steps"]
    assert line["env_steps"] == accounted, line
    counts = [line["learned_steps"], line["in_flight_steps"], *dropped.values()]
    assert min(counts) >= 0, line
    for shares in line["wait_share"].values():
        assert math.isclose(sum(shares.values()), 1.0, abs_tol=1e-6), line["wait_share"]


def check_lines(lines: list[dict[str, Any]]) -> None:
    for line in lines:
        check_line(line)
    for before, after in pairwise(lines):
        same_generation = before["generation"] == after["generation"]
        for name in (*NEVER_FALL, *(WITHIN_A_GENERATION if same_generation else ())):
            assert before[name] <= after[name], (name, before, after)
