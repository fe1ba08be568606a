"""Full disks and kills in the middle of a save: the last good checkpoint stays.

The processes are real: they are stopped by RLIMIT_FSIZE, by a full file system, and by SIGKILL.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import aclearn
from aclearn.errors import CheckpointError
from aclearn.runs import list_checkpoints, load_checkpoint, load_newest, save_checkpoint
from tests.support.disk import mounted_disk
from tests.support.waiting import DEADLINE_S, run_python, wait_for

_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(aclearn.__file__).parents[1])}
_SAVE = """
import os, resource, sys
from pathlib import Path
import numpy as np
from aclearn.errors import CheckpointError
from aclearn.runs import save_checkpoint

def save(dir, label, values):
    save_checkpoint(Path(dir), tensors={"w": np.full(values, label, np.float32)},
                    state={"updates": label}, label=label, keep=2)
"""


def _save(dir: Path, label: int, values: int) -> None:
    tensors = {"w": np.full(values, label, np.float32)}
    save_checkpoint(dir, tensors=tensors, state={"updates": label}, label=label, keep=2)


def _newest_label(dir: Path) -> int:
    checkpoint = load_newest(dir)
    assert checkpoint is not None
    assert checkpoint.state == {"updates": checkpoint.label}
    assert (checkpoint.tensors["w"] == checkpoint.label).all()
    return checkpoint.label


@pytest.mark.parametrize("limit_bytes", [1, 1000, 4_000_000])
def test_a_save_that_does_not_fit_leaves_the_last_good_one_and_no_rest(
    tmp_path: Path, limit_bytes: int
) -> None:
    _save(tmp_path, 1, values=10)
    script = _SAVE + (
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit_bytes}, {limit_bytes}))\n"
        "try: save(sys.argv[1], 2, 1_000_000)\nexcept CheckpointError as exc: print(exc)\n"
    )
    done = run_python("-c", script, tmp_path, env=_ENVIRONMENT)
    assert "checkpoint 2 (4000" in done.stdout
    assert "(File too large); the ones before it stay" in done.stdout
    assert done.stderr == ""
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "000001-1.json",
        "000001-1.safetensors",
    ]
    assert _newest_label(tmp_path) == 1


def test_a_save_whose_state_does_not_fit_leaves_no_tensors_behind(tmp_path: Path) -> None:
    _save(tmp_path, 1, values=10)
    script = _SAVE + (
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try: save_checkpoint(Path(sys.argv[1]), tensors={'w': np.zeros(10)},\n"
        "                     state={'text': 'x' * 5000}, label=2, keep=1)\n"
        "except CheckpointError as exc: print(exc)\n"
    )
    done = run_python("-c", script, tmp_path, env=_ENVIRONMENT)
    assert "checkpoint 2" in done.stdout
    assert len(list(tmp_path.iterdir())) == 2
    assert _newest_label(tmp_path) == 1


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 256 KiB, where this user may mount one."""
    with mounted_disk("256k") as disk:
        if isinstance(disk, str):
            pytest.skip(f"RLIMIT_FSIZE stands for the full disk above: {disk}")
        yield disk.path


def test_a_full_disk_leaves_the_last_good_one_and_the_next_that_fits_is_saved(
    small_disk: Path,
) -> None:
    _save(small_disk, 1, values=10_000)
    with pytest.raises(CheckpointError, match="No space left on device"):
        _save(small_disk, 2, values=60_000)
    assert len(list(small_disk.iterdir())) == 2
    assert _newest_label(small_disk) == 1
    _save(small_disk, 3, values=10_000)
    assert _newest_label(small_disk) == 3


def test_a_kill_at_any_step_of_a_save_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    """A child kills itself before its n-th call into the file system, for every n."""
    script = _SAVE + (
        """
def killed_before(call, dir):
    calls = 0
    def counted(original):
        def wrapped(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls == call:
                os.kill(os.getpid(), 9)
            return original(*args, **kwargs)
        return wrapped
    for name in ("open", "write", "fsync", "replace", "unlink"):
        setattr(os, name, counted(getattr(os, name)))
    save(dir, 3, 1000)

for call in range(1, 100):
    dir = Path(sys.argv[1]) / str(call)
    for label in (1, 2):
        save(dir, label, 1000)
    child = os.fork()
    if child == 0:
        killed_before(call, dir)
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        print(call)
        break
"""
    )
    done = run_python(*("-c", script, tmp_path), env={**_ENVIRONMENT, "OMP_NUM_THREADS": "1"})
    assert done.stderr == ""
    unharmed = int(done.stdout)
    newest = [_newest_label(tmp_path / str(call)) for call in range(1, unharmed + 1)]
    # The JSON is set aside (open, write, fsync), the tensors are written (these and rename, open,
    # fsync of the folder), the JSON's rename commits. Then the oldest goes: rename, four removals.
    assert unharmed == 3 + 6 + 3 + 1 + 4 + 2 + 1
    assert newest == [2] * 10 + [3] * 10
    for call in range(1, unharmed + 1):
        dir = tmp_path / str(call)
        for path in list_checkpoints(dir):
            assert load_checkpoint(path).tensors["w"].shape == (1000,), "what is listed is whole"
        _save(dir, 4, values=1000)
        assert _newest_label(dir) == 4
        assert len(list(dir.iterdir())) == 4, "the next save removes what the kill left"


def test_kill_9_in_the_middle_of_a_write_leaves_the_last_good_one(tmp_path: Path) -> None:
    script = _SAVE + (
        "for label in range(1, 1000):\n"
        "    save(sys.argv[1], label, 2_000_000)\n"
        "    print(label, flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], env=_ENVIRONMENT, stdout=subprocess.PIPE
    ) as saver:
        assert saver.stdout is not None
        assert saver.stdout.readline() == b"1\n"
        wait_for(lambda: any(_sizes(tmp_path)), "a write is seen", pause_s=0.0)
        saver.send_signal(signal.SIGKILL)
        reported = 1 + len(saver.stdout.readlines())
        assert saver.wait(timeout=DEADLINE_S) == -signal.SIGKILL
    assert _newest_label(tmp_path) in (reported, reported + 1)
    _save(tmp_path, 5000, values=10)
    assert _newest_label(tmp_path) == 5000
    assert len(list(tmp_path.iterdir())) == 2 * len(list_checkpoints(tmp_path)) == 4


def _sizes(dir: Path) -> list[int]:
    """Sizes of the files that are being written."""
    sizes = []
    for path in dir.glob("*.tmp"):
        try:
            sizes.append(path.stat().st_size)
        except FileNotFoundError:
            continue
    return sizes
