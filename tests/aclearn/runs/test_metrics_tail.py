from __future__ import annotations

import json
from pathlib import Path

from aclearn.runs import MetricsTail


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
