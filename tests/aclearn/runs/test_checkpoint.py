"""A checkpoint is read back exactly, or rejected."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aclearn.errors import CheckpointError
from aclearn.runs import (
    Checkpoint,
    list_checkpoints,
    load_best,
    load_checkpoint,
    load_newest,
    save_checkpoint,
)
from aclearn.runs import checkpoint as checkpoint_module
from aclearn.runs.thinning import thinned


def _tensors(label: int) -> dict[str, np.ndarray[Any, Any]]:
    return {
        "conv.weight": np.arange(24, dtype=np.float32).reshape(2, 3, 4) + label,
        "step": np.array(label, dtype=np.int64),
        "mask": np.array([True, False]),
    }


def _state(label: int) -> dict[str, Any]:
    return {"architecture": "mlp:4:2", "updates": label, "rng": [1, 2**60], "rate": 0.1 + label}


def _save(dir: Path, label: int, keep: int = 3, mark: str = "", spread: int = 0) -> Path:
    return save_checkpoint(
        dir,
        tensors=_tensors(label),
        state=_state(label),
        label=label,
        keep=keep,
        mark=mark,
        spread=spread,
    )


def _is(checkpoint: Checkpoint | None, label: int) -> bool:
    assert checkpoint is not None
    expected = _tensors(label)
    assert checkpoint.tensors.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(checkpoint.tensors[name], array, strict=True)
    assert checkpoint.state == _state(label)
    return checkpoint.label == label


def test_what_was_saved_comes_back_bit_by_bit(tmp_path: Path) -> None:
    path = _save(tmp_path / "new", 7)
    assert path == tmp_path / "new" / "000001-7.json"
    assert _is(load_checkpoint(path), 7)
    assert sorted(each.name for each in path.parent.iterdir()) == [
        "000001-7.json",
        "000001-7.safetensors",
    ]


def test_arrays_of_any_layout_and_shape_come_back_equal_and_writable(tmp_path: Path) -> None:
    base = np.random.default_rng(1).normal(size=(4, 5, 6)).astype(np.float32)
    tensors = {
        "fortran": np.asfortranarray(base),
        "strided": base[::2, :, ::-1],
        "transposed": base.T,
        "scalar": np.array(2.5),
        "empty": np.zeros((0, 3), np.float16),
        "nan": np.array([np.nan, np.inf], np.float32),
    }
    path = save_checkpoint(tmp_path, tensors=tensors, state={}, label=0, keep=1)
    loaded = load_checkpoint(path).tensors
    for name, array in tensors.items():
        np.testing.assert_array_equal(loaded[name], array, strict=True)
        assert loaded[name].flags.writeable


def test_an_empty_or_missing_folder_has_no_newest(tmp_path: Path) -> None:
    assert load_newest(tmp_path) is None
    assert load_newest(tmp_path / "missing") is None
    assert load_best(tmp_path) is None


def test_the_last_k_and_the_last_best_stay(tmp_path: Path) -> None:
    for label in range(8):
        _save(tmp_path, label, keep=2, mark="best" if label in (1, 3) else "")
    assert [path.stem for path in list_checkpoints(tmp_path)] == [
        "000008-7",
        "000007-6",
        "000004-3-best",
    ]
    assert len(list(tmp_path.iterdir())) == 6
    assert _is(load_best(tmp_path), 3)
    assert _is(load_newest(tmp_path), 7)


def test_a_run_resumes_from_one_without_a_mark_whatever_was_written_last(tmp_path: Path) -> None:
    _save(tmp_path, 5)
    _save(tmp_path, 3, mark="best")
    _save(tmp_path, 4, mark="kept", spread=2)
    assert _is(load_newest(tmp_path), 5)
    assert _is(load_best(tmp_path), 3)
    for path in tmp_path.glob("*-5.*"):
        path.unlink()
    assert _is(load_newest(tmp_path), 4)  # better than nothing


def test_kept_ones_lie_evenly_over_the_run_and_the_first_and_last_stay(tmp_path: Path) -> None:
    for label in range(0, 1000, 10):
        _save(tmp_path, label, mark="kept", spread=5)
    labels = sorted(load_checkpoint(path).label for path in tmp_path.glob("*.json"))
    assert (len(labels), labels[0], labels[-1]) == (5, 0, 990)
    gaps = np.diff(labels)
    assert gaps.max() < 3 * gaps.min()


@pytest.mark.parametrize("count", [1, 2, 3, 10, 16])
def test_however_many_are_kept_no_gap_is_much_longer_than_another(count: int) -> None:
    labels: list[int] = []
    for label in range(500):
        labels.append(label)
        labels = [labels[place] for place in thinned(labels, count)]
        assert labels[-1] == label and len(labels) <= count
        if len(labels) == count > 2:
            gaps = np.diff(labels)
            # the newest has just come
            assert labels[0] == 0 and gaps[:-1].max() < 3 * gaps[:-1].min()


def test_the_newest_is_the_one_saved_last_whatever_its_label(tmp_path: Path) -> None:
    for label in (90, 100, 20):
        _save(tmp_path, label, keep=2)
    assert _is(load_newest(tmp_path), 20)
    assert [path.stem for path in list_checkpoints(tmp_path)] == ["000003-20", "000002-100"]


def test_numbers_beyond_six_digits_are_ordered_as_numbers(tmp_path: Path) -> None:
    for suffix in (".json", ".safetensors"):
        _save(tmp_path / "x", 1).with_suffix(suffix).rename(tmp_path / f"999999-1{suffix}")
    for label in (2, 3):
        _save(tmp_path, label)
    assert [path.stem for path in list_checkpoints(tmp_path)] == [
        "1000001-3",
        "1000000-2",
        "999999-1",
    ]


def test_a_file_truncated_at_any_place_is_refused(tmp_path: Path) -> None:
    path = _save(tmp_path, 1)
    for file in (path, path.with_suffix(".safetensors")):
        whole = file.read_bytes()
        for size in {*range(0, len(whole), 7), len(whole) - 1}:
            file.write_bytes(whole[:size])
            with pytest.raises(CheckpointError, match="is damaged"):
                load_checkpoint(path)
        file.write_bytes(whole + b"\n")
        with pytest.raises(CheckpointError, match="is damaged"):
            load_checkpoint(path)
        file.write_bytes(whole)
    assert _is(load_checkpoint(path), 1)


@pytest.mark.parametrize(
    ("suffix", "words"), [(".json", "is damaged"), (".safetensors", "is damaged.*sha256")]
)
def test_a_flipped_bit_of_any_byte_is_refused(tmp_path: Path, suffix: str, words: str) -> None:
    path = _save(tmp_path, 1)
    file = path.with_suffix(suffix)
    whole, chance = file.read_bytes(), random.Random(5)
    for position in range(len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 1 << chance.randrange(8)
        file.write_bytes(changed)
        with pytest.raises(CheckpointError, match=f"{file.name} {words}"):
            load_checkpoint(path)


def test_the_newest_whole_one_is_loaded_and_the_damaged_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    paths = [_save(tmp_path, label, keep=9) for label in range(5)]
    paths[4].write_bytes(b"{}")
    paths[3].with_suffix(".safetensors").unlink()
    with paths[2].with_suffix(".safetensors").open("r+b") as file:
        file.truncate(50)
    with caplog.at_level(logging.WARNING):
        assert _is(load_newest(tmp_path), 1)
    skipped = [record.getMessage() for record in caplog.records]
    assert [f"{label}.json" in text for label, text in zip((4, 3), skipped, strict=False)] == [
        True,
        True,
    ]
    assert "000003-2.safetensors is damaged" in skipped[2]


@pytest.mark.parametrize(("mark", "load"), [("", load_newest), ("best", load_best)])
def test_one_that_a_live_run_replaces_before_it_is_read_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str, load: Any
) -> None:
    _save(tmp_path, 1, keep=1, mark=mark)
    of_disk = checkpoint_module.load_checkpoint

    def late(path: Path) -> Checkpoint:
        if len(seen) < 2:
            seen.append(path)
            _save(tmp_path, 1 + len(seen), keep=1, mark=mark)
        return of_disk(path)

    seen: list[Path] = []
    monkeypatch.setattr(checkpoint_module, "load_checkpoint", late)
    assert _is(load(tmp_path), 3) and len(seen) == 2


def test_where_every_checkpoint_is_damaged_each_is_named(tmp_path: Path) -> None:
    for label in (1, 2):
        _save(tmp_path, label).write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"every checkpoint.*000002-2.*000001-1"):
        load_newest(tmp_path)


def test_after_a_damaged_newest_the_next_save_is_the_newest(tmp_path: Path) -> None:
    _save(tmp_path, 10, keep=1)
    _save(tmp_path, 50, keep=2).write_bytes(b"damaged")
    _save(tmp_path, 11, keep=1)
    assert [path.stem for path in list_checkpoints(tmp_path)] == ["000003-11", "000002-50"]
    assert _is(load_newest(tmp_path), 11)


def test_another_architecture_is_an_error_and_not_skipped(tmp_path: Path) -> None:
    for label in (1, 2):
        _save(tmp_path, label)
    assert _is(load_newest(tmp_path, expect_architecture="mlp:4:2"), 2)
    expected = "000002-2.*another architecture: expected 'nature', found 'mlp:4:2'"
    with pytest.raises(CheckpointError, match=expected):
        load_newest(tmp_path, expect_architecture="nature")


def test_another_format_and_another_name_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _save(tmp_path, 1)
    for suffix in (".json", ".safetensors"):
        path.with_suffix(suffix).rename(tmp_path / f"000009-1{suffix}")
    with pytest.raises(CheckpointError, match="was saved as 000001-1; rename it back"):
        load_checkpoint(tmp_path / "000009-1.json")
    monkeypatch.setattr("aclearn.runs.checkpoint._FORMAT", 4)
    with pytest.raises(CheckpointError, match="has format 3, expected 4"):
        load_checkpoint(tmp_path / "000009-1.json")


def test_a_checkpoint_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"000001-1\.json cannot be read.*No such file"):
        load_checkpoint(tmp_path / "000001-1.json")


@pytest.mark.parametrize(
    ("tensors", "state", "message"),
    [
        ({"w": np.array([object()])}, {}, "tensor 'w' has dtype object"),
        ({"w": np.array(["x"])}, {}, "tensor 'w' has dtype <U1"),
        ({}, {"loss": float("nan")}, "must be JSON with string keys and finite numbers"),
        ({}, {"rng": b"bytes"}, "must be JSON"),
        ({}, {"mixed": {1: 1, "a": 2}}, "must be JSON"),
    ],
)
def test_what_cannot_be_saved_is_refused_by_name_and_leaves_nothing(
    tmp_path: Path, tensors: dict[str, Any], state: dict[str, Any], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        save_checkpoint(tmp_path, tensors=tensors, state=state, label=1, keep=1)
    assert list(tmp_path.iterdir()) == []


def test_keep_and_label_out_of_range_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep=0"):
        _save(tmp_path, 1, keep=0)
    with pytest.raises(ValueError, match="label=-1"):
        _save(tmp_path, -1)
