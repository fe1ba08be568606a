from __future__ import annotations

import io
import os
import pty
import threading
from typing import Any

import pytest
from rich.console import Console

from aclearn.views import PlainConsole, open_console
from aclearn.views.live_console import LiveConsole
from aclearn.views.picture import _bar
from tests.support.waiting import DEADLINE_S

_LINE: dict[str, Any] = {
    "time_s": 754.2,
    "env_steps": 1_853_440,
    "learned_steps": 1_840_000,
    "dropped_steps": {"stale": 1200, "lost": 320, "fault": 0},
    "in_flight_steps": 11_920,
    "updates": 3000,
    "generation": 1,
    "policy_version": 3000,
    "env_steps_per_s": 2481.3,
    "learned_steps_per_s": 2460.0,
    "pps": 2500.0,
    "tps": 4.1,
    "batch_steps": 640.0,
    "frames_per_s": 10_000.0,
    "return_mean_100": 12.34,
    "judged_return": 12.34,
    "episodes": 412,
    "episodes_in_mean": 100,
    "lag_mean": 2.3,
    "lag_max": 5.0,
    "wait_share": {
        "actor": {"working": 0.35, "emulator": 0.25, "training queue": 0.40},
        "trainer": {"working": 0.97, "unrolls": 0.03},
    },
    "queue_fill": 0.75,
}
_EMPTY: dict[str, Any] = {
    "time_s": 0.0,
    "return_mean_100": None,
    "dropped_steps": {},
    "wait_share": {},
}
_BOTTLENECK = "trainer: it works 97 % of the time while actors wait 40 % for the training queue"


def _role(name: str, state: str = "running", restarts: int = 0) -> dict[str, Any]:
    pid = 4711 if state == "running" else None
    role = name.partition("-")[0]
    return {"role": role, "name": name, "state": state, "restarts": restarts, "pid": pid}


def _plain(stream: io.StringIO, every_s: float = 10.0) -> PlainConsole:
    return PlainConsole({"max_wall_s": 3600.0}, name="pong-1", stream=stream, every_s=every_s)


def _live(goal: dict[str, float | None], width: int = 110) -> tuple[LiveConsole, Console]:
    console = Console(
        file=io.StringIO(), force_terminal=True, color_system=None, width=width, height=60
    )
    return LiveConsole(goal, name="pong-1", console=console), console


def _picture(view: LiveConsole, width: int = 110) -> str:
    page = Console(file=io.StringIO(), width=width, color_system=None)
    with page.capture() as capture:
        page.print(view.view())
    return capture.get()


def test_a_plain_line_has_the_figures_and_the_goal_and_the_bottleneck_follows_once() -> None:
    stream = io.StringIO()
    known = {"episode_length_mean": 212.4, "info_success": 0.85}
    with _plain(stream) as console:
        for time_s in (754.2, 764.2):
            line = _LINE | known | {"time_s": time_s}
            console.update(line, [_role("actor-0", restarts=2), _role("trainer-0", restarts=1)])
    figures = (
        "return=12.34 length=212 env_steps=1853440 learned_per_s=2.46k restarts=3 "
        'dropped="stale 1.20 k, lost 320" progress="0:12:{} of 1:00:00, 0:47:{} to go" '
        "success=0.85 updates=3000"
    )
    assert stream.getvalue().splitlines() == [
        "run=pong-1 started",
        f"time=0:12:34 {figures.format(34, 26)}",
        f"bottleneck: {_BOTTLENECK}; more trainer.workers where",
        "  cores are free, fewer actors.processes, a smaller policy.architecture or a faster "
        "device would help;",
        "  tuner.enabled=true tries such counts by itself",
        f"time=0:12:44 {figures.format(44, 16)}",
    ]


def test_an_evaluators_mean_is_shown_apart_from_that_of_training() -> None:
    judged = {
        "evaluator_evaluations": 5,
        "evaluator_return_mean": 21.345,
        "evaluator_return_standard_error": 0.123,
        "evaluator_env_steps": 1_200_000,
    }
    stream = io.StringIO()
    with _plain(stream) as console:
        console.update(_LINE | judged, [])
    assert " return=12.34 evaluated=21.34±0.12 " in stream.getvalue()
    view, _ = _live({})
    view.observe(_LINE | judged)
    picture = _picture(view)
    assert "Evaluated" in picture and "21.34 ± 0.12" in picture
    assert "5, at 1.20 M steps" in picture
    view.observe(_LINE | {"evaluator_evaluations": 0})
    assert "Evaluations" in _picture(view)
    view.observe(_LINE)
    assert "Evaluat" not in _picture(view)


