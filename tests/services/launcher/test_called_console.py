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


def test_a_run_ends_in_order_when_its_function_says_so_or_raises(tmp_path: Path) -> None:
    settings = {
        "run.dir": str(tmp_path),
        "run.deterministic": True,
        "run.metrics_every_s": 0.05,
        "actors.processes": 1,
    }
    seen: list[dict[str, Any]] = []
    stopped = aclearn.train(
        "cartpole", settings, on_metrics=lambda line: seen.append(line) or not line["updates"]
    )
    assert stopped.name == "cartpole-1" and stopped.summary["reason"] == "on_metrics"
    assert seen == read_metrics(stopped.path / "metrics.jsonl")[: len(seen)]
    assert list((stopped.path / "checkpoints").glob("*.safetensors"))

    pruned = ArithmeticError("too slow")

    def prune(line: dict[str, Any]) -> None:
        raise pruned

    with pytest.raises(ArithmeticError) as caught:
        aclearn.train("cartpole", settings | {"run.name": "pruned"}, on_metrics=prune)
    assert caught.value is pruned
    assert aclearn.open_run(tmp_path / "pruned").summary["reason"] == "on_metrics failed"
