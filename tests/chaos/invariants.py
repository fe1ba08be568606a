"""What must hold in a run whatever happens to it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from tests.support.metrics_lines import check_lines
from tests.support.system import Run
from tests.support.visitor import Visitor

_LEARNED = re.compile(r"event=batch_learned columns=([0-9a-f,]+)")
_DIGEST_LETTERS = 16
#: Steps that a run must learn before it counts as recovered.
_MORE_STEPS = 200


def wait_until_whole(run: Run, visitor: Visitor, names: set[str], *, within_s: float) -> None:
    """Wait until the run has all of its processes, knows them and learns.

    Args:
        visitor: asks the monitor who is there.
        names: of the roles.
    """
    begun = run.last()

    def is_whole() -> bool:
        line = run.last()
        newer = line["generation"] > begun["generation"]
        learned = line["learned_steps"] - (0 if newer else begun["learned_steps"])
        published = line["policy_version"] > begun["policy_version"] or newer
        pids = run.pids()
        if not (learned > _MORE_STEPS and published and pids.keys() >= names):
            return False
        [known] = visitor.status()["pids"].values() or [{}]
        return all(known.get(name) == pids[name] for name in names - {"monitor-0"})

    run.wait_for(is_whole, "every role is back, and the run learns", within_s=within_s)


def check_nothing_learned_twice(folder: Path) -> int:
    """Number of columns of learned batches in the trainers' logs; each must be there once."""
    seen: Counter[str] = Counter()
    for path in sorted(folder.glob("logs/trainer-*.log")):
        for columns in _LEARNED.findall(path.read_text(errors="replace")):
            # a killed trainer may have left a part of a line
            seen.update(each for each in columns.split(",") if len(each) == _DIGEST_LETTERS)
    twice = [digest for digest, count in seen.items() if count > 1]
    assert not twice, f"{len(twice)} of {len(seen)} columns were learned twice, e.g. {twice[:3]}"
    return len(seen)


def check_lines_of(run: Run) -> list[dict[str, Any]]:
    """The lines of the run; each must balance, and nothing that only grows may have fallen."""
    lines = run.lines()
    check_lines(lines)
    order = [(line["generation"], line["policy_version"]) for line in lines]
    assert order == sorted(order), "a version has fallen"
    return lines