def test_no_plain_line_is_long_whatever_happens() -> None:
    stream = io.StringIO()
    error = "[Errno 28] No space left on device (/home/somebody/runs/pong-1/checkpoints)"
    failed = {"checkpoint_failures": 3, "checkpoint_age_s": 1234.5, "checkpoint_error": error}
    info = {f"info_figure_{number}": 1.0 for number in range(32)}
    with _plain(stream) as console:
        console.update(_CROWDED | _INDICATORS | failed | info, [_role("actor-0", restarts=7)])
        console.note("actor-12 died: " + "a long sentence " * 40)
    written = stream.getvalue().splitlines()
    assert max(map(len, written)) <= 200
    assert max(len(text) for text in written if not text.startswith("time=")) <= 120
    assert sum(text.startswith(("unwritten: 3 checkpoints failed", "bottleneck: ", "event: "))
               for text in written) == 3  # fmt: skip
    assert written[1].startswith("time=99:59:59 return=-12.3 k mean_of=37 env_steps=1234567890123 ")


def test_a_kind_of_refusal_by_keys_is_said_once_on_a_plain_console() -> None:
    stream = io.StringIO()
    with _plain(stream, every_s=10.0) as console:
        for number in range(1, 4):
            console.update(_LINE | {"time_s": 20.0 * number, "refused_rights": 2.0 * number}, [])
    said = [text for text in stream.getvalue().splitlines() if text.startswith("refused: ")]
    assert said == ["refused: 2 messages were refused for which the sender's key is not"]


def test_a_plain_line_is_written_once_an_interval_and_the_last_at_the_end() -> None:
    stream = io.StringIO()
    with _plain(stream, every_s=10.0) as console:
        for time_s in (0.0, 4.0, 9.9, 10.0, 12.0, 21.0, 23.0, 25.0):
            console.update(_LINE | {"time_s": time_s}, [])
    lines = [text for text in stream.getvalue().splitlines() if text.startswith("time=")]
    times = [text.split()[0] for text in lines]
    assert times == ["time=0:00:00", "time=0:00:10", "time=0:00:21", "time=0:00:25"]


def test_an_event_is_written_at_once_on_one_line_without_escape_codes() -> None:
    stream = io.StringIO()
    with _plain(stream) as console:
        console.note("actor-0 died:\n\x1b[31mTraceback\x1b[0m")
        assert stream.getvalue().splitlines()[1] == "event: actor-0 died:  [31mTraceback [0m"


def test_the_first_line_of_a_run_needs_no_figures() -> None:
    stream = io.StringIO()
    with _plain(stream) as console:
        console.update(_EMPTY, [])
    _, line, bottleneck = stream.getvalue().splitlines()
    assert "return=- env_steps=0" in line
    assert "the trainer has not reported" in bottleneck


