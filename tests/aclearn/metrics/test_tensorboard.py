from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import Any

import pytest

import aclearn
from aclearn.metrics import TensorBoardWriter
from aclearn.metrics.tags import tagged
from tests.support.waiting import run_python


def _read(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    accumulator.Reload()
    return accumulator


def test_what_is_written_can_be_read_back_over_env_steps(tmp_path: Path) -> None:
    times = iter([100.0, 100.0, 101.0, 102.0, 103.0])
    with TensorBoardWriter(tmp_path, clock=lambda: next(times)) as writer:
        for steps, value in ((1000, None), (2000, -20.5), (3000, -19.25)):
            writer.write({"env_steps": steps, "return_mean_100": value, "updates": steps // 500})
    read = _read(tmp_path)
    assert [(e.step, e.value) for e in read.Scalars("return/mean_100")] == [
        (2000, -20.5),
        (3000, -19.25),
    ]
    assert [(e.wall_time, e.value) for e in read.Scalars("run/updates")] == [
        (101.0, 2.0),
        (102.0, 4.0),
        (103.0, 6.0),
    ]


def test_what_has_a_step_of_its_own_is_at_that_step(tmp_path: Path) -> None:
    with TensorBoardWriter(tmp_path) as writer:
        writer.write({"env_steps": 1000, "pps": 5.0})
        writer.write_at(1, {"tuner_decision": {"rate": None, "verdict": {"given_up": 1.0}}})
        writer.write_at(2, {"tuner_decision": {"rate": 7.0, "verdict": {"accepted": 1.0}}})
    read = _read(tmp_path)
    found = {tag: [(e.step, e.value) for e in read.Scalars(tag)] for tag in read.Tags()["scalars"]}
    assert found == {
        "rate/pps": [(1000, 5.0)],
        "tuner_decision/rate": [(2, 7.0)],
        "tuner_decision/verdict/given_up": [(1, 1.0)],
        "tuner_decision/verdict/accepted": [(2, 1.0)],
    }


def test_each_number_is_in_the_group_of_its_kind_and_the_rest_is_left_out(tmp_path: Path) -> None:
    line = {
        "env_steps": 10,
        "time_s": 1.0,
        "learned_steps_per_s": 2.0,
        "dropped_steps": {"lag": 3},
        "wait_share": {"actor": {"emulator": 0.25, "training queue": 0.5}},
        "policy_loss": 0.1,
        "queue_fill": 0.5,
        "actor_env_faults": 0.0,
        "compressor_kl_mean": 0.01,
        "counter_turns": 5.0,
        "tuner_verdicts": {"kept": 1},
        "monitor_refused_messages": 0,
        "part_seconds": {"actor": {"total": 1.0}},
        "return_mean_100": None,
        "note": "text",
        "list": [1, 2],
    }
    roles = ("actor", "trainer", "compressor", "monitor", "counter")
    with TensorBoardWriter(tmp_path, roles) as writer:
        writer.write(line)
    read = _read(tmp_path)
    assert sorted(read.Tags()["scalars"]) == [
        "actor/env_faults",
        "compressor/kl_mean",
        "counter/turns",
        "loss/policy_loss",
        "monitor/refused_messages",
        "rate/learned_steps_per_s",
        "run/time_s",
        "steps/dropped/lag",
        "trainer/queue_fill",
        "tuner/verdicts/kept",
        "wait/actor/emulator",
        "wait/actor/training queue",
    ]
    assert read.Scalars("wait/actor/training queue")[0].value == 0.5


def test_lines_can_be_seen_while_the_writer_is_open_and_it_has_no_thread(tmp_path: Path) -> None:
    threads = threading.active_count()
    with TensorBoardWriter(tmp_path) as writer:
        writer.write({"env_steps": 5, "pps": 2.0})
        assert threading.active_count() == threads
        assert [e.step for e in _read(tmp_path).Scalars("rate/pps")] == [5]


def test_a_resumed_run_adds_a_file_and_both_parts_are_one_curve(tmp_path: Path) -> None:
    for steps in (5, 6):
        with TensorBoardWriter(tmp_path, clock=lambda: 100.0) as writer:
            writer.write({"env_steps": steps, "pps": 2.0})
    assert len(list(tmp_path.glob("events.out.tfevents.*"))) == 2
    assert [e.step for e in _read(tmp_path).Scalars("rate/pps")] == [5, 6]


def test_without_an_event_file_it_warns_once_and_writes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with TensorBoardWriter(tmp_path / "file" / "run") as writer:
        writer.write({"env_steps": 5, "pps": 2.0})
        writer.write_text("configuration", "x")
    [record] = caplog.records
    assert record.message.startswith(f"event=tensorboard_lost file={tmp_path}/file/run/events.")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_a_full_disk_ends_the_writing_with_one_warning_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full = io.BufferedWriter(io.FileIO("/dev/full", "w"))
    monkeypatch.setattr(Path, "open", lambda path, mode: full)
    writer = TensorBoardWriter(tmp_path)
    writer.write({"env_steps": 5, "pps": 2.0})
    writer.write({"env_steps": 6, "pps": 2.0})
    writer.close()
    assert [r.message.split()[0] for r in caplog.records] == ["event=tensorboard_lost"]
    assert "No space left on device" in caplog.text
    assert full.closed


def test_neither_the_package_nor_the_writer_imports_torch_or_tensorflow(tmp_path: Path) -> None:
    source = (
        "import sys\n"
        "from pathlib import Path\n"
        "import aclearn.metrics, aclearn.views\n"
        "heavy = ('torch', 'tensorflow', 'matplotlib', 'rich', 'tensorboard')\n"
        "print([name for name in heavy if name in sys.modules])\n"
        "with aclearn.metrics.TensorBoardWriter(Path(sys.argv[1])) as writer:\n"
        "    writer.write({'env_steps': 1, 'pps': 2.0})\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    done = run_python(
        *("-W", "error", "-c", source, tmp_path), cwd=Path(aclearn.__file__).parents[1]
    )
    assert (done.stderr, done.stdout) == ("", "[]\n['tensorboard']\n")


def test_indicators_are_with_what_they_are_of_and_the_users_in_a_group_of_their_own() -> None:
    line = {"reward_gap": 2.0, "return_slope_per_s": None, "rho_mean": 1.0, "success_rate": 0.5}
    assert dict(tagged(line, ["trainer"], ["success_rate"])) == {
        "return/reward_gap": 2.0,
        "off_policy/rho_mean": 1.0,
        "indicator/success_rate": 0.5,
    }
