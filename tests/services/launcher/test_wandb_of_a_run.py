"""A run in Weights & Biases' offline mode, and what its file then has."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aclearn.metrics.sinks.wandb_sink import ID_FILE
from tests.support.whole_run import WholeRun


def _records(path: Path) -> Iterator[Any]:
    """The records of a .wandb file: LevelDB's log format behind seven bytes.

    A block of 32 KiB has parts of records, each behind a checksum, its length and its kind (1: a
    whole record, 2: the first part, 3: one between, 4: the last); fewer than seven bytes are left.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, record = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if 32_768 - at % 32_768 < 7:
            at += 32_768 - at % 32_768
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield Record.FromString(record)
            record = b""


def _values(items: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The package; its service process and its change of `sys` end with the test."""
    import wandb

    for name in ("exit", "excepthook"):
        monkeypatch.setattr(sys, name, getattr(sys, name))
    yield wandb
    wandb.teardown()


def test_a_run_is_kept_offline_and_a_resumed_one_continues_it(tmp_path: Path, wandb: Any) -> None:
    settings = {
        "env": {"id": "CartPole-v1", "kwargs": {"sutton_barto_reward": True}},
        "metrics": {
            "sinks": [{"wandb": {"mode": "offline", "project": "p"}}],
            "sink_timeout_s": 30.0,
        },
    }
    for most, resume in ((20, False), (40, True)):
        run = WholeRun(tmp_path, resume=resume, run={"max_updates": most}, **settings)
        try:
            run.run()
        finally:
            run.close()
    folder = tmp_path / "r"
    lines = run.lines()
    assert lines[-1]["monitor_sink_failures"] == lines[-1]["monitor_sink_dropped"] == 0

    files = sorted((folder / "wandb").glob("offline-run-*/*.wandb"))
    parts = [[(r.WhichOneof("record_type"), r) for r in _records(file)] for file in files]
    begun = [record.run for part in parts for kind, record in part if kind == "run"]
    assert {each.run_id for each in begun} == {(folder / ID_FILE).read_text()}
    assert (begun[0].project, begun[0].display_name) == ("p", "r")
    sent = _values(begun[0].config.update)
    assert sent["actors"]["envs_per_group"] == 2
    assert sent["env"]["id"] == "CartPole-v1" and "kwargs" not in sent["env"]
    logged = [
        _values(record.history.item) for part in parts for kind, record in part if kind == "history"
    ]
    assert [each["env_steps"] for each in logged] == [line["env_steps"] for line in lines]
    assert logged[-1]["wait_share/actor/emulator"] == lines[-1]["wait_share"]["actor"]["emulator"]
    ends = [record.exit.exit_code for part in parts for kind, record in part if kind == "exit"]
    assert ends == [0, 0]
    summaries = [_values(record.summary.update) for kind, record in parts[-1] if kind == "summary"]
    assert any(each.get("reason") == "max_updates" for each in summaries)
