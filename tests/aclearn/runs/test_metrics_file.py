"""The metrics file has complete lines after any crash."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

import aclearn
from aclearn.errors import RunFolderError
from aclearn.runs import MetricsTail, MetricsWriter, read_metrics, read_summary, write_summary
from tests.support.waiting import run_python

_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(aclearn.__file__).parents[1])}


def test_each_line_is_on_disk_as_soon_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsWriter(path) as writer:
        assert writer.last_line is None
        writer.write({"env_steps": 1, "return_mean_100": None})
        assert path.read_text() == '{"env_steps": 1, "return_mean_100": null}\n'
        writer.write({"env_steps": 2})
        assert read_metrics(path) == [{"env_steps": 1, "return_mean_100": None}, {"env_steps": 2}]
        assert writer.last_line == {"env_steps": 2}


def test_a_resumed_run_appends_and_knows_the_last_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"n": 1}\n{"n": 2}\n')
    with MetricsWriter(path) as writer:
        assert writer.last_line == {"n": 2}
        writer.write({"n": 3})
    assert [line["n"] for line in read_metrics(path)] == [1, 2, 3]


@pytest.mark.parametrize("cut", range(1, 10))
def test_a_line_torn_at_any_place_is_cut_off(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "metrics.jsonl"
    line = b'{"n": 22}\n'
    path.write_bytes(b'{"n": 1}\n' + line[:cut])
    assert read_metrics(path) == [{"n": 1}]
    with MetricsWriter(path) as writer:
        assert writer.last_line == {"n": 1}
        writer.write({"n": 3})
    assert path.read_bytes() == b'{"n": 1}\n{"n": 3}\n'


@pytest.mark.parametrize(
    ("before", "last", "after"),
    [
        (b'{"n": 1}\n\0\0\0\0', {"n": 1}, b'{"n": 1}\n'),
        (b'{"n": 1}\n{"n": ', {"n": 1}, b'{"n": 1}\n'),
        (b'{"n": 1}\n\0\0\n\0\n', {"n": 1}, None),
        (b'{"n": 1}\n7\n[1]\n\n', {"n": 1}, None),
        (b'{"n": 1}\n' + b"x" * 200_000 + b"\n", {"n": 1}, None),
        (b'{"n": 1}\nsteps,return', {"n": 1}, b'{"n": 1}\nsteps,return\n'),
        (b"", None, None),
        (b"\n", None, None),
        (b"steps,return\n1,2\n", None, None),
        (b"x" * 100_000, None, b"x" * 100_000 + b"\n"),
        (b'{"n"' + b"x" * 100_000, None, b""),
    ],
)
def test_only_an_unfinished_line_of_ours_is_cut_off(
    tmp_path: Path, before: bytes, last: object, after: bytes | None
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(before)
    with MetricsWriter(path) as writer:
        assert writer.last_line == last
        writer.write({"n": 2})
    assert path.read_bytes() == (before if after is None else after) + b'{"n": 2}\n'
    assert read_metrics(path) == [*([last] if last else []), {"n": 2}]


def test_a_last_line_longer_than_the_first_look_is_found_whole(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    long = {"note": "x" * 150_000}
    path.write_text('{"n": 1}\n' + json.dumps(long) + "\n" + '{"torn": ')
    with MetricsWriter(path) as writer:
        assert writer.last_line == long
    assert read_metrics(path) == [{"n": 1}, long]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()])
def test_a_value_that_is_no_json_is_refused_and_nothing_written(
    tmp_path: Path, value: object
) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsWriter(path) as writer:
        writer.write({"n": 1})
        with pytest.raises(ValueError, match=r"must be JSON without NaN .*'lag_mean'"):
            writer.write({"lag_mean": value})
    assert path.read_bytes() == b'{"n": 1}\n'
    with pytest.raises(ValueError, match="is closed"):
        writer.write({"n": 2})


def test_a_line_that_does_not_fit_the_disk_leaves_whole_lines_only(tmp_path: Path) -> None:
    """RLIMIT_FSIZE stops the write in the middle, as a full disk does."""
    path = tmp_path / "metrics.jsonl"
    script = (
        "import resource, sys; from pathlib import Path; from aclearn.runs import MetricsWriter\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))\n"
        "from aclearn.errors import RunFolderError\n"
        "writer = MetricsWriter(Path(sys.argv[1]))\n"
        "writer.write({'n': 1})\n"
        "try: writer.write({'n': 'x' * 500})\n"
        "except RunFolderError as exc: print(exc)\n"
        "writer.write({'n': 2})\n"
    )
    done = run_python("-c", script, path, env=_ENVIRONMENT)
    assert "metrics.jsonl cannot be continued (File too large)" in done.stdout
    assert path.read_bytes() == b'{"n": 1}\n{"n": 2}\n'


def test_a_damaged_line_in_the_middle_is_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"n": 1}\n{"n\xff: 2}\n{"n": 3}\n')
    with caplog.at_level(logging.WARNING):
        assert read_metrics(path) == [{"n": 1}, {"n": 3}]
    assert "line=2" in caplog.text


def test_metrics_that_are_not_there_or_cannot_be_opened_are_named(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"no metrics to read at .*x\.jsonl"):
        read_metrics(tmp_path / "x.jsonl")
    with pytest.raises(RunFolderError, match=r"x\.jsonl cannot be written"):
        MetricsWriter(tmp_path / "missing" / "x.jsonl")


def test_a_summary_replaces_the_old_one_and_one_that_cannot_be_written_leaves_it(tmp_path) -> None:
    path = tmp_path / "summary.json"
    assert read_summary(path) is None
    for summary in ({"reason": "interrupted"}, {"n": 1, "dropped_steps": {"lag": 2}}):
        write_summary(path, summary)
        assert read_summary(path) == summary
    with pytest.raises(RunFolderError, match=r"summary\.json cannot be written"):
        write_summary(path, {"n": float("nan")})
    with pytest.raises(RunFolderError, match="cannot be written"):
        write_summary(tmp_path / "missing" / "summary.json", {})
    assert read_summary(path) == {"n": 1, "dropped_steps": {"lag": 2}}
    assert [each.name for each in tmp_path.iterdir()] == ["summary.json"]


@pytest.mark.parametrize("content", ["{", "[1]", ""])
def test_a_summary_that_is_no_object_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "summary.json"
    path.write_text(content)
    with pytest.raises(RunFolderError, match=r"summary\.json"):
        read_summary(path)


def test_the_tail_gives_each_line_once_and_waits_for_the_end_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"n": 1}\nno json\n[2]\n{"n": ')
    tail = MetricsTail(path)
    assert tail.read() == [{"n": 1}]
    assert tail.read() == []
    with path.open("a") as file:
        file.write('3}\n{"n": 4}\n')
    assert tail.read() == [{"n": 3}, {"n": 4}]


def test_the_tail_of_a_long_file_begins_with_a_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({"n": 100 + n}) + "\n" for n in range(100)))
    # every line has 11 bytes and an end; 40 bytes hold three of them and a bit
    assert MetricsTail(path, first_bytes=40).read() == [{"n": 197}, {"n": 198}, {"n": 199}]


def test_a_file_that_became_shorter_is_read_from_the_start(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"n": 1}\n{"n": 2}\n{"n": 3, "torn')
    tail = MetricsTail(path)
    assert tail.read() == [{"n": 1}, {"n": 2}]
    path.write_text('{"n": 5}\n')
    assert tail.read() == [{"n": 5}]


def test_each_line_comes_once_though_a_torn_one_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"n": 1}\n{"n": 2}\n{"n": 3, "torn')
    tail = MetricsTail(path)
    assert tail.read() == [{"n": 1}, {"n": 2}]
    with MetricsWriter(path) as writer:
        assert tail.read() == []
        writer.write({"n": 3})
        assert tail.read() == [{"n": 3}]
    # or when the file has grown beyond the torn bytes before it is read
    path.write_text(path.read_text() + '{"n": 4, "to')
    assert tail.read() == []
    with MetricsWriter(path) as writer:
        writer.write({"n": 444444444444444})
        writer.write({"n": 5})
    assert tail.read() == [{"n": 444444444444444}, {"n": 5}]
