"""The files of the monitor, on a disk with errors."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from aclearn.runs import RunFolder
from aclearn.runs.atomic_file import write_atomically
from aclearn.wire import Action
from services.monitor.files import MonitorFiles


@pytest.mark.parametrize(
    ("refusals", "code", "attempts", "written"),
    [(2, errno.ENOSPC, 3, True), (2, errno.EIO, 1, False), (1000, errno.ENOSPC, None, False)],
    ids=["full for a moment", "another error", "full for good"],
)
def test_the_summary_is_tried_again_for_a_moment_on_a_full_disk(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    refusals: int,
    code: int,
    attempts: int | None,
    written: bool,
) -> None:
    monkeypatch.setattr("services.monitor.files._SUMMARY_AGAIN_AFTER_S", 0.001)
    tried = []

    def refusing(path: Path, data: bytes) -> None:
        tried.append(path)
        if len(tried) <= refusals:
            raise OSError(code, "refused")
        write_atomically(path, data)

    with RunFolder.create(tmp_path, "r", "x: 1\n") as folder:
        files = MonitorFiles(folder)
        view = files.open_metrics(0.0)
        if attempts is None:
            monkeypatch.setattr("services.monitor.files._SUMMARY_WITHIN_S", 0.05)
        monkeypatch.setattr("aclearn.runs.summary.write_atomically", refusing)
        assert files.finish(view.line(1.0), view, reason="over", seed=1) is written
        assert attempts is None or len(tried) == attempts
        assert folder.summary_path.exists() is written
        if written:
            assert json.loads(folder.summary_path.read_text())["reason"] == "over"
        (events,) = folder.path.glob("events.*")
        shown = events.read_bytes()
        assert b"configuration" in shown and b"```yaml\nx: 1\n\n```" in shown


def test_the_log_of_actions_has_the_refusal_of_a_receiver(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path, "r", "x: 1\n") as folder:
        files, action = MonitorFiles(folder), Action("", "SetChain", {"rung": 2})
        for refusal in ("", "no such rung"):
            files.write_action({"time_s": 1.0, "env_steps": 8}, action, refusal)
        files.close()
        written = (folder.path / "actions.jsonl").read_text().splitlines()
    lines = [json.loads(line) for line in written]
    assert [line["rung"] for line in lines] == [2, 2]
    assert [line.get("refused") for line in lines] == [None, "no such rung"]
