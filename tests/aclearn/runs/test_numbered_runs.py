"""Numbers of runs without a name."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from aclearn.runs import RunFolder, create_next, next_name, numbered_runs, save_checkpoint
from tests.support.waiting import DEADLINE_S

#: Waits for a line, takes the next number, says it, and holds it until its input ends.
_START = """
import sys
from functools import partial
from aclearn.runs import RunFolder, create_next
print("ready", flush=True)
sys.stdin.readline()
folder = create_next(".", "pole", partial(RunFolder.create, ".", config_yaml="x"))
print(folder.path.name, flush=True)
sys.stdin.read()
"""


def _create(dir: Path, name: str, *, learned: bool = True) -> RunFolder:
    folder = RunFolder.create(dir, name, "x\n")
    if learned:
        save_checkpoint(folder.checkpoints_dir, tensors={}, state={}, label=1, keep=1)
    return folder


def test_a_run_takes_the_number_above_the_highest_of_its_experiment(tmp_path: Path) -> None:
    assert next_name(tmp_path / "none", "pole") == "pole-1"
    for name in ("pole-2", "pole-10", "pole-x", "pole-007", "pole-seed99", "pole-3-50", "other-70"):
        _create(tmp_path, name).close()
    assert [path.name for path in numbered_runs(tmp_path, "pole")] == ["pole-10", "pole-2"]
    assert next_name(tmp_path, "pole") == "pole-11"
    assert next_name(tmp_path, "pole-3") == "pole-3-51"
    # whatever has the number
    (tmp_path / "pole-11").touch()
    assert next_name(tmp_path, "pole") == "pole-12"


def test_a_start_that_learned_nothing_gives_its_number_back_unless_it_still_runs(
    tmp_path: Path,
) -> None:
    with ExitStack() as runs:
        create = partial(_create, tmp_path, learned=False)
        for number in (1, 2):
            assert (
                runs.enter_context(create_next(tmp_path, "pole", create)).name == f"pole-{number}"
            )
    with create_next(tmp_path, "pole", create) as again:
        assert again.name == "pole-2"


def test_starts_at_the_same_moment_take_different_numbers(tmp_path: Path) -> None:
    _create(tmp_path, "pole-4", learned=False).close()  # one of them may replace it
    starts = [
        subprocess.Popen(
            [sys.executable, "-c", _START], cwd=tmp_path, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        for _ in range(6)
    ]  # fmt: skip
    try:
        assert [start.stdout.readline() for start in starts] == ["ready\n"] * 6
        for start in starts:
            start.stdin.write("go\n")
            start.stdin.flush()
        names = {start.stdout.readline().strip() for start in starts}
        assert names == {f"pole-{number}" for number in range(4, 10)}
    finally:
        for start in starts:
            start.communicate(timeout=DEADLINE_S)