def test_a_stream_that_is_no_terminal_gets_plain_lines() -> None:
    stream = io.StringIO()
    with open_console({}, name="pong-1", stream=stream) as console:
        console.update(_LINE, [])
    assert isinstance(console, PlainConsole)
    assert "\x1b" not in stream.getvalue()
    assert "return=12.34" in stream.getvalue()


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_a_terminal_gets_the_live_view_unless_it_is_dumb(
    term: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    master, slave = pty.openpty()
    written = bytearray()

    def read() -> None:
        try:
            while data := os.read(master, 65536):
                written.extend(data)
        except OSError:  # Linux answers so when the other side is closed
            return

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with (
            os.fdopen(slave, "w") as stream,
            open_console({"target_return": 18.0}, name="pong-1", stream=stream) as console,
        ):
            console.update(_LINE, [_role("actor-0")])
            console.note("actor-0 restarted")
    finally:
        reader.join(DEADLINE_S)
        os.close(master)
    assert not reader.is_alive()
    text = written.decode()
    assert ("\x1b[" in text) == (term != "dumb")
    assert "12.34" in text
    assert "actor-0 restarted" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h")  # the cursor is given back


def test_the_live_view_shows_the_goal_all_figures_roles_and_events() -> None:
    view, _ = _live({"target_return": 18.0, "max_wall_s": 3600.0})
    with view:
        view.update(_LINE, [_role("actor-0"), _role("trainer-0", "waiting", restarts=3)])
        view.note("trainer-0 died: exit status 1; restart 3 in 2 s")
    picture = _picture(view)
    for expected in (
        "return 12.3 of 18",
        "0:12:34 gone, at most 0:47:26 to go",
        "1.85 M",
        "2.48 k steps/s",
        "2.46 k steps/s",
        "2.50 k /s, 10.0 k fps",
        "4.1/s × 640 = 2.62 k",
        "3.00 k, generation 1",
        "12.34 (mean of 100)",
        "2.3 (max 5)",
        "11.9 k",
        "stale 1.20 k, lost 320",
        "75 %",
        "works 35 %  training queue 40 %  emulator 25 %",
        "works 97 %  unrolls 3 %",
        _BOTTLENECK,
        "0:12:34  trainer-0 died: exit status 1; restart 3 in 2 s",
    ):
        assert expected in picture
    rows = [text.split() for text in picture.splitlines()]
    assert ["│", "actor-0", "running", "0", "4711", "│"] in rows
    assert ["│", "trainer-0", "waiting", "3", "-", "│"] in rows


@pytest.mark.parametrize(
    ("shares", "cells"),
    [
        ([0.5, 0.25, 0.25], [12, 6, 6]),
        ([1 / 3, 1 / 3, 1 / 3], [8, 8, 8]),
        ([0.1, 0.1, 0.8], [2, 3, 19]),  # ends at 2.4, 4.8 and 24 of 24 cells
        ([0.5, 0.0, 0.25], [12, 0, 6]),
        ([0.9, 0.5, float("nan")], [22, 2, 0]),  # more than the whole is cut
    ],
)
def test_the_parts_of_a_bar_are_as_long_as_their_shares(
    shares: list[float], cells: list[int]
) -> None:
    colours = ["green", "yellow", "cyan"]
    bar = _bar(list(zip(shares, colours, strict=True)), 24)
    lengths = {span.style: span.end - span.start for span in bar.spans}
    assert [lengths.get(colour, 0) for colour in colours] == cells
    assert bar.plain == "━" * 24


def test_with_many_roles_those_in_trouble_are_shown_and_the_rest_counted() -> None:
    view, _ = _live({})
    roles = [_role(f"actor-{index:02d}") for index in range(40)]
    roles[37] = _role("actor-37", "failed", restarts=5)
    with view:
        view.update(_LINE, roles)
    picture = _picture(view)
    assert "actor-37" in picture
    assert "and 30 more" in picture
    assert picture.count("actor-") == 10


def test_names_and_events_are_shown_as_they_are_and_never_read_as_markup() -> None:
    view, _ = _live({})
    with view:
        view.update(_LINE, [_role("[red]actor")])
        view.note("[bold]loud[/bold]\x1b[2J")
    picture = _picture(view)
    assert "[red]actor" in picture
    assert "[bold]loud[/bold] [2J" in picture


_CROWDED: dict[str, Any] = _LINE | {
    "time_s": 359_999.0,
    "env_steps": 1_234_567_890_123,
    "learned_steps": 999_499_999,
    "learned_steps_per_s": 123_456.7,
    "env_steps_per_s": 123_456.7,
    "pps": 999_499.0,
    "tps": 1234.5,
    "updates": 123_456_789,
    "generation": 1234,
    "return_mean_100": -12_345.67,
    "judged_return": -12_345.67,
    "episodes_in_mean": 37,
    "lag_mean": 12_345.6,
    "lag_max": 123_456.0,
    "dropped_steps": {"lag": 123_456, "lost": 2345, "env_fault": 7, "worker_failed": 1_234_567}
    | {f"another_reason_{number}": 100 + number for number in range(8)},
    "queue_fill": 1.0,
    "predictor_queue_fill": 1.0,
    "wait_share": {
        "actor": {"working": 0.1, "emulator": 0.2, "training queue": 0.3, "actions": 0.4},
        "compressor": {"working": 0.25, "requests": 0.75},
        "monitor": {"working": 0.01, "messages": 0.99},
        "predictor": {"working": 0.92, "requests": 0.08},
        "trainer": {"working": 0.5, "unrolls": 0.3, "the other workers": 0.2},
    },
    "tuner_temperature": 0.0,
    "tuner_frozen": 1.0,
    "tuner_predictors": 1.0,
    "behaviour_kl_estimate": 0.012345,
    "compressor_kl_mean": 0.0012345,
    "compressor_kl_max": 14.9,
    "reward_gap": -1234.5,
    "return_slope_per_s": -12.5,
}


def _crowded(line: dict[str, Any]) -> str:
    """The picture on 80×24 cells, each row with single blanks."""
    console = Console(
        file=io.StringIO(), force_terminal=True, color_system=None, width=80, height=24
    )
    view = LiveConsole({"target_return": 18.0, "max_wall_s": 4e5}, name="pong-1", console=console)
    names = ["monitor", "trainer", "predictor", "compressor"]
    roles = [_role(f"{name}-0") for name in names] + [_role(f"actor-{i}") for i in range(12)]
    with view:
        view.update(line, [*roles, _role("actor-12", "waiting", 1), _role("actor-13", "joined")])
        view.note("actor-12 died: exit status 1; restart 1 in 0.5 s")
    with console.capture() as capture:
        console.print(view.view(fitted=True))
    rows = capture.get().splitlines()
    assert len(rows) <= 24 and max(map(len, rows)) <= 80, capture.get()
    assert "…" not in capture.get()
    assert rows[-1].startswith("╰")
    return "\n".join(" ".join(row.split()) for row in rows)


def test_80_by_24_cells_hold_everything_of_a_large_run() -> None:
    picture = _crowded(_CROWDED)
    for whole in (
        "return -12345.7 of 18 ",
        "99:59:59 gone, at most 11:06:41 to go",
        "Return -12.3 k (mean of 37) Environment 123 k steps/s │",
        " Updates 123 M, generation 1234 │",
        " Lag (versions) 12.3 k (max 123 k) │",
        "Queues training ━━━━━━━━━━━━ 100 % prediction ━━━━━━━━━━━━ 100 % │",
        "Dropped for worker_failed 1.23 M, lag 123 k, lost 2.35 k, others 835 ",
        "works 10 % actions 40 % training queue 30 % ",
        "works 50 % unrolls 30 % the other workers 20 % ",
        "a smaller policy.architecture or │",
        "│ the best │",
        "actor-12 died: exit status 1; restart 1 in 0.5 s",
        "12 actors",
        "actor-12 waiting, 1 restart",
        "joined: actor-13",
    ):
        assert whole in picture, f"{whole!r} is not in\n{picture}"


_INDICATORS = {
    "behaviour_kl_estimate": 0.012345,
    "compressor_kl_mean": 0.0012345,
    "compressor_kl_variance": 0.00012,
    "compressor_kl_max": 14.9,
    "reward_gap": -1234.5,
    "rho_mean": 1.0234,
    "effective_sample_share": 0.951,
    "clipped_rho_share": 0.502,
    "clipped_c_share": 0.498,
    "entropy": 0.6931,
}


def test_80_by_24_cells_hold_the_indicators_of_a_usual_run() -> None:
    own = {"explained_variance": 0.8312, "info_success": 0.85, "info_episode_l": 212.0}
    picture = _crowded(_LINE | _INDICATORS | own | {"return_slope_per_s": None})
    for shown in (
        "│ Indicators KL(μ‖π) 0.012 artifact 0.0012 var 0.00012 max 15 gap -1234 │",
        "│ Correction ρ 1.02 effective 95 % clipped ρ 50 % c 50 % │",
        "│ Info success 0.85 episode_l 212 │",
    ):
        assert shown in picture, picture
    shown = "│ Learning entropy 0.69 explained variance 0.83 │"
    assert shown in _crowded(_LINE | _INDICATORS | {"explained_variance": 0.8312})
    few = {"compressor_kl_mean": 0.5, "return_slope_per_s": 2.0}  # no maximum yet
    picture = _crowded(_LINE | few)
    assert "│ Indicators artifact 0.5 │" in picture and "│ Learning return +120 a minute" in picture
    assert " Episodes 412, 212 steps long " in _crowded(_LINE | {"episode_length_mean": 212.4})
    exact = _INDICATORS | {"behaviour_kl": 0.5}
    assert "KL(μ‖π) 0.5 " in _crowded(_LINE | exact)


def test_80_by_24_cells_hold_a_failed_checkpoint_of_a_large_run_too() -> None:
    error = "[Errno 28] No space left on device (/home/somebody/runs/pong-1/checkpoints)"
    failed = {"checkpoint_failures": 3, "checkpoint_age_s": 1234.5, "checkpoint_error": error}
    picture = _crowded(_CROWDED | failed)
    for whole in (
        "Dropped 1.36 M Lag",
        "3 checkpoints failed, the newest is 0:20:34 old: [Errno 28] No space left on │",
        "device (/home/somebody/runs/pong-1/checkpoints)",
        "│ the best │",
        "actor-12 waiting, 1 restart",
    ):
        assert whole in picture, f"{whole!r} is not in\n{picture}"


def test_a_narrow_terminal_still_shows_the_goal_and_the_bottleneck() -> None:
    view, _ = _live({"target_return": 18.0}, width=60)
    with view:
        view.update(_LINE, [_role("actor-0")])
    picture = _picture(view, width=60)
    assert max(len(text) for text in picture.splitlines()) <= 60
    assert "return 12.3 of 18" in picture
    assert "it works 97 %" in picture


def test_the_live_view_starts_without_any_figures() -> None:
    view, console = _live({"target_return": 18.0})
    with view:
        view.update(_EMPTY, [])
    assert "return of 18, no mean yet" in _picture(view)
    assert "the trainer has not reported" in console.file.getvalue()  # type: ignore[attr-defined]
