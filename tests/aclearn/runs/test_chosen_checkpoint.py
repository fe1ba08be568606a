"""Checkpoints by their agent steps, by their part of the run, and by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aclearn.errors import CheckpointError
from aclearn.runs import Mark, checkpoint_in, save_checkpoint

#: Steps and mark, in the order in which they are written.
_SAVED = [
    *((0, "kept"), (40, "kept"), (130, "kept"), (130, "best"), (90, "kept")),
    *((160, ""), (200, "")),
]


@pytest.fixture
def dir(tmp_path: Path) -> Path:
    for steps, mark in _SAVED:
        _save(tmp_path, steps, mark)
    return tmp_path


def _save(dir: Path, steps: int, mark: Mark) -> None:
    save_checkpoint(
        dir,
        tensors={"w": np.zeros(2, np.float32)},
        state={"account": {"env_steps": steps}},
        label=steps // 10,
        keep=3,
        mark=mark,
        spread=9,
    )


@pytest.mark.parametrize(
    ("at", "steps"),
    [
        ("newest", 200),
        ("best", 130),
        *((steps, steps) for steps, _ in _SAVED),
        ("90", 90),
        ("9e1", 90),
        ("0%", 0),
        ("100%", 200),
        ("50%", 90),  # 45 % is nearer than 65 %
        ("60%", 130),
        (" 47.5% ", 90),
    ],
)
def test_each_checkpoint_is_found(dir: Path, at: str | int, steps: int) -> None:
    assert checkpoint_in(dir, at).state["account"]["env_steps"] == steps


def test_the_best_of_a_population_s_folder_has_no_mark_and_was_judged(tmp_path: Path) -> None:
    for steps, judged in ((10, {"by": "population", "return_mean": 3.0}), (20, None)):
        state = {"account": {"env_steps": steps}, "judged": judged}
        tensors = {"w": np.zeros(2, np.float32)}
        save_checkpoint(tmp_path, tensors=tensors, state=state, label=1, keep=2)
    assert checkpoint_in(tmp_path, "best").state["account"]["env_steps"] == 10


_THERE = "0 (0%), 40 (20%), 90 (45%), 130 (65%, best), 160 (80%), 200 (100%)"


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("91", f"no checkpoint after 91 agent steps; choose {_THERE}"),
        ("101%", "expected newest, best, agent steps or 0% to 100%, got '101%'"),
        ("-1%", f"there are checkpoints at {_THERE}"),
        ("%", "got '%'"),
        ("last", f"got 'last'; there are checkpoints at {_THERE}"),
    ],
)
def test_an_unknown_one_is_refused_with_those_that_there_are(
    dir: Path, at: str, words: str
) -> None:
    with pytest.raises(CheckpointError) as raised:
        checkpoint_in(dir, at)
    assert words in str(raised.value)


def test_without_a_best_or_any_the_sentence_says_why(dir: Path, tmp_path: Path) -> None:
    for path in dir.glob("*-best.*"):
        path.unlink()
    with pytest.raises(CheckpointError, match="a mean of 100 episodes or an evaluation; choose 0"):
        checkpoint_in(dir, "best")
    for at in ("newest", "best", "50%", "7"):
        with pytest.raises(CheckpointError, match="no checkpoint yet; train first"):
            checkpoint_in(tmp_path / "missing", at)


def test_where_the_newest_is_damaged_another_one_of_its_steps_or_the_others_are_named(
    dir: Path,
) -> None:
    (newest,) = dir.glob("*-20.safetensors")
    newest.write_bytes(b"")
    for at in ("100%", "200"):
        with pytest.raises(CheckpointError, match=r"is damaged.*; choose 0 .*, 160 ") as raised:
            checkpoint_in(dir, at)
        assert "200 (100%" not in str(raised.value)
    _save(dir, 200, "kept")
    assert checkpoint_in(dir, "200").path.stem.endswith("-20-kept")


def test_a_damaged_one_is_not_offered(dir: Path) -> None:
    (path,) = dir.glob("*-9-kept.json")
    path.write_text("{}")
    with pytest.raises(CheckpointError, match="after 90 agent steps") as raised:
        checkpoint_in(dir, 90)
    assert "45%" not in str(raised.value)
