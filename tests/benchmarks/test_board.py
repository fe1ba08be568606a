"""The board: what it measures, when a target is reached, its rows, its resumption and its table."""

from __future__ import annotations

import csv
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import board
import board_cleanrl
import board_episodes
import board_measure
from board_measure import EpisodeJudge, MetricsJudge
from board_report import BEGIN, END, Row, picture, table, write_table

_BENCHMARKS = Path(board.__file__).parent
#: Burns, says what it has used and its own number; lasts as long as it is told.
_BURN = """
import os, sys, time
while time.process_time() < 0.2:
    pass
open(sys.argv[1], "a").write(f"{os.getpid()} {time.process_time()}\\n")
time.sleep(float(sys.argv[2]))
"""
#: A child that is waited for, one whose parent ignores its end, and one whose parent is gone; then
#: a hundred episodes of 5 points.
_TREE = """
import os, signal, struct, subprocess, sys, time
burn, said, episodes = sys.argv[1:]
def start(lasts):
    return subprocess.Popen([sys.executable, "-c", burn, said, lasts])
start("0").wait()
if not os.fork():
    start("600")
    os.setsid()
    os._exit(0)
os.wait()
if not os.fork():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    start("600")
    time.sleep(600)
while len(open(said).readlines()) < 3:
    time.sleep(0.01)
open(said, "a").write(f"{os.getpid()} {time.process_time()}\\n")
with open(episodes, "ab") as file:
    for number in range(100):
        for return_ in (float("nan"), 5.0):
            file.write(struct.pack("<qqqdd", 1, number, 7 * number, number, return_))
time.sleep(600)
"""


def test_cpu_seconds_are_those_of_every_process_and_none_lives_on(tmp_path: Path) -> None:
    said, episodes = tmp_path / "said", tmp_path / "episodes"
    tree = [sys.executable, "-c", _TREE, _BURN, str(said), str(episodes)]
    measured = subprocess.run(
        [
            *(sys.executable, str(_BENCHMARKS / "board_measure.py"), "--target=5"),
            *("--limit-s=60", f"--episodes={episodes}", "--", *tree),
        ],
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    found = json.loads(measured.stdout)
    processes, used = zip(*(line.split() for line in said.read_text().splitlines()), strict=True)
    expected = sum(map(float, used))
    assert len(processes) == 4 and expected > 0.6
    # beyond what they say: two processes that only fork, and their ends
    assert expected - 0.05 < found["core_s"] < expected + 0.15
    assert (found["ended"], found["steps"], found["mean"]) == ("reached", 693, 5.0)
    assert 0 <= found["others"] <= 1 and found["wall_s"] < 60
    assert not any(Path(f"/proc/{process}").exists() for process in processes)


_BOARD = """
import board, sys
out, sleeps = sys.argv[1:]
code = f"import os, time; open({sleeps!r}, 'w').write(f'{{os.getpid()}} '); time.sleep(600)"
board.Training.command = lambda *_: [sys.executable, "-c", code]
board.main(["--out", out, "--tasks", "acrobot", "--libraries", "aclearn", "--seeds", "1"])
"""


def test_a_board_that_is_ended_leaves_no_process(tmp_path: Path) -> None:
    sleeps = tmp_path / "sleeps"
    with subprocess.Popen(
        [sys.executable, "-c", _BOARD, str(tmp_path / "out"), str(sleeps)], cwd=_BENCHMARKS
    ) as process:
        end = time.monotonic() + 60
        while not (sleeps.exists() and sleeps.read_text().endswith(" ")):
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.01)
        process.terminate()
        assert process.wait(60) == 143
    assert not Path(f"/proc/{sleeps.read_text().strip()}").exists()
    assert not (tmp_path / "out" / "board.csv").exists()


