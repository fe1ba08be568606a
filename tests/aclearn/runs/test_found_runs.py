from __future__ import annotations

from pathlib import Path

from aclearn.runs import runs_in


def test_runs_are_found_in_a_folder_and_in_those_below_it_in_the_order_of_their_numbers(
    tmp_path: Path,
) -> None:
    names = ["b-2", "b-10", "a/seed-10", "a/seed-9", "a/deep/er", ".b-2.x1", "a/.seed-9.x1"]
    for name in names:
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.yaml").touch()
    (tmp_path / "b-2" / "checkpoints").mkdir()
    (tmp_path / "empty").mkdir()
    found = [str(path.relative_to(tmp_path)) for path in runs_in(tmp_path)]
    assert found == ["a/seed-9", "a/seed-10", "b-2", "b-10"]
    assert runs_in(tmp_path / "b-2") == [tmp_path / "b-2"]
    assert runs_in(tmp_path / "empty") == runs_in(tmp_path / "nowhere") == []
