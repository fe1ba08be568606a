"""The picture of a population."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib import image

from aclearn.errors import RunFolderError
from aclearn.population import Lineage
from aclearn.population.file import write_lineage
from aclearn.views.population_plot import figure_of_population, plot_population
from tests.support.searches import RATE, write_population


def test_fitness_hyper_parameters_copies_and_the_best_agents_ancestors_are_drawn(
    tmp_path: Path,
) -> None:
    top, rates = figure_of_population(write_population(tmp_path / "p")).axes
    lines = {line.get_label(): line for line in top.get_lines()}
    # the fourth round has begun and is not judged
    assert list(lines["best so far"].get_ydata()) == [5.0, 7.0, 9.0]
    assert list(lines["the best agent's ancestors"].get_ydata()) == [5.0, 6.0, 9.0]
    assert list(lines["copied"].get_xdata()) == [1, 2]
    assert list(lines["copied"].get_ydata()) == [5.0, 7.0]
    assert list(lines["dead"].get_xdata()) == [1]
    assert len(top.collections[0].get_offsets()) == 8  # nine less one dead
    assert rates.get_yscale() == "log" and RATE.replace(".", ".\n") in rates.get_ylabel()
    assert len(rates.collections[0].get_offsets()) == 9


def test_a_picture_is_written_and_replaced(tmp_path: Path) -> None:
    folder = write_population(tmp_path / "p")
    for _ in range(2):
        plot_population(folder, tmp_path / "p.png")
    assert image.imread(tmp_path / "p.png").shape[0] > 500


def test_a_population_without_a_judged_round_and_a_run_are_refused(tmp_path: Path) -> None:
    write_lineage(tmp_path, Lineage.begin([{}, {}], round_steps=10))
    with pytest.raises(RunFolderError, match="no round of the population"):
        figure_of_population(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("{}")
    with pytest.raises(RunFolderError, match="is a run, and no population"):
        figure_of_population(tmp_path / "run")
