"""Disks of tests: one that a killed test has left mounted harms no later test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.disk import mounted_disk
from tests.support.waiting import DEADLINE_S, run_python

#: A test that holds a disk, says where it is, and waits to be killed.
_HOLDS = """
import sys, time
from tests.support.disk import mounted_disk

def test_it(tmp_path):
    with mounted_disk("64k") as disk:
        print(getattr(disk, "path", ""), file=sys.stderr, flush=True)
        time.sleep(300)
"""


def test_a_disk_of_a_killed_test_is_outside_of_its_folders_and_removed_by_the_next(
    tmp_path: Path,
) -> None:
    test, folder = tmp_path / "test_it.py", tmp_path / "folder"
    test.write_text(_HOLDS)
    pytest_of_it = ["-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", f"--basetemp={folder}"]
    with subprocess.Popen(
        [sys.executable, *pytest_of_it, str(test)], stderr=subprocess.PIPE, text=True
    ) as killed:
        assert killed.stderr is not None
        said = killed.stderr.readline().strip()
        killed.kill()
        assert killed.wait(DEADLINE_S) == -9
    if not said:
        pytest.skip("a disk cannot be mounted here")
    left = Path(said)
    assert left.is_mount()
    # a later pytest clears the same folder, and ends as its tests do
    test.write_text("def test_it(tmp_path): pass\n")
    later = run_python(*pytest_of_it, test)
    assert later.returncode == 0, later.stdout
    with mounted_disk("64k") as disk:
        assert not isinstance(disk, str) and not left.exists()
        path = disk.path
    assert not path.exists()
