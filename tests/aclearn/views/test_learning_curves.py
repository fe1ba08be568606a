from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image
from typer.testing import CliRunner

from aclearn.errors import AclearnError, ConfigError, RunFolderError
from aclearn.views import Curve, plot_runs, read_curve
from aclearn.views.learning_curves import _draw, _labels, figure_of_runs
from services.cli import app


def _run(
    folder: Path, returns: list[float | None], target: float | None = 18.0, every_s: float = 60.0
) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f"run:\n  target_return: {json.dumps(target)}\n")
    lines = [
        {"time_s": every_s * n, "env_steps": 2000 * n, "return_mean_100": value}
        for n, value in enumerate(returns)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_a_curve_has_the_points_with_a_return_and_the_target(tmp_path: Path) -> None:
    run = _run(tmp_path / "pong-1", [None, -20.0, -10.5])
    assert read_curve(run) == Curve(
        name="pong-1",
        time_s=[60.0, 120.0],
        env_steps=[2000.0, 4000.0],
        returns=[-20.0, -10.5],
        target=18.0,
    )


def test_a_line_that_is_half_written_is_left_out(tmp_path: Path) -> None:
    run = _run(tmp_path / "pong-1", [1.0, 2.0])
    with (run / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"time_s": 120.0, "env_st')
    assert read_curve(run).returns == [1.0, 2.0]


@pytest.mark.parametrize("config", [None, "", "run: {}\n", ": : :\n", "run:\n  target_return: x\n"])
def test_a_run_without_a_readable_target_has_none(tmp_path: Path, config: str | None) -> None:
    run = _run(tmp_path / "pong-1", [1.0, 2.0])
    if config is None:
        (run / "config.yaml").unlink()
    else:
        (run / "config.yaml").write_text(config)
    assert read_curve(run).target is None


def test_several_runs_stand_in_one_picture_with_their_names_and_one_target_line(
    tmp_path: Path,
) -> None:
    runs = [
        _run(tmp_path / "pong-1", [-20.0, 0.0, 15.0]),
        _run(tmp_path / "pong-2", [None, 5.0]),
        _run(tmp_path / "cartpole", [9.0], target=475.0),
    ]
    curves = [read_curve(run) for run in runs]
    figure = _draw([[curve] for curve in curves], _labels(runs, curves))

    over_time, over_steps = figure.axes
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["pong-1", "pong-2", "cartpole", "target 18", "target 475"]
    assert list(over_time.lines[0].get_xdata()) == [0.0, 1.0, 2.0]  # minutes
    assert list(over_steps.lines[0].get_xdata()) == [0.0, 2000.0, 4000.0]
    assert list(over_steps.lines[0].get_ydata()) == [-20.0, 0.0, 15.0]
    assert list(over_time.lines[3].get_ydata()) == [18.0, 18.0]
    assert over_time.get_xlabel() == "wall time (minutes)"
    assert over_steps.get_xlabel() == "environment steps (agent steps)"


@pytest.mark.parametrize(
    ("every_s", "label"), [(1.0, "seconds"), (60.0, "minutes"), (3600.0, "hours")]
)
def test_the_time_axis_has_a_unit_that_fits(tmp_path: Path, every_s: float, label: str) -> None:
    curve = read_curve(_run(tmp_path / "run", [1.0, 2.0, 3.0], every_s=every_s))
    axes = _draw([[curve]], ["run"]).axes[0]
    assert axes.get_xlabel() == f"wall time ({label})"
    assert list(axes.lines[0].get_xdata()) == [0.0, 1.0, 2.0]


def test_runs_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    runs = [_run(tmp_path / side / "pong-1", [1.0]) for side in ("a", "b")]
    runs.append(_run(tmp_path / "pong-2", [None]))
    labels = _labels(runs, [read_curve(run) for run in runs])
    assert labels == [str(runs[0]), str(runs[1]), "pong-2 (no episode yet)"]


def test_the_picture_is_written_over_an_older_one_and_shows_the_curve(tmp_path: Path) -> None:
    out = tmp_path / "new" / "curves.png"
    out.parent.mkdir()
    out.write_bytes(b"older")
    plot_runs([_run(tmp_path / "pong-1", [-20.0, 0.0, 15.0], target=None)], out)
    pixels = image.imread(out)
    assert pixels.shape == (675, 1650, 4)  # 11 x 4.5 inches at 150 dots an inch
    blue = np.array([0x1F, 0x77, 0xB4]) / 255  # the first of matplotlib's colours
    drawn = (np.abs(pixels[..., :3] - blue) < 0.01).all(axis=-1)
    assert drawn[:, :825].sum() > 500
    assert drawn[:, 825:].sum() > 500


def test_a_run_without_metrics_is_named(tmp_path: Path) -> None:
    run = _run(tmp_path / "pong-1", [])
    with pytest.raises(RunFolderError, match=r"pong-1/metrics\.jsonl is empty"):
        plot_runs([run], tmp_path / "out.png")
    (run / "metrics.jsonl").unlink()
    with pytest.raises(RunFolderError, match=r"no metrics to read at .*pong-1/metrics\.jsonl"):
        plot_runs([run], tmp_path / "out.png")
    with pytest.raises(RunFolderError, match=r"there is no run folder .*nowhere"):
        plot_runs([tmp_path / "nowhere"], tmp_path / "out.png")
    assert not (tmp_path / "out.png").exists()


def test_metrics_of_something_else_are_refused_by_their_missing_name(tmp_path: Path) -> None:
    run = _run(tmp_path / "pong-1", [])
    (run / "metrics.jsonl").write_text('{"return_mean_100": 1.0, "time_s": 0.0}\n')
    with pytest.raises(RunFolderError, match="without a usable 'env_steps'"):
        read_curve(run)


def test_runs_without_any_episode_leave_nothing_to_draw(tmp_path: Path) -> None:
    run = _run(tmp_path / "pong-1", [None, None])
    with pytest.raises(RunFolderError, match="no episode has ended yet in pong-1"):
        plot_runs([run], tmp_path / "out.png")


def test_a_picture_needs_a_known_ending_and_a_place_to_be(tmp_path: Path) -> None:
    run = _run(tmp_path / "pong-1", [1.0])
    with pytest.raises(AclearnError, match=r"out\.gif: expected .*\.png, \.pdf, \.svg"):
        plot_runs([run], tmp_path / "out.gif")
    (tmp_path / "file").write_text("")
    with pytest.raises(AclearnError, match=r"--out: .*out\.png cannot be written"):
        plot_runs([run], tmp_path / "file" / "out.png")
    with pytest.raises(RunFolderError, match="name at least one run folder"):
        plot_runs([], tmp_path / "out.png")


def _seeded(folder: Path, returns: list[float | None], seed: int, rate: float = 0.1) -> Path:
    run = _run(folder, returns)
    (run / "config.yaml").write_text(
        f"run: {{name: {folder.name}, dir: {folder.parent}, seed: {seed}, target_return: 18.0}}\n"
        f"optimiser: {{learning_rate: {rate}}}\n"
    )
    return run


def test_runs_that_differ_by_their_seeds_are_a_mean_and_a_band(tmp_path: Path) -> None:
    runs = [
        _seeded(tmp_path / "pong-1", [0.0, 10.0, 20.0, 30.0], seed=1),
        _seeded(tmp_path / "other", [5.0, 5.0], seed=1, rate=0.2),
        _seeded(tmp_path / "pong-2", [None, 2.0, 4.0], seed=2),  # begins later, ends sooner
    ]
    over_time, over_steps = figure_of_runs(runs).axes
    names = [text.get_text() for text in over_time.figure.legends[0].get_texts()]
    assert names == ["pong (2 runs)", "other", "target 18"]
    x, mean = over_steps.lines[0].get_data()
    assert (x[0], x[-1]) == (2000.0, 4000.0)
    np.testing.assert_allclose([mean[0], mean[-1]], [(10 + 2) / 2, (20 + 4) / 2])
    (band,) = over_steps.collections
    corners = {tuple(corner) for corner in band.get_paths()[0].vertices}
    assert {(2000.0, 2.0), (2000.0, 10.0), (4000.0, 4.0), (4000.0, 20.0)} <= set(
        map(tuple, corners)
    )
    assert list(over_time.lines[1].get_ydata()) == [5.0, 5.0]

    each = figure_of_runs(runs, each=True)
    texts = [text.get_text() for text in each.legends[0].get_texts()]
    assert texts == ["pong-1", "other", "pong-2", "target 18"]
    assert not each.axes[0].collections


def test_the_default_picture_is_replaced_a_named_one_is_not(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = str(_run(tmp_path / "pong-1", [1.0, 2.0]))
    for _ in range(2):
        assert CliRunner().invoke(app, ["plot", run]).output == "wrote pong-1.png\n"
    refused = CliRunner().invoke(app, ["plot", run, "--out", "pong-1.png"])
    assert isinstance(refused.exception, ConfigError)