@pytest.mark.parametrize(
    ("code", "ended"),
    [("pass", "over"), ("1 / 0", "failed"), ("import time; time.sleep(60)", "limit")],
)
def test_a_training_that_does_not_reach_its_target_says_how_it_ended(
    tmp_path: Path, code: str, ended: str
) -> None:
    measured = subprocess.run(
        [
            *(sys.executable, str(_BENCHMARKS / "board_measure.py"), "--target=5", "--limit-s=0.5"),
            *(f"--metrics={tmp_path / 'none'}", "--", sys.executable, "-c", code),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found = json.loads(measured.stdout)
    assert (found["ended"], found["steps"], found["mean"]) == (ended, 0, None)


def _records(*records: tuple[int, int, int, float, float]) -> bytes:
    return b"".join(struct.pack("<qqqdd", *record) for record in records)


def test_an_episode_counts_once_all_that_began_before_have_ended(tmp_path: Path) -> None:
    path, begun, left = tmp_path / "episodes", float("nan"), float("inf")
    judge = EpisodeJudge(path, frames=4)
    assert not judge.reached(10.0) and judge.mean is None
    # one long episode of 0 points, one that is left, and beside them 150 short ones of 10
    data = _records((1, 1, 0, 0.0, begun), (2, 1, 0, 0.5, begun))
    for number in range(2, 152):
        data += _records((1, number, number, number, begun), (1, number, number, number, 10.0))
    path.write_bytes(data + b"half")
    assert not judge.reached(10.0)
    assert judge.mean is None and judge.steps == 151 // 4
    with path.open("r+b") as file:
        file.seek(len(data))
        file.write(_records((1, 1, 400, 0.0, 0.0)))
    assert not judge.reached(9.95) and judge.mean is None  # the one that is left has not ended yet
    with path.open("ab") as file:
        file.write(_records((2, 1, 80, 0.5, left)))
    # the newest hundred: 0 points are in the first of them only
    assert not EpisodeJudge(path).reached(10.01)
    assert judge.reached(9.95) and judge.mean == 10.0 and judge.steps == (400 + 80) // 4


def test_metrics_lines_count_with_a_hundred_episodes_and_when_whole(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    judge = MetricsJudge(path)

    def line(steps: int, episodes: int | None, mean: float | None) -> str:
        return json.dumps(
            {"env_steps": steps, "episodes_in_mean": episodes, "return_mean_100": mean}
        )

    path.write_text(line(5, None, None) + "\n" + line(10, 99, 500.0) + "\n" + line(20, 100, 475.0))
    assert not judge.reached(475.0) and judge.steps == 10 and judge.mean is None
    with path.open("a") as file:
        file.write("\n" + line(30, 100, 480.0) + "\n")
    assert judge.reached(475.0) and judge.steps == 20 and judge.mean == 475.0


def test_an_environment_records_true_returns_and_steps_below_the_library_s_wrappers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "episodes"
    monkeypatch.setenv(board_episodes.FILE, str(path))
    monkeypatch.setattr(board_episodes._Log, "_of", {})
    env = gym.wrappers.TransformReward(gym.make("board_episodes:board/cartpole-v0"), lambda _: 0.0)
    lengths = []
    for seed in range(2):
        env.reset(seed=seed)
        ended = steps = 0
        while not ended:
            _, _, terminated, truncated, _ = env.step(0)
            steps, ended = steps + 1, terminated or truncated
        lengths.append(steps)
    env.reset(seed=3)
    env.step(0)
    env.reset()  # leaves an episode of one step
    env.close()
    records = [*board_episodes.RECORD.iter_unpack(path.read_bytes())]
    assert board_episodes.RECORD.format == board_measure._RECORD.format
    assert {record[0] for record in records} == {os.getpid()}
    assert [record[1] for record in records] == [1, 1, 2, 2, 3, 3]
    first, second = lengths
    assert [record[2] for record in records] == [
        0,
        first,
        first,
        first + second,
        first + second,
        first + second + 1,
    ]
    returns = [record[4] for record in records]
    assert returns[1::2] == [first, second, float("inf")]
    assert all(r != r for r in returns[::2])


def test_every_training_has_a_command_and_settings(tmp_path: Path) -> None:
    wanted = board.trainings(list(board.TASKS), board.LIBRARIES, [1, 2, 3])
    assert len(wanted) == 3 * (8 * 5 + 3)
    assert [t.seed for t in wanted] == sorted(t.seed for t in wanted)
    for training in wanted:
        assert training.settings
        command = training.command(tmp_path, tmp_path)
        assert str(training.seed) in " ".join(command)
        if training.library not in board.PEERS:
            config = board._ROOT / training.settings
            [line] = [x for x in config.read_text().splitlines() if "target_return:" in x]
            if training.library == board.QUEUED:
                assert float(line.split()[1]) == board.TASKS[training.task].target
    assert set(board_cleanrl.SCRIPTS) == set(board_episodes._IDS) == set(board.TASKS)
    for library in board.PEERS:
        wants = _BENCHMARKS / "requirements" / f"{library}.txt"
        pins = [x for x in wants.read_text().splitlines() if not x.startswith("#")]
        assert pins and all("==" in pin for pin in pins)


def _measured(**changed: Any) -> dict[str, Any]:
    return {
        **{"steps": 1000, "core_s": 30.0, "wall_s": 20.0, "ended": "reached", "mean": 480.0},
        **{"others": 0.01, "reached": "yes", "version": "1", "settings": "s", "command": "c"},
        **{"machine": "m", "cpu": "c", "commit": "1"},
        **changed,
    }


def test_rows_are_appended_and_a_resumed_board_trains_what_has_no_row_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others: Iterator[float] = iter([0.01, 0.4, 0.01])
    trained: list[board.Training] = []

    def run(training: board.Training, *_: Any) -> dict[str, Any]:
        trained.append(training)
        return vars(training) | _measured(others=next(others))

    monkeypatch.setattr(board, "run", run)
    arguments = ["--out", str(tmp_path), "--tasks", "cartpole", "--libraries", "aclearn"]
    board.main([*arguments, "--seeds", "1", "2"])
    with pytest.raises(SystemExit):
        board.main([*arguments, "--seeds", "1", "2"])
    board.main([*arguments, "--seeds", "1", "2", "--resume"])
    rows = [*csv.DictReader((tmp_path / "board.csv").read_text().splitlines())]
    assert tuple(rows[0]) == board.FIELDS
    assert [(row["seed"], row["others"]) for row in rows] == [
        ("1", "0.01"),
        ("2", "0.4"),
        ("2", "0.01"),
    ]
    assert [t.seed for t in trained] == [1, 2, 2]


def test_a_library_that_is_not_installed_is_refused_with_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        board.main(["--out", str(tmp_path), "--peers", str(tmp_path), "--libraries", "rllib"])
    said = capsys.readouterr().err
    assert f"python -m venv {tmp_path}/rllib" in said
    assert "--requirement benchmarks/requirements/rllib.txt" in said
    assert not (tmp_path / "board.csv").exists()


def test_files_of_another_content_are_not_run(tmp_path: Path) -> None:
    path = tmp_path / "cleanrl/ppo.py"
    path.parent.mkdir()
    path.write_text("print('another')")
    with pytest.raises(SystemExit, match=r"ppo.py has the SHA-256 .*, expected d8dfbb7a"):
        board_cleanrl.download(tmp_path)


def _row(library: str, seed: int, core_s: float, **changed: Any) -> Row:
    given = {"ended": "reached", "others": 0.0, "wall_s": core_s, "steps": 1000 * seed} | changed
    return Row("cartpole", library, seed, core_s=core_s, mean=480.0, **given)


def test_the_table_has_medians_of_quiet_rows_and_says_what_was_not_run(tmp_path: Path) -> None:
    rows = [
        *(_row("aclearn", seed, core_s) for seed, core_s in ((1, 30.0), (2, 90.0), (3, 60.0))),
        _row("aclearn", 1, 6.0, others=0.05),
        _row("aclearn", 2, 6.0, ended="failed"),
        *(_row("rllib", seed, 600.0, ended="limit") for seed in (1, 2)),
        _row("rllib", 3, 120.0),
        _row("cleanrl", 1, 90.0),
        _row("cleanrl", 2, 90.0, ended="over"),
    ]
    libraries = ("aclearn", "rllib", "cleanrl", "sample_factory")
    text = table(
        rows,
        {name: board.TASKS[name] for name in ("cartpole", "pong")},
        libraries,
        {("", "sample_factory"): "does not install: why"},
    )
    lines = text.splitlines()
    assert lines[0] == "| task, target | aclearn | rllib | cleanrl | sample factory |"
    assert lines[2] == (
        "| cartpole, 475 | **1.00** / 60 / 2 (3) | not reached in 10.0 min (1 of 3) "
        "| not reached in 1.5 min (1 of 2) | does not install: why |"
    )
    assert lines[3] == "| pong, 18 | not run | not run | not run | does not install: why |"
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_table(text, page)
    assert page.read_text() == f"before\n{BEGIN}\n\n{text}\n{END}\nafter\n"
    page.write_text("none")
    with pytest.raises(ValueError, match="has no table between"):
        write_table(text, page)
    picture(rows, board.TASKS, libraries, tmp_path / "board.png")
    assert (tmp_path / "board.png").stat().st_size > 5_000


def test_the_page_has_the_table_of_its_rows(tmp_path: Path) -> None:
    page = board._ROOT / "docs/results/board.md"
    copy = tmp_path / "board.md"
    copy.write_text(page.read_text())
    board.main(["--out", str(page.parent / "data"), "--table", str(copy)])
    assert copy.read_text() == page.read_text()
