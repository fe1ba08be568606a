"""The page, `aclearn top` and the consoles say the same of a run, with the same figures."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from aclearn.launch import StopFlag
from aclearn.metrics.formatting import percent
from aclearn.views.console import PlainConsole
from services.commands.top import top
from services.dashboard.run_index import IndexedRun, open_run
from services.dashboard.run_view import run_view

#: The actors' environments limit the run, the trainer does, in turns.
_SLOW = (
    {
        "trainer": {"unrolls": 0.6, "working": 0.4},
        "actor": {"emulator": 0.8, "training queue": 0.05, "working": 0.15},
    },
    {
        "trainer": {"unrolls": 0.02, "working": 0.98},
        "actor": {"emulator": 0.2, "training queue": 0.5, "working": 0.3},
    },
)


def _line(time_s: float, which: int) -> dict[str, Any]:
    return {
        "time_s": time_s,
        "env_steps": 100 * time_s,
        "learned_steps": 90 * time_s,
        "updates": 3,
        "env_steps_per_s": 1122.0,
        "learned_steps_per_s": 1318.0,
        "tps": 2.6,
        "lag_mean": 5.5,
        "lag_max": 6.0,
        "queue_fill": 0.9 if which else 0.1,
        "wait_share": _SLOW[which],
    }


@pytest.fixture
def run(tmp_path: Path) -> IndexedRun:
    """A run whose slowest part has flipped with each line."""
    path = tmp_path / "r"
    path.mkdir()
    (path / "config.yaml").write_text("run: {}\n")
    lines = [_line(2.0 * i, i % 2) for i in range(1, 9)]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    made = open_run("r", path)
    made.series.read_on()
    return made


def test_boxes_lag_and_advice_of_the_page_are_those_of_top(run: IndexedRun) -> None:
    stream = io.StringIO()
    top(run.path, once=True, stream=stream, stop=StopFlag())
    shown = " ".join(stream.getvalue().replace("│", " ").split())
    flow = run_view(run)["flow"]
    assert flow["advice"] in shown
    assert flow["lag"] in shown
    assert [box["role"] for box in flow["boxes"]] == ["actor", "trainer"]
    for box in flow["boxes"]:
        waits = "  ".join(f"{label} {percent(share)}" for label, share in box["waits"].items())
        words = f"{box['role']} ━━━ works {percent(box['working'])} {waits}"
        role, _, rest = " ".join(words.split()).partition(" ━━━ ")
        assert role in shown and rest in shown
        assert box["rates"][0] in shown
    assert percent(flow["queues"]["training queue"]) in shown


def test_the_slowest_part_does_not_flip_with_every_line_and_is_that_of_the_console(
    run: IndexedRun, tmp_path: Path
) -> None:
    stream = io.StringIO()
    console = PlainConsole({}, name="r", stream=stream, every_s=0.0)
    for text in (run.path / "metrics.jsonl").read_text().splitlines():
        console.update(json.loads(text), [])
    told = [text for text in stream.getvalue().splitlines() if text.startswith("bottleneck: ")]
    assert len(told) == 1
    advice = run_view(run)["flow"]["advice"]
    assert told[0].removeprefix("bottleneck: ") in advice
    assert (
        next(box["role"] for box in run_view(run)["flow"]["boxes"] if box["slowest"]) == "trainer"
    )
    run.series.save(tmp_path / "stored")
    again = open_run("r", run.path)
    assert again.series.load(tmp_path / "stored")
    assert run_view(again)["flow"]["advice"] == advice
