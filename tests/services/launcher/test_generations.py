"""No two trainers of a run have one generation, whatever checkpoint is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aclearn.config import load_config
from aclearn.errors import CheckpointError
from aclearn.runs import list_checkpoints, load_newest
from services.roles import TRAINER
from services.start.folder import role_folder
from tests.support.whole_run import WholeRun


@pytest.mark.parametrize("damage", ["cut", "without JSON", "without claims"])
def test_actors_follow_a_trainer_that_reads_the_checkpoint_of_an_older_one(
    tmp_path: Path, damage: str
) -> None:
    run = WholeRun(
        tmp_path,
        run={"max_updates": 40, "checkpoint_every_s": 0.5, "checkpoints_kept": 30},
        actors={"wait_for_weights": True},
    )
    beats = run.heartbeats

    def learn(generation: int) -> None:
        def counters() -> dict[str, int]:
            return beats["trainer-0"].counters if "trainer-0" in beats else {"generation": -1}

        run.run_until(lambda: counters()["generation"] == generation, "the trainer has begun")
        # more than its successor has: the actors' version is higher
        reached = counters()["updates"] + 8
        run.run_until(lambda: counters()["updates"] >= reached, "it learns", most_rounds=300)
        run.kill("trainer-0")

    for generation in range(3):
        learn(generation)
        for path in list_checkpoints(run.path / "checkpoints"):
            text = path.read_text()
            if json.loads(text)["body"]["state"]["generation"] == 0:
                break
            if damage == "without JSON":
                path.unlink()
            else:
                path.with_suffix(".safetensors").write_bytes(b"cut")
        if damage == "without claims":
            (run.path / "generation.json").unlink()
        run.start(TRAINER)
    # an actor that waits for weights which never come acts once in 480 rounds, 30 s
    summary = run.run(most_rounds=600)
    assert (summary["updates"], summary["generation"]) == (40, 3)


def test_a_resume_without_the_json_files_stops_in_words_before_any_role_starts(
    tmp_path: Path,
) -> None:
    WholeRun(tmp_path, run={"max_updates": 4}).run()
    for path in list_checkpoints(tmp_path / "r" / "checkpoints"):
        path.unlink()
    before = {path: path.read_bytes() for path in (tmp_path / "r").rglob("*") if path.is_file()}
    words = r"r/checkpoints has no checkpoint, but 000001-\d+\.safetensors.*Copy the missing files"
    with pytest.raises(CheckpointError, match=words):
        WholeRun(tmp_path, resume=True, run={"max_updates": 8})
    for file, content in before.items():
        assert file.name.startswith(".lock") or file.read_bytes() == content, file

    # so does a trainer by hand, and one that is started again
    config = load_config(tmp_path / "r" / "config.yaml")
    with role_folder(config, "trainer") as folder, pytest.raises(CheckpointError, match=words):
        load_newest(folder.checkpoints_dir)
    assert sorted(before) == sorted(path for path in before if path.exists())
