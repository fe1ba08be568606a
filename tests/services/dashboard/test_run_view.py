"""A run as the page shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from services.dashboard.monitors import Told
from services.dashboard.run_index import open_run
from services.dashboard.run_view import run_view


@pytest.mark.parametrize(
    ("key", "rung", "words"),
    [
        ("ladder: [[{prune: {amount: 0.5}}, int8], []]", 0, "0: prune → int8"),
        ("ladder: [[int8], []]", 1, "1: uncompressed"),
        ("ladder: [[int8], []]", 7, "7"),
        ("chain: [int8, onnx], ladder: null", 0, "0: int8 → onnx"),
    ],
)
def test_the_stage_of_the_compression_is_in_words(
    tmp_path: Path, key: str, rung: int, words: str
) -> None:
    (tmp_path / "config.yaml").write_text(f"compressor: {{{key}}}\n")
    line = {
        "time_s": 1.0,
        "compressor_rung": rung,
        "compressor_artifact_bytes": 12_345,
        "compressor_latency_ms_8": 0.25,
        "compressor_kl_mean": 0.0125,
        "compressed_share": 0.5,
        "strategy_stage": 1,
    }
    (tmp_path / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    run = open_run("a", tmp_path)
    run.series.read_on()
    assert run_view(run)["compression"] == {
        "Rung": words,
        "Stage": "improvement",
        "Compressed share": "50 %",
        "Size": "12.3 kB",
        "Latency of 8": "0.25 ms",
        "KL to the policy": "0.0125",
    }


@pytest.mark.parametrize(("given", "base"), [({}, 1e-3), ({"SetLearningRate": {"rate": 0.5}}, 0.5)])
def test_the_rate_that_is_offered_is_the_base_which_the_schedule_falls_from(
    tmp_path: Path, given: dict, base: float
) -> None:
    (tmp_path / "config.yaml").write_text("optimiser: {learning_rate: 0.001, schedule: linear}\n")
    line = {"time_s": 1.0, "learning_rate": 1e-5}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    run = open_run("a", tmp_path)
    run.series.read_on()
    shown = run_view(run, Told({"set": given}))["monitor"]
    assert shown["now"]["SetLearningRate"] == base
    assert shown["present"] == {"SetLearningRate": 1e-5}
