"""What a run does not understand in its folder stays, and no link leads a write out of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from aclearn.errors import CheckpointError, ConfigError, RunFolderError
from aclearn.runs import (
    MetricsWriter,
    RunFolder,
    check_file,
    claim_generation,
    list_checkpoints,
    load_newest,
    lock_role,
    lock_run,
    save_checkpoint,
    write_atomically,
    write_summary,
)


def _save(dir: Path, label: int, keep: int = 2) -> Path:
    tensors = {"w": np.full(3, label, np.float32)}
    return save_checkpoint(dir, tensors=tensors, state={"n": label}, label=label, keep=keep)


@pytest.mark.parametrize("kind", ["device", "link", "aside"])
def test_what_is_no_file_of_ours_is_not_replaced(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "out"
    if kind == "device":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(tmp_path / "nowhere")
    else:
        (tmp_path / "out.tmp").write_text("the user's")
    before = [each.lstat() for each in tmp_path.iterdir()]
    with pytest.raises(ConfigError, match=r"a device or a broken link|out\.tmp exists, in which"):
        check_file(path, "--out", force=True)
    assert [each.lstat() for each in tmp_path.iterdir()] == before


def _files(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file() and ".lock" not in path.name)
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.fixture
def learned(tmp_path: Path) -> Path:
    """The folder of a run with checkpoints of 1, 2 and 3 updates and no process."""
    with RunFolder.create(tmp_path, "r", "x\n") as folder:
        for label in (1, 2, 3):
            _save(folder.checkpoints_dir, label, keep=3)
    return folder.path


def test_weights_without_their_json_are_never_removed_nor_overwritten(learned: Path) -> None:
    dir = learned / "checkpoints"
    for path in list_checkpoints(dir):
        path.unlink()
    before = _files(learned)
    words = r"no checkpoint, but 000001-1\.safetensors, 000002-2\.safetensors, .*--overwrite"
    for read in (load_newest, lambda dir: RunFolder.open(learned).check_resumable()):
        with pytest.raises(CheckpointError, match=words):
            read(dir)
    with pytest.raises(RunFolderError, match="exists already"):
        RunFolder.create(learned.parent, "r", "y\n")
    assert _files(learned) == before
    # a trainer beside them
    for label in (3, 4, 5):
        _save(dir, label, keep=1)
    assert list_checkpoints(dir)[0].stem == "000006-5"
    assert before.items() <= _files(learned).items()


@pytest.mark.parametrize("found", ["cut", "other format", "renamed", "no weights", "short weights"])
def test_what_is_no_whole_checkpoint_is_neither_pruned_nor_counted(
    learned: Path, found: str
) -> None:
    dir = learned / "checkpoints"
    newest = list_checkpoints(dir)[0]
    text, tensors = newest.read_bytes(), newest.with_suffix(".safetensors")
    if found == "cut":
        newest.write_bytes(text[:-3])
    elif found == "other format":
        newest.write_bytes(text.replace(b'"format":3', b'"format":1'))
    elif found == "renamed":
        newest.rename(dir / "000009-9.json")
    elif found == "no weights":
        tensors.unlink()
    else:
        tensors.write_bytes(tensors.read_bytes()[:-1])
    others = {"notes.txt": b"mine", "x.tmp": b"mine", "000012-7.safetensors.tmp": b"mine"}
    for name, content in others.items():
        (dir / name).write_bytes(content)
    strange = {name: text for name, text in _files(dir).items() if not name.startswith("00000")}
    strange |= {name: text for name, text in _files(dir).items() if "-3." in name or "-9." in name}
    for label in range(10, 14):
        _save(dir, label, keep=2)
    kept = _files(dir)
    assert strange.items() <= kept.items()
    assert len(kept) == len(strange) + 4
    newest_two = [path.name.partition("-")[2] for path in list_checkpoints(dir)[:2]]
    assert newest_two == ["13.json", "12.json"]
    assert load_newest(dir).label == 13


def test_a_run_whose_checkpoints_are_all_gone_is_not_begun_again_without_a_word(
    learned: Path,
) -> None:
    for path in (learned / "checkpoints").iterdir():
        path.unlink()
    folder = RunFolder.open(learned)
    folder.check_resumable()  # nothing tells that it has learned
    folder.metrics_path.write_text('{"learned_steps": 320}\n')
    with pytest.raises(CheckpointError, match=r"has learned .*has no checkpoint.*--overwrite"):
        folder.check_resumable()


def test_a_failed_start_makes_way_without_what_is_not_its_own(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path, "r", "x\n") as folder:
        _save(folder.checkpoints_dir, 0)
        claim_generation(folder)
        folder.directives_path.write_text("{}")
        (folder.checkpoints_dir / ".keep").write_text("mine")
    with RunFolder.create(tmp_path, "r", "y\n"):
        assert _files(folder.path) == {"config.yaml": b"y\n", "checkpoints/.keep": b"mine"}
    _save(folder.checkpoints_dir, 0).with_suffix(".safetensors").write_bytes(b"cut")
    with pytest.raises(RunFolderError, match="exists already"):
        RunFolder.create(tmp_path, "r", "z\n")


_WRITES = {
    ".lock": lambda path: RunFolder.open(path, lock=lock_run).close(),
    ".lock-trainer": lambda path: lock_role(path, "trainer", by_hand=False).close(),
    "config.yaml.tmp": lambda path: RunFolder.open(path).write_config_yaml("z\n"),
    "generation.json.tmp": lambda path: claim_generation(RunFolder.open(path)),
    "metrics.jsonl": lambda path: MetricsWriter(path / "metrics.jsonl").close(),
    "tuner.jsonl": lambda path: MetricsWriter(path / "tuner.jsonl").close(),
    "summary.json.tmp": lambda path: write_summary(path / "summary.json", {}),
    "monitor_state.json.tmp": lambda path: write_atomically(path / "monitor_state.json", b"{}"),
    ".reserved.tmp": lambda path: RunFolder.open(path).reserve(),
    "checkpoints": lambda path: RunFolder.open(path, lock=lock_run).close(),
    "logs": lambda path: RunFolder.open(path, lock=lock_run).close(),
}


@pytest.mark.parametrize("name", _WRITES)
def test_no_symbolic_link_is_followed_when_a_run_is_written(
    learned: Path, tmp_path: Path, name: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    link = learned / name
    if link.is_dir():
        elsewhere.mkdir()
        for path in link.iterdir():
            path.unlink()
        link.rmdir()
    else:
        elsewhere.write_text('{"mine": 1}\n{"torn"')
        link.unlink(missing_ok=True)
    link.symlink_to(elsewhere)
    with pytest.raises((RunFolderError, CheckpointError, OSError), match="is a symbolic link"):
        _WRITES[name](learned)
    assert link.is_symlink()
    if elsewhere.is_dir():
        assert list(elsewhere.iterdir()) == []
    else:
        assert elsewhere.read_text() == '{"mine": 1}\n{"torn"'


@pytest.mark.parametrize("name", [".lock", "checkpoints", "config.yaml.tmp"])
def test_a_dangling_link_makes_nothing_elsewhere(learned: Path, tmp_path: Path, name: str) -> None:
    link = learned / name
    if link.is_dir():
        link.rename(tmp_path / "away")
    link.unlink(missing_ok=True)
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises((RunFolderError, OSError), match="is a symbolic link"):
        _WRITES[name](learned)
    assert not (tmp_path / "elsewhere").exists()


def test_a_link_inside_the_run_and_a_link_to_a_run_are_fine(learned: Path, tmp_path: Path) -> None:
    (learned / "checkpoints").rename(learned / "kept")
    (learned / "checkpoints").symlink_to("kept")
    (tmp_path / "link").symlink_to(learned)
    with RunFolder.open(tmp_path / "link", lock=lock_run) as folder:
        _save(folder.checkpoints_dir, 4)
        assert folder.name == "r"
    assert load_newest(learned / "kept").label == 4


def test_linked_files_of_checkpoints_are_not_removed_with_old_ones(
    learned: Path, tmp_path: Path
) -> None:
    dir = learned / "checkpoints"
    oldest = list_checkpoints(dir)[-1]
    tensors = oldest.with_suffix(".safetensors")
    tensors.rename(tmp_path / "archive.safetensors")
    tensors.symlink_to(tmp_path / "archive.safetensors")
    assert load_newest(dir).label == 3
    for label in (4, 5, 6):
        _save(dir, label, keep=1)
    assert tensors.is_symlink() and oldest.exists()


def test_a_resume_beside_a_part_of_a_copy_names_it_and_the_newest_whole_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with RunFolder.create(tmp_path, "r", "x\n") as folder:
        for label in (3, 4):
            _save(folder.checkpoints_dir, label, keep=2)
        newest, older = list_checkpoints(folder.checkpoints_dir)
    newest.unlink()
    folder.check_resumable()
    [record] = caplog.records
    assert f"unread: {newest.stem}.safetensors; " in record.getMessage()
    assert record.getMessage().endswith(f"the newest whole one is {older.stem}")


def test_hidden_and_foreign_files_do_not_stop_a_fresh_run_from_being_resumed(
    tmp_path: Path,
) -> None:
    with RunFolder.create(tmp_path, "r", "x\n") as folder:
        (folder.checkpoints_dir / ".DS_Store").write_text("")
    folder.check_resumable()
    assert load_newest(folder.checkpoints_dir) is None


def test_a_save_beside_a_reader_is_never_taken_for_a_part(tmp_path: Path) -> None:
    script = (
        "import sys, numpy as np; from pathlib import Path\n"
        "from aclearn.runs import save_checkpoint\n"
        "for label in range(100):\n"
        "    save_checkpoint(Path(sys.argv[1]), tensors={'w': np.zeros(1000)}, state={},\n"
        "                    label=label, keep=1)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], env=os.environ) as saver:
        seen = set()
        while saver.poll() is None:
            try:
                newest = load_newest(tmp_path)
            except CheckpointError as error:  # it was pruned meanwhile
                assert "has no checkpoint, but" not in str(error)
                continue
            seen.add(None if newest is None else newest.label)
    assert saver.returncode == 0 and len(seen) > 1
