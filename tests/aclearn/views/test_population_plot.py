"""The picture of a population."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib import image

from aclearn.errors import RunFolderError
from aclearn.population import Lineage, Origin
from aclearn.population.file import write_lineage
from aclearn.views.population_plot import figure_of_population, plot_population

RATE = "optimiser.learning_rate"


def write_population(folder: Path) -> Path:
    """Three members and three rounds; member 2 dies, and copies member 1 twice."""
    folder.mkdir()
    lineage = Lineage.begin([{RATE: 10.0 ** -(n + 1)} for n in range(3)], round_steps=10)
    for fitness in ([1.0, 5.0, None], [2.0, 6.0, 7.0], [3.0, 9.0, 8.0]):
        now = lineage.now
        for member, mean in zip(now.members, fitness, strict=True):
            after = (
                member.died("diverged", "not finite", 10, 0)
                if mean is None
                else member.judged(mean, 0.5, 10, "000001-1", 0)
            )
            now = now.with_member(after)
        lineage = lineage.with_now(now)
        best = lineage.new_best()
        lineage = lineage.model_copy(update={"best": best or lineage.best})
        origins = [Origin.stays(each) for each in now.standings]
        origins[2] = Origin(1, 1, {RATE: 2e-2})
        following = now.next(origins, round_steps=10, stop_after=None)
        lineage = lineage.with_next(following)
    write_lineage(folder, lineage)
    return folder


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
