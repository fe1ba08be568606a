from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image

from aclearn.errors import AclearnError, RunFolderError
from aclearn.metrics.seed_statistics import estimate
from aclearn.views import Axis, figure_of_curves, find_curves, plot_curves, read_curve
from aclearn.views.comparison import compare_group
from aclearn.views.curve import Curve, Points, Reached
from aclearn.views.run_groups import group_runs
from tests.support.cli import aclearn
from tests.support.seeded_runs import write_run


def _labels(figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_a_curve_has_the_points_with_a_return_the_target_and_when_it_was_reached(
    tmp_path: Path,
) -> None:
    run = write_run(tmp_path / "pong-1", [None, -20.0, 18.5, 19.0], target=18.0)
    assert read_curve(run) == Curve(
        path=run,
        training=Points(
            time_s=[60.0, 120.0, 180.0],
            env_steps=[2000.0, 4000.0, 6000.0],
            learned_steps=[1900.0, 3800.0, 5700.0],
            returns=[-20.0, 18.5, 19.0],
        ),
        target=18.0,
        reached=Reached(4000.0, 120.0),
    )
    resumed = write_run(tmp_path / "pong-2", [18.5, 18.5], target=18.0)
    text = (resumed / "config.yaml").read_text().replace("18.0", "19.0")
    (resumed / "config.yaml").write_text(text)  # since then with another target
    assert read_curve(resumed).reached is None
    (resumed / "config.yaml").write_text(text.replace("19.0", "17.0"))
    assert read_curve(resumed).reached == Reached(0.0, 0.0)


@pytest.mark.parametrize(
    ("judge", "evaluator", "steps"),
    [
        ("evaluator", {}, 1000.0),
        (None, {"every_s": 60.0, "every_steps": None}, 1000.0),
        (None, {"every_s": None, "every_steps": 500}, 1000.0),
        ("training", {"every_s": 60.0}, 2000.0),
        (None, {"every_s": None, "every_steps": None}, 2000.0),
    ],
)
def test_the_target_is_reached_at_the_steps_of_what_was_judged(
    tmp_path: Path, judge: str | None, evaluator: dict, steps: float
) -> None:
    run = write_run(tmp_path / "a", [0.0, 9.0, 9.0], target=7.0, evaluations=[None, 8.0, 9.0])
    config = json.loads((run / "config.yaml").read_text())
    config["run"]["judge"], config["evaluator"] = judge, evaluator
    (run / "config.yaml").write_text(json.dumps(config))
    assert read_curve(run).reached == Reached(steps, 60.0)


def test_damaged_lines_are_left_out_and_counted_and_a_line_that_is_being_written_is_not(
    tmp_path: Path,
) -> None:
    run = write_run(tmp_path / "pong-1", [1.0, 2.0])
    with (run / "metrics.jsonl").open("ab") as metrics:
        metrics.write(b"\x00\xff\x00\n")
        metrics.write(b'{"time_s": "late", "env_steps": 1, "learned_steps": 1}\n')
        metrics.write(b'{"time_s": 3.0, "return_mean_100": 9.0}\n')
        metrics.write(b'{"time_s": 120.0, "env_st')
    curve = read_curve(run)
    assert (curve.training.returns, curve.damaged) == ([1.0, 2.0], 3)
    for command in ("plot", "compare"):
        said = aclearn(command, run, *(["--out", tmp_path / "a.png"] if command == "plot" else []))
        assert f"{run / 'metrics.jsonl'}: 3 damaged lines are left out" in said


@pytest.mark.parametrize("config", [None, "", "run: {}\n", ": : :\n", "run:\n  target_return: x\n"])
def test_a_run_without_a_readable_target_has_none(tmp_path: Path, config: str | None) -> None:
    run = write_run(tmp_path / "pong-1", [1.0, 2.0])
    if config is None:
        (run / "config.yaml").unlink()
    else:
        (run / "config.yaml").write_text(config)
    assert read_curve(run).target is None


def test_several_runs_stand_in_one_picture_with_their_names_and_one_target_line(
    tmp_path: Path,
) -> None:
    runs = [
        write_run(tmp_path / "pong-1", [-20.0, 0.0, 15.0], target=18.0),
        write_run(tmp_path / "pong-2", [None, 5.0], target=18.0),
        write_run(tmp_path / "cartpole", [9.0], target=475.0),
        write_run(tmp_path / "new", [None]),
    ]
    figure = figure_of_curves(find_curves(runs), each=True)

    over_time, over_steps = figure.axes
    names = ["pong-1", "pong-2", "cartpole", "new (no mean yet)", "target 18", "target 475"]
    assert _labels(figure) == names
    assert list(over_time.lines[0].get_xdata()) == [0.0, 1.0, 2.0]  # minutes
    assert list(over_steps.lines[0].get_xdata()) == [0.0, 2000.0, 4000.0]
    assert list(over_steps.lines[0].get_ydata()) == [-20.0, 0.0, 15.0]
    assert list(over_time.lines[4].get_ydata()) == [18.0, 18.0]
    assert over_time.get_xlabel() == "wall time (minutes)"
    assert over_steps.get_xlabel() == "environment steps (agent steps)"
    [learned] = figure_of_curves(find_curves(runs), axes=[Axis.LEARNED]).axes
    assert list(learned.lines[0].get_xdata()) == [0.0, 1900.0, 3800.0]
    assert learned.get_xlabel() == "learned steps (agent steps)"


def test_a_name_is_shown_as_it_is_in_the_legend(tmp_path: Path) -> None:
    write_run(tmp_path / "_pong-$1$", [1.0])
    figure = figure_of_curves(find_curves([tmp_path / "_pong-$1$"]), each=True)
    figure.canvas.draw()
    assert _labels(figure) == [r" _pong-\$1\$"]  # as matplotlib wants the plain text


@pytest.mark.parametrize(
    ("every_s", "label"), [(1.0, "seconds"), (60.0, "minutes"), (3600.0, "hours")]
)
def test_the_time_axis_has_a_unit_that_fits(tmp_path: Path, every_s: float, label: str) -> None:
    curve = read_curve(write_run(tmp_path / "run", [1.0, 2.0, 3.0], every_s=every_s))
    axes = figure_of_curves([curve]).axes[0]
    assert axes.get_xlabel() == f"wall time ({label})"
    assert list(axes.lines[0].get_xdata()) == [0.0, 1.0, 2.0]


def test_the_picture_is_written_over_an_older_one_and_shows_the_curve(tmp_path: Path) -> None:
    out = tmp_path / "new" / "curves.png"
    out.parent.mkdir()
    out.write_bytes(b"older")
    plot_curves([read_curve(write_run(tmp_path / "pong-1", [-20.0, 0.0, 15.0]))], out)
    pixels = image.imread(out)
    assert pixels.shape == (675, 1650, 4)  # 11 x 4.5 inches at 150 dots an inch
    blue = np.array([0x1F, 0x77, 0xB4]) / 255  # the first of matplotlib's colours
    drawn = (np.abs(pixels[..., :3] - blue) < 0.01).all(axis=-1)
    assert drawn[:, :825].sum() > 500
    assert drawn[:, 825:].sum() > 500


def test_a_run_without_metrics_is_named_and_left_out_of_a_folder_of_runs(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs" / "pong-1", [])
    with pytest.raises(RunFolderError, match=r"pong-1/metrics\.jsonl is empty"):
        find_curves([run])
    (run / "metrics.jsonl").unlink()
    with pytest.raises(RunFolderError, match=r"no metrics to read at .*pong-1/metrics\.jsonl"):
        find_curves([run])
    with pytest.raises(RunFolderError, match=f"no run in {run.parent} has written metrics yet"):
        find_curves([run.parent])
    (run / "metrics.jsonl").touch()
    write_run(tmp_path / "runs" / "pong-2", [1.0])
    assert [curve.name for curve in find_curves([run.parent])] == ["pong-2"]


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes" / "more").mkdir(parents=True)
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(RunFolderError, match=f"no run folder {place}, nor a folder of runs"):
            find_curves([place])


def test_metrics_of_something_else_are_refused_by_their_missing_name(tmp_path: Path) -> None:
    run = write_run(tmp_path / "pong-1", [])
    (run / "metrics.jsonl").write_text('{"return_mean_100": 1.0, "time_s": 0.0}\n')
    with pytest.raises(RunFolderError, match="without a usable 'env_steps'"):
        read_curve(run)


def test_runs_without_any_episode_leave_nothing_to_draw(tmp_path: Path) -> None:
    run = write_run(tmp_path / "pong-1", [None, None])
    with pytest.raises(RunFolderError, match="no mean return yet in pong-1, and nothing to"):
        figure_of_curves(find_curves([run]))


def test_a_picture_needs_a_known_ending_and_a_place_to_be(tmp_path: Path) -> None:
    curves = find_curves([write_run(tmp_path / "pong-1", [1.0])])
    with pytest.raises(AclearnError, match=r"out\.gif: expected .*\.png, \.pdf, \.svg"):
        plot_curves(curves, tmp_path / "out.gif")
    (tmp_path / "file").write_text("")
    with pytest.raises(AclearnError, match=r"--out: .*out\.png cannot be written"):
        plot_curves(curves, tmp_path / "file" / "out.png")


def test_runs_that_differ_by_their_seeds_are_a_mean_in_its_interval(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / "pong-1", [0.0, 10.0, 20.0, 30.0], seed=1, learning_rate=0.1),
        write_run(tmp_path / "other", [5.0, 5.0], seed=1, learning_rate=0.2),
        # begins later, ends sooner
        write_run(tmp_path / "pong-2", [None, 2.0, 4.0], seed=2, learning_rate=0.1),
    ]
    figure = figure_of_curves(find_curves(runs))
    over_time, over_steps = figure.axes
    mean, alone = "(mean of 2 runs, 95 % interval)", "(1 run, no interval)"
    assert _labels(figure) == [f"learning_rate=0.1 {mean}", f"learning_rate=0.2 {alone}"]
    x, mean = over_steps.lines[0].get_data()
    assert (x[0], x[-1]) == (2000.0, 4000.0)
    np.testing.assert_allclose([mean[0], mean[-1]], [(10 + 2) / 2, (20 + 4) / 2])
    (band,) = over_steps.collections
    corners = {tuple(corner) for corner in band.get_paths()[0].vertices}
    # of two runs each is drawn twice in a quarter of the draws
    assert {(2000.0, 2.0), (2000.0, 10.0), (4000.0, 4.0), (4000.0, 20.0)} <= corners
    assert list(over_time.lines[1].get_ydata()) == [5.0, 5.0]

    each = figure_of_curves(find_curves(runs), each=True)
    assert _labels(each) == ["pong-1", "other", "pong-2"]
    assert not each.axes[0].collections


def test_five_seeds_are_an_interquartile_mean_and_one_without_an_episode_is_named(
    tmp_path: Path,
) -> None:
    returns = [[3.0, 1.0], [100.0, 2.0], [5.0, 3.0], [4.0, 4.0], [-50.0, 500.0]]
    for seed, points in enumerate([*returns, [None, None]], start=1):
        write_run(tmp_path / "pole-seeds-1" / f"seed-{seed}", points, seed=seed)
    figure = figure_of_curves(find_curves([tmp_path]))
    assert _labels(figure) == [
        "pole-seeds-1 (interquartile mean of 5 runs, 95 % interval; 1 without a mean)"
    ]
    drawn = figure.axes[1].lines[0].get_ydata()
    assert (drawn[0], drawn[-1]) == (4.0, 3.0)
    (band,) = figure.axes[1].collections
    expected = estimate([points[0] for points in returns], resamples=2000)
    assert (0.0, float(expected.high)) in {tuple(c) for c in band.get_paths()[0].vertices}


def test_an_evaluator_has_a_line_of_its_own_where_its_weights_were_published(
    tmp_path: Path,
) -> None:
    runs = [
        write_run(tmp_path / "a-1", [1.0] * 5, seed=1, evaluations=[None, 8.0, None, 10.0]),
        write_run(tmp_path / "a-2", [3.0] * 5, seed=2, evaluations=[None, 4.0, None, 6.0]),
    ]
    assert read_curve(runs[0]).evaluator == Points(
        [30.0, 150.0], [1000.0, 5000.0], [950.0, 4750.0], [8.0, 10.0], (0.5, 0.5)
    )
    alone = figure_of_curves([read_curve(runs[0])])
    assert _labels(alone) == [
        "a-1 (1 run, no interval)",
        "a-1, evaluator (1 run, ± standard error)",
    ]
    training, evaluator = alone.axes[1].lines
    assert list(evaluator.get_xdata()) == [1000.0, 5000.0]
    assert evaluator.get_color() == training.get_color()
    (band,) = alone.axes[1].collections
    assert {(1000.0, 7.5), (5000.0, 10.5)} <= {tuple(c) for c in band.get_paths()[0].vertices}
    assert "evaluator: of one evaluation" in alone.axes[0].get_ylabel()

    both = figure_of_curves(find_curves(runs))
    what = "(mean of 2 runs, 95 % interval)"
    assert _labels(both) == [f"a {what}", f"a, evaluator {what}"]
    drawn = both.axes[1].lines[1].get_ydata()
    assert (drawn[0], drawn[-1]) == (6.0, 8.0)
    each = figure_of_curves(find_curves(runs), each=True)
    assert _labels(each)[1] == "a-1, evaluator (1 run, ± standard error)"

    [row] = [compare_group(group) for group in group_runs(find_curves(runs))]
    assert row.evaluator[:2] == ("mean", 8.0) and row.last_return[:2] == ("mean", 2.0)
    assert "mean 8.00 [6.00, 10.00]" in aclearn("compare", *runs)


def test_runs_that_end_before_the_last_begins_are_left_out_and_one_place_has_a_marker(
    tmp_path: Path,
) -> None:
    evaluations = ([None, 8.0, 9.0], [None, None, 4.0, 6.0], [None, 1.0], [])
    for seed, each in enumerate(evaluations, start=1):
        write_run(tmp_path / "a" / f"seed-{seed}", [2.0] * 4, seed=seed, evaluations=each)
    figure = figure_of_curves(find_curves([tmp_path]))
    what = "mean of 2 runs, 95 % interval; 1 without an evaluation; 1 too short"
    assert _labels(figure)[1] == f"a, evaluator ({what})"
    for panel, place in zip(figure.axes, (1.5, 3000.0), strict=True):
        _, line = panel.lines
        # the first run ends where the second begins
        assert (set(line.get_xdata()), set(line.get_ydata())) == ({place}, {6.5})
        assert line.get_marker() == "o"


def test_a_run_that_is_too_short_along_one_axis_is_left_out_of_all_panels(tmp_path: Path) -> None:
    for seed, (every_s, returns) in enumerate(
        [(60.0, [None, 1.0, 2.0]), (60.0, [None, 3.0, 4.0]), (9.0, [None, 9.0, 9.0])], start=1
    ):
        write_run(tmp_path / f"a-{seed}", returns, seed=seed, every_s=every_s)
    figure = figure_of_curves(find_curves([tmp_path]))
    assert _labels(figure) == ["a (mean of 2 runs, 95 % interval; 1 too short)"]
    for panel in figure.axes:
        assert list(panel.lines[0].get_ydata()[[0, -1]]) == [2.0, 3.0]


def test_the_default_picture_is_replaced_a_named_one_is_not(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = write_run(tmp_path / "pong-1", [1.0, 2.0])
    for _ in range(2):
        assert aclearn("plot", run, "--axis", "learned") == "wrote pong-1.png\n"
    with pytest.raises(AclearnError, match="exists already; --force"):
        aclearn("plot", run, "--out", "pong-1.png")
