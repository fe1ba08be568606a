"""Claims of a run's generations."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aclearn.errors import CheckpointError
from aclearn.runs import RunFolder, claim_generation, save_checkpoint


def _save(folder: RunFolder, generation: int) -> Path:
    return save_checkpoint(
        folder.checkpoints_dir, tensors={}, state={"generation": generation}, label=1, keep=9
    )


def test_each_claim_is_the_next_number_and_is_on_disk(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "r", "x\n")
    for expected in range(3):
        assert claim_generation(folder) == expected
        assert folder.generation_path.read_text() == f"{expected}\n"
    # claims count, not the checkpoints
    _save(folder, 0)
    assert claim_generation(folder) == 3


def test_without_claims_every_checkpoint_counts_that_can_be_read(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "r", "x\n")
    _save(folder, 3)
    _save(folder, 7).with_suffix(".safetensors").unlink()  # damaged, and newer than the whole one
    _save(folder, 5)
    _save(folder, 6).write_text("{")
    assert claim_generation(folder) == 8


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "true", '{"generation": 1}'])
def test_damaged_claims_end_the_trainer_and_stay(tmp_path: Path, text: str) -> None:
    folder = RunFolder.create(tmp_path, "r", "x\n")
    folder.generation_path.write_text(text)
    with pytest.raises(
        CheckpointError, match=re.escape(f"{folder.generation_path} cannot be read")
    ):
        claim_generation(folder)
    assert folder.generation_path.read_text() == text


def test_a_claim_that_cannot_be_written_is_none(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "r", "x\n")
    assert claim_generation(folder) == 0
    (folder.path / "generation.json.tmp").mkdir()
    with pytest.raises(CheckpointError, match="no weights may be published"):
        claim_generation(folder)
    assert folder.generation_path.read_text() == "0\n"
