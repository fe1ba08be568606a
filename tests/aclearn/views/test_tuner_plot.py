from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from matplotlib import image

from aclearn.errors import AclearnError, RunFolderError
from aclearn.views import plot_tuner
from aclearn.views.tuner_plot import draw_tuner, read_tuner_history

_LINES = [
    # verdict, measured trainers, kept trainers, rate
    ("baseline", 1, 1, 100.0),
    ("accepted", 2, 2, 150.0),
    ("rejected", 3, 2, 90.0),
    ("discarded", 2, 2, None),
    ("kept", 2, 2, 151.0),
    ("restarted", 2, 2, 60.0),
]


def _run(folder: Path) -> Path:
    folder.mkdir(parents=True)
    lines = [
        {
            "time_s": 10.0 * n,
            "verdict": verdict,
            "counts": {"actors": 5, "trainers": measured},
            "kept": {"actors": 5, "trainers": kept},
            "rate": rate,
            "baseline": None if n == 0 else 120.0,
            "temperature": 0.5**n,
        }
        for n, (verdict, measured, kept, rate) in enumerate(_LINES)
    ]
    (folder / "tuner.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_the_history_has_every_reading_and_what_was_kept(tmp_path: Path) -> None:
    history = read_tuner_history(_run(tmp_path / "r"))
    assert history.time_s == [0.0, 10.0, 20.0, 40.0, 50.0]
    assert history.counts == {"trainers": [1, 2, 3, 2, 2], "actors": [5] * 5}
    assert history.kept["trainers"] == [1, 2, 2, 2, 2]
    assert history.rates == [100.0, 150.0, 90.0, 151.0, 60.0]
    assert math.isnan(history.baselines[0])
    assert history.baselines[1:] == [120.0] * 4
    assert history.temperatures == [1.0, 0.5, 0.25, 0.0625, 0.03125]
    assert history.reverted == [False, False, True, False, False]
    assert history.restarted_s == [50.0]


def test_a_trial_that_was_given_up_is_marked_though_it_has_no_rate(tmp_path: Path) -> None:
    run = _run(tmp_path / "r")
    given_up = {"verdict": "given up", "counts": {"actors": 5, "trainers": 3}, "rate": None}
    last = {**json.loads((run / "tuner.jsonl").read_text().splitlines()[-1]), "time_s": 60.0}
    with (run / "tuner.jsonl").open("a") as file:
        file.write(json.dumps(last | given_up) + "\n")
    history = read_tuner_history(run)
    assert history.time_s[-1] == 60.0
    assert history.counts["trainers"][-1] == 3
    assert history.reverted[-1]
    assert math.isnan(history.rates[-1])


def _write(folder: Path, lines: list[tuple[str, dict, dict]]) -> Path:
    folder.mkdir(parents=True)
    written = [
        {
            "time_s": 10.0 * n,
            "verdict": verdict,
            "counts": counts,
            "kept": kept,
            "rate": 100.0 + n,
            "baseline": 100.0,
            "temperature": 0.05,
        }
        for n, (verdict, counts, kept) in enumerate(lines)
    ]
    (folder / "tuner.jsonl").write_text("".join(json.dumps(line) + "\n" for line in written))
    return folder


def test_a_trial_of_several_readings_is_what_its_last_one_says(tmp_path: Path) -> None:
    one, two, three = {"trainers": 1}, {"trainers": 2}, {"trainers": 3}
    run = _write(
        tmp_path / "r",
        [
            ("repeat", two, one),
            ("repeat", two, one),
            ("accepted", two, two),
            ("repeat", three, two),
            ("rejected", three, two),
            ("kept", two, two),
            ("repeat", one, two),  # not decided yet
        ],
    )
    history = read_tuner_history(run)
    assert history.reverted == [False, False, False, True, True, False, True]
    tried = draw_tuner(history, "r").axes[0].lines[1]
    assert list(tried.get_ydata()) == [3, 3, 1]


@pytest.mark.parametrize("resumed_with", [["trainers"], ["trainers", "actors"]])
def test_a_run_that_was_resumed_with_other_counts_is_drawn(tmp_path: Path, resumed_with) -> None:
    before = {"predictors": 2, "trainers": 1}
    after = dict.fromkeys(resumed_with, 3)
    run = _write(tmp_path / "r", [("kept", before, before), ("kept", after, after)])
    history = read_tuner_history(run)
    assert history.kept["trainers"] == [1, 3]
    assert history.kept["predictors"][0] == 2 and math.isnan(history.kept["predictors"][1])
    assert len(draw_tuner(history, "r").axes) == 2 + len({*before, *after})
    plot_tuner(run, tmp_path / "t.png")


def test_a_panel_for_each_count_the_rate_and_the_temperature(tmp_path: Path) -> None:
    figure = draw_tuner(read_tuner_history(_run(tmp_path / "r")), "r")
    trainers, actors, rate, temperature = figure.axes
    assert "N_T" in trainers.get_ylabel() and "N_A" in actors.get_ylabel()
    kept, tried = trainers.lines[:2]
    assert list(kept.get_ydata()) == [1, 2, 2, 2, 2]
    assert (list(tried.get_xdata()), list(tried.get_ydata())) == ([20.0], [3])
    assert list(rate.lines[1].get_ydata()) == [90.0]
    assert rate.lines[3].get_xdata()[0] == 50.0  # the restart
    assert list(temperature.lines[0].get_ydata()) == [1.0, 0.5, 0.25, 0.0625, 0.03125]


def test_a_count_that_is_not_tuned_is_drawn_flat_and_marks_no_trial(tmp_path: Path) -> None:
    run = _run(tmp_path / "r")
    path = run / "tuner.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line["fixed"] = {"predictors": 0, "actors": line["counts"].pop("actors")}
        del line["kept"]["actors"]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    history = read_tuner_history(run)
    assert history.fixed == ["predictors", "actors"]
    assert history.kept == {"predictors": [0] * 5, "trainers": [1, 2, 2, 2, 2], "actors": [5] * 5}
    predictors, trainers, actors, *_ = draw_tuner(history, "r").axes
    for symbol, axes, flat in (("N_P", predictors, 0), ("N_A", actors, 5)):
        assert symbol in axes.get_ylabel() and "(fixed)" in axes.get_ylabel()
        assert list(axes.lines[0].get_ydata()) == [flat] * 5
        assert [line for line in axes.lines if line.get_marker() == "x"] == []
    assert "N_T" in trainers.get_ylabel() and "fixed" not in trainers.get_ylabel()
    plot_tuner(run, tmp_path / "t.png")


def test_the_axis_of_a_count_has_whole_numbers(tmp_path: Path) -> None:
    figure = draw_tuner(read_tuner_history(_run(tmp_path / "r")), "r")
    for axes in figure.axes[:2]:
        low, high = axes.get_ylim()
        ticks = [tick for tick in axes.get_yticks() if low <= tick <= high]
        assert ticks and all(tick == round(tick) for tick in ticks)


def test_the_picture_is_written(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "tuner.png"
    plot_tuner(_run(tmp_path / "r"), out)
    assert image.imread(out).std() > 0.02  # something is drawn


def test_what_cannot_be_drawn_says_why(tmp_path: Path) -> None:
    run = _run(tmp_path / "r")
    with pytest.raises(AclearnError, match=r"ends in one of .png, .pdf, .svg"):
        plot_tuner(run, tmp_path / "x.gif")
    with pytest.raises(RunFolderError, match="there is no run folder"):
        plot_tuner(tmp_path / "nowhere", tmp_path / "x.png")
    (run / "tuner.jsonl").write_text("")
    with pytest.raises(RunFolderError, match="has no reading yet"):
        plot_tuner(run, tmp_path / "x.png")
    (run / "tuner.jsonl").write_text('{"verdict": "kept", "rate": 3}\n')
    with pytest.raises(RunFolderError, match="without a usable 'counts'"):
        plot_tuner(run, tmp_path / "x.png")
    (run / "tuner.jsonl").write_text('{"rate": 3, "counts": {}, "fixed": 3}\n')
    with pytest.raises(RunFolderError, match="without a usable"):
        plot_tuner(run, tmp_path / "x.png")
    (run / "tuner.jsonl").unlink()
    with pytest.raises(RunFolderError, match=r"the tuner of this run was off.*tuner.enabled=true"):
        plot_tuner(run, tmp_path / "x.png")
