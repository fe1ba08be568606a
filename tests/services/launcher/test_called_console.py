"""`on_metrics`: each new line of metrics, the end that it asks for, and its errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aclearn
from aclearn.launch import StopFlag
from aclearn.runs import read_metrics
from services.launcher.called_console import CalledConsole

_SETTINGS = {
    "run.deterministic": True,
    "run.metrics_every_s": 0.05,
    "actors.processes": 1,
    "run.max_updates": 400,
}


class _Silent:
    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def update(self, line: Any, roles: Any) -> None:
        return

    def note(self, text: str) -> None:
        return


def _append(path: Path, *numbers: int) -> None:
    with path.open("a") as file:
        for number in numbers:
            file.write(json.dumps({"updates": number}) + "\n")


@pytest.mark.parametrize("no", [False, np.False_])
def test_every_line_is_given_once_until_one_is_answered_with_false(tmp_path: Path, no) -> None:
    path, got, stop = tmp_path / "metrics.jsonl", [], StopFlag()

    def on_metrics(line: dict[str, Any]) -> Any:
        got.append(line["updates"])
        return no if line["updates"] == 5 else (None, 0, True)[line["updates"] % 3]

    _append(path, 1, 2)  # of an earlier part of the run
    with CalledConsole(_Silent(), on_metrics, path, stop) as console:
        for new in ((), (3, 4), ()):
            _append(path, *new)
            console.update({"updates": 4}, [])
        assert got == [3, 4] and not stop
        _append(path, 5, 6)
        console.update({"updates": 6}, [])
        _append(path, 7)
    assert got == [3, 4, 5] and stop.reason == "on_metrics" and console.error is None


def test_a_run_gives_all_its_lines_and_ends_when_it_is_told(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = []
    settings = _SETTINGS | {"run.dir": str(tmp_path)}
    run = aclearn.train("cartpole", settings, on_metrics=lines.append)
    assert lines == read_metrics(run.path / "metrics.jsonl") and len(lines) > 2
    seen = []
    stopped = aclearn.train(
        "cartpole", settings, on_metrics=lambda line: seen.append(line) or len(seen) < 2
    )
    assert stopped.name == "cartpole-2" and stopped.summary["reason"] == "on_metrics"
    assert stopped.summary["updates"] < 400 and len(seen) == 2
    assert list((stopped.path / "checkpoints").glob("*.safetensors"))


def test_its_error_ends_the_run_in_order_and_reaches_the_caller_as_it_is(tmp_path: Path) -> None:
    class Pruned(Exception):
        pass

    pruned = Pruned("too slow")

    def on_metrics(line: dict[str, Any]) -> None:
        raise pruned

    settings = _SETTINGS | {"run.dir": str(tmp_path)}
    with pytest.raises(Pruned) as caught:
        aclearn.train("cartpole", settings, on_metrics=on_metrics)
    assert caught.value is pruned
    run = aclearn.open_run(tmp_path / "cartpole-1")
    assert run.summary["reason"] == "on_metrics failed"
