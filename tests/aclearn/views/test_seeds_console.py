"""The views of several runs at a time."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from aclearn.views.seeds_console import SeedsConsole, SeedsTable

_LINE = {
    "time_s": 65.0,
    "env_steps": 12_300,
    "learned_steps_per_s": 2460.0,
    "return_mean_100": 21.5,
    "judged_return": 21.5,
    "episodes_in_mean": 100,
    "dropped_steps": {},
    "wait_share": {},
}


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_terminal_every_line_says_whose_it_is() -> None:
    stream = io.StringIO()
    with SeedsConsole({"target_return": 43.0}, ["seed-1", "seed-2"], stream=stream) as console:
        for name in ("seed-1", "seed-2"):
            with console.console(name) as run:
                run.update(_LINE, [])
                run.note("word " * 60)
        console.end("seed-2", "failed", "failed: exit status 1\nsee its log")
    lines = stream.getvalue().splitlines()
    assert {line.partition(": ")[0] for line in lines} == {"seed-1", "seed-2"}
    assert "seed-1: run=seed-1 started" in lines
    assert sum("return=21.50" in line for line in lines) == 2
    assert lines[-2:] == ["seed-2: failed: exit status 1", "seed-2: see its log"]


def test_a_terminal_has_a_row_for_each_run_and_the_newest_events() -> None:
    stream = io.StringIO()
    names = ["seed-1", "seed-2", "seed-10"]
    drawn = Console(file=stream, width=100, force_terminal=True, color_system=None)
    table = SeedsTable({"target_return": 43.0}, names, drawn)
    with table.rows["seed-1"] as run:  # the evaluator judges
        run.update({**_LINE, "return_mean_100": 30.0, "evaluator_return_mean": 21.5}, [])
    table.rows["seed-2"].state = "failed"
    for n in range(7):
        table.note("seed-2", f"event {n}")
    file = io.StringIO()
    Console(file=file, width=100).print(table.view())
    head, first, second, third, *events = file.getvalue().splitlines()
    assert head.split() == ["Run", "State", "Return", "Steps", "Learned/s", "Time", "Progress"]
    assert first.split()[:7] == ["seed-1", "running", "21.50", "12.3", "k", "2.46", "k"]
    assert "0:01:05" in first and "return 21.5 of 43" in first
    assert second.split()[:3] == ["seed-2", "failed", "-"]
    assert third.split()[:2] == ["seed-10", "waiting"]
    assert [event.strip() for event in events] == [f"seed-2  event {n}" for n in range(2, 7)]


def test_of_more_runs_than_a_terminal_has_rows_those_that_run_or_failed_are_shown() -> None:
    names = [f"seed-{n}" for n in range(1, 31)]
    drawn = Console(file=io.StringIO(), width=100, height=12, force_terminal=True)
    table = SeedsTable({}, names, drawn)
    for n, state in enumerate(["ended"] * 9 + ["running"] * 2 + ["failed"]):
        table.rows[names[n]].state = state
    file = io.StringIO()
    Console(file=file, width=100).print(table.view())
    _, *rows, rest = file.getvalue().splitlines()
    assert [row.split()[0] for row in rows] == ["seed-10", "seed-11", "seed-12", "seed-1"]
    assert rest.strip() == "and 8 ended, 18 waiting"


def test_the_table_is_drawn_on_a_capable_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = _Terminal()
    with SeedsConsole({}, ["seed-1"], stream=stream) as console:
        console.console("seed-1").update(_LINE, [])
        console.end("seed-1", "ended", "ended: target_reached")
    assert "Learned/s" in stream.getvalue() and "ended: target_reached" in stream.getvalue()
    monkeypatch.setenv("TERM", "dumb")
    stream = _Terminal()
    with SeedsConsole({}, ["seed-1"], stream=stream) as console:
        console.end("seed-1", "ended", "ended: target_reached")
    assert stream.getvalue() == "seed-1: ended: target_reached\n"
