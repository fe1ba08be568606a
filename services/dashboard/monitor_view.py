"""What the monitor of a live run says, as JSON for the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aclearn.metrics.names import RUNG
from services.dashboard.monitors import Told
from services.dashboard.run_index import IndexedRun
from services.monitor.status_report import member_names

#: Why nobody can ask such a run, or tell it anything.
DETERMINISTIC: Final = (
    "a run with run.deterministic is one process, whose results depend on its seed alone: it "
    "answers no questions and takes no actions; Ctrl-C in its terminal ends it"
)


def roles_of(told: Told | None) -> list[dict[str, Any]]:
    """The living processes, as of a supervisor, with the restarts of a role at its first one.

    Empty where no monitor has answered.
    """
    status = (None if told is None else told.status) or {}
    restarts = dict(status.get("restarts", {}))
    found = []
    for name in member_names(status.get("members", ())):
        role = name.rpartition("-")[0]
        found.append({"role": role, "name": name, "restarts": restarts.pop(role, 0)})
    return found


def monitor_view(run: IndexedRun, told: Told) -> dict[str, Any]:
    """The state, processes and events of a live run, and what a user may do."""
    status, line = told.status or {}, run.series.newest
    words = told.words
    if run.setting("run", "deterministic") is True:
        words = f"{DETERMINISTIC}. This is what the files say"
    given: Mapping[str, Mapping[str, Any]] = status.get("set", {})
    return {
        "words": words,
        "reason": status.get("reason"),
        "processes": [
            {"name": str(name), "host": str(host), "pid": pid}
            for host, members in status.get("pids", {}).items()
            if isinstance(members, dict)
            for name, pid in members.items()
        ],
        "events": [str(text) for text in status.get("events", ())],
        "actions": status.get("actions", {}),
        "now": {
            "SetActors": sum(role["role"] == "actor" for role in roles_of(told)),
            "SetChain": line.get(RUNG),
            "SetLearningRate": run.setting("optimiser", "learning_rate"),
            "SetEntropyCost": run.setting("loss", "entropy_cost"),
            **{kind: next(iter(values.values())) for kind, values in given.items()},
        },
        # what the schedule makes of it
        "present": {"SetLearningRate": line.get("learning_rate")},
    }
