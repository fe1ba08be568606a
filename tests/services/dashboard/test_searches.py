"""Sweeps and populations in the dashboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from aclearn.errors import RunFolderError
from services.dashboard.app import make_app
from services.dashboard.monitors import Monitors
from services.dashboard.run_index import RunIndex
from services.dashboard.searches import search_view, searches_in
from tests.support.searches import RATE, trial, write_population, write_sweep


def _client(runs: Path) -> TestClient:
    index = RunIndex(runs, runs.parent / "store")
    index.look()
    return TestClient(
        make_app(index, Monitors(), host="127.0.0.1", token=None), "http://127.0.0.1:8000"
    )


def test_searches_stand_in_the_table_and_a_change_raises_the_revision(tmp_path: Path) -> None:
    write_population(tmp_path / "runs" / "p")
    write_sweep(tmp_path / "runs" / "s")
    (tmp_path / "runs" / "other").mkdir()
    index = RunIndex(tmp_path / "runs", tmp_path / "store")
    index.look()
    found = [(search.id, search.kind) for search in index.searches()]
    assert found == [("p", "population"), ("s", "sweep")]
    before = index.revision
    (tmp_path / "runs" / "s" / "sweep.json").unlink()
    index.look()
    assert [search.id for search in index.searches()] == ["p"]
    assert index.revision > before


def test_a_sweep_has_axes_trials_importance_and_the_best_configuration(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "runs" / "s")
    client = _client(tmp_path / "runs")
    query = {"id": "s", "kind": "sweep"}
    found = client.get("/api/search", params=query).json()
    assert found["keys"] == [
        {"name": RATE, "log": True, "ends": [1e-5, 1e-2]},
        {"name": "policy.hidden", "choices": [[64], [64, 64]]},
    ]
    assert found["importance"] == [[RATE, 0.75], ["policy.hidden", 0.25]]
    first, _, failed = found["trials"]
    assert (first["fitness"], first["runs"]) == (9.0, ["s/trial-0-seed-1"])
    assert (failed["fitness"], failed["reason"]) == (None, "<b>diverged</b>")
    assert found["command"] == f"aclearn train {folder / 'best.yaml'}"
    best = client.get("/api/best", params=query)
    assert best.text == found["yaml"] == "optimiser: {learning_rate: 0.001}\n"
    assert best.headers["content-disposition"] == 'attachment; filename="best.yaml"'


def test_in_the_folder_of_a_sweep_its_runs_have_their_own_names(tmp_path: Path) -> None:
    [search] = searches_in(write_sweep(tmp_path / "s"))
    assert search.id == "s"
    assert search_view(search, inside=False)["trials"][0]["runs"] == ["trial-0-seed-1"]


def test_a_population_has_panels_and_members_and_a_configuration_once_there_is_a_best(
    tmp_path: Path,
) -> None:
    folder = write_population(tmp_path / "runs" / "p")
    client = _client(tmp_path / "runs")
    query = {"id": "p", "kind": "population"}
    assert client.get("/api/best", params=query).status_code == 404
    (folder / "best").mkdir()
    (folder / "best" / "config.yaml").write_text("run: {}\n")
    found = client.get("/api/search", params=query).json()
    fitness, rates = found["panels"]
    assert (fitness["key"], fitness["best"]) == (None, [[1, 5], [2, 7], [3, 9]])
    assert fitness["copies"] == [[[1, 5], [2, 7]], [[2, 6], [3, 8]]]
    assert fitness["dead"] == [1]
    assert (rates["key"], rates["log"]) == (RATE, True)
    assert found["best"] == {"round": 3, "member": 1, "fitness": 9}
    assert [each["run"] for each in found["members"]] == ["p/member-0", "p/member-1", "p/member-2"]
    assert found["yaml"] == "run: {}\n"


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"trials": 3},
        {"trials": [{"number": 1}]},
        {"search": {RATE: {}}},
        {"search": {RATE: {"log": [1]}}},
        {"importance": None},
        {"trials": [trial(0, "complete", {}, 1.0) | {"values": "<b>"}]},
    ],
)
def test_a_damaged_or_foreign_sweep_is_named(tmp_path: Path, changes: dict[str, Any]) -> None:
    [search] = searches_in(write_sweep(tmp_path / "s", **changes))
    with pytest.raises(RunFolderError, match=r"s/sweep\.json"):
        search_view(search, inside=True)


def test_what_is_no_file_of_ours_is_an_answer_with_words_not_a_failure(tmp_path: Path) -> None:
    write_sweep(tmp_path / "runs" / "s")
    (tmp_path / "runs" / "s" / "sweep.json").write_text("[" * 100_000)
    write_population(tmp_path / "runs" / "p")
    (tmp_path / "runs" / "p" / "population.json").write_text('{"format": 1}')
    client = _client(tmp_path / "runs")
    for id, kind in (("s", "sweep"), ("p", "population")):
        answer = client.get("/api/search", params={"id": id, "kind": kind})
        assert answer.status_code == 409
        assert "damaged" in answer.json()["error"]
    for query in ({"id": "gone", "kind": "sweep"}, {"id": "s", "kind": "<b>"}, {}):
        assert client.get("/api/search", params=query).status_code == 404
