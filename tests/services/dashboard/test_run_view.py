"""A run as the page shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
