"""`aclearn train` from its start to its end, and what can be done with the run afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer

from aclearn.runs import load_newest
from tests.support.metrics_lines import NEVER_FALL, WITHIN_A_GENERATION, check_lines
from tests.support.system import CARTPOLE, PONG, Run, System
from tests.support.waiting import patience
from tests.system.conftest import leaving_nothing


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[System, Path, Run]]:
    """A CartPole run that has ended at its bound."""
    with leaving_nothing(tmp_path_factory.mktemp("finished")) as system:
        config = system.config(CARTPOLE, run={"max_env_steps": 4000})
        run = system.train(config)
        assert run.wait() == 0, run.diagnosis()
        yield system, config, run


def _copy(finished: tuple[System, Path, Run], target: Path) -> Path:
    """A copy of the finished run; the folder that takes the place of `run.dir`."""
    shutil.copytree(finished[2].folder, target / "r")
    return target


def _beyond(finished: tuple[System, Path, Run], more: int) -> int:
    """A bound for who goes on: a fast run may have gone far beyond its own."""
    return int(finished[2].summary()["env_steps"]) + more


def test_a_run_ends_at_its_bound_with_summary_checkpoint_and_events(
    finished: tuple[System, Path, Run],
) -> None:
    run = finished[2]
    summary, lines = run.check_account(), run.lines()
    assert summary["reason"] == "max_env_steps"
    # beyond it are the unroll that reached it, and of each of two actors one on its way and one
    # that waits for it, of 5 steps of 4 games each
    assert 4000 <= summary["env_steps"] <= 4000 + 20 + 2 * (20 + 20)
    assert summary["learned_steps"] > 3000
    assert summary["in_flight_steps"] == 0
    assert summary["episodes"] > 20
    assert 9 < summary["return_mean_100"] < 500
    assert summary["reached_target_at_s"] is None
    assert "max_env_steps" in run.output
    times = [0.0, *(line["time_s"] for line in lines)]  # from the command's start
    assert max(b - a for a, b in pairwise(times)) < 5.0 * patience()
    checkpoint = load_newest(run.folder / "checkpoints")
    assert checkpoint is not None
    assert checkpoint.state["ledger"]["learned_steps"] == summary["learned_steps"]
    assert checkpoint.state["counters"]["updates"] == summary["updates"] == checkpoint.label
    # as TensorBoard does, whose --logdir is run.dir
    events = EventMultiplexer().AddRunsFromDirectory(str(run.folder.parent))
    events.Reload()
    assert events.Runs().keys() == {"r"}
    tags = set(events.Runs()["r"]["tensors"]) - {"configuration"}
    assert {"steps/learned", "return/mean_100", "wait/actor/emulator"} <= tags
    assert all("/" in tag for tag in tags), "each is in a group"
    (configuration,) = events.Tensors("r", "configuration")
    assert events.SummaryMetadata("r", "configuration").plugin_data.plugin_name == "text"
    text = configuration.tensor_proto.string_val[0].decode()
    assert text == f"```yaml\n{(run.folder / 'config.yaml').read_text()}\n```"


def test_a_run_ends_at_its_target_and_says_when_it_was_reached(system: System) -> None:
    # the mean of 100 episodes of the very first policies is above 12 already
    config = system.config(CARTPOLE, run={"target_return": 12})
    run = system.train(config)
    assert run.wait() == 0, run.diagnosis()
    summary = run.check_account()
    assert summary["reason"] == "target_reached"
    assert summary["return_mean_100"] >= 12
    assert summary["episodes"] >= 100
    reached = summary["reached_target_at_s"]
    assert 0 < reached <= summary["wall_s"]
    first = next(line for line in run.lines() if line["reached_target_at_s"] is not None)
    assert reached == first["reached_target_at_s"] == first["time_s"]
    assert first["return_mean_100"] >= 12
    assert "target 12" in run.output and "reached" in run.output

    # gone on with, to one that is higher than the mean, whatever that has come to meanwhile
    target = summary["return_mean_100"] + 2
    again = system.train(config, f"run.target_return={target}", "--resume")
    assert again.wait() == 0, again.diagnosis()
    summary = again.check_account()
    assert summary["reason"] == "target_reached"
    # the mean of a later line may be lower: episodes end until the last actor has stopped
    assert any((line["return_mean_100"] or 0.0) >= target for line in again.lines())
    assert reached < summary["reached_target_at_s"] <= summary["wall_s"]


def test_a_run_makes_exactly_its_updates_and_goes_on_to_a_higher_bound(system: System) -> None:
    trainer = {"minibatches": 2, "epochs": 2, "workers": 2}
    config = system.config(CARTPOLE, run={"max_updates": 7}, trainer=trainer)
    first, again = (), ("run.max_updates=21", "--resume")
    for arguments, updates in ((first, 7), (again, 21)):
        run = system.train(config, *arguments)
        assert run.wait() == 0, run.diagnosis()
        summary = run.check_account()
        assert (summary["reason"], summary["updates"]) == ("max_updates", updates)
        checkpoint = load_newest(run.folder / "checkpoints")
        assert checkpoint is not None and checkpoint.label == updates


def test_many_updates_from_one_batch_do_not_make_the_next_batch_too_old(system: System) -> None:
    # 32 updates from each batch, and one published version
    trainer = {"minibatches": 8, "epochs": 4, "max_lag_versions": 20}
    run = system.train(system.config(CARTPOLE, run={"max_env_steps": 2000}, trainer=trainer))
    assert run.wait() == 0, run.diagnosis()
    summary = run.check_account()
    assert summary["dropped_steps"].get("lag", 0) == 0, summary["dropped_steps"]
    assert summary["policy_version"] * 32 == summary["updates"] > 0
    assert summary["lag_max"] <= 20


def test_pong_learns_a_few_updates(system: System) -> None:
    config = system.config(PONG, run={"max_updates": 5}, actors={"inference": "predictor"})
    run = system.train(config)
    assert run.wait() == 0, run.diagnosis()
    summary = run.check_account()
    assert summary["reason"] == "max_updates"
    assert summary["updates"] >= 5
    # 2 unrolls of 5 steps of 4 games; no step is masked, since no game of Pong ends so soon
    assert summary["learned_steps"] == summary["updates"] * 40
    roles = {role for line in run.lines() for role in line["wait_share"]}
    assert roles == {"monitor", "trainer", "actor", "predictor"}


def test_a_finished_run_can_be_played_and_drawn(
    finished: tuple[System, Path, Run], tmp_path: Path
) -> None:
    system, _, run = finished
    play = system.command("evaluate", run.folder, "--episodes", "5")
    picture = tmp_path / "curve.png"
    draw = system.command("plot", run.folder, _copy(finished, tmp_path) / "r", "--out", picture)
    assert play.wait() == 0, play.output
    assert "5 episodes" in play.output and f"{run.summary()['updates']} updates" in play.output
    assert draw.wait() == 0, draw.output
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_run_folder_that_exists_is_left_as_it_is(finished: tuple[System, Path, Run]) -> None:
    system, config, run = finished
    before = {p: p.read_bytes() for p in sorted(run.folder.rglob("*")) if p.is_file()}
    again = system.train(config)
    assert again.wait() in (1, 64)
    assert f"{run.folder} exists already" in again.output
    assert "--resume" in again.output and "run.name" in again.output
    assert "Traceback" not in again.output
    assert {p: p.read_bytes() for p in sorted(run.folder.rglob("*")) if p.is_file()} == before


def test_a_resumed_run_goes_on_with_the_same_counters(
    finished: tuple[System, Path, Run], system: System
) -> None:
    folder = _copy(finished, system.folder / "runs")
    before = finished[2].lines()
    bound = _beyond(finished, 3000)
    run = system.train(
        finished[1], "--resume", f"run.dir={folder}", "run.name=r", f"run.max_env_steps={bound}"
    )
    assert run.wait() == 0, run.diagnosis()
    summary = run.check_account()
    lines = run.lines()
    assert lines[: len(before)] == before
    for name in (*NEVER_FALL, *WITHIN_A_GENERATION):
        values = [line[name] for line in lines]
        assert values == sorted(values), name
    assert summary["generation"] == 1
    assert summary["reason"] == "max_env_steps"
    assert summary["env_steps"] >= bound
    assert summary["learned_steps"] > before[-1]["learned_steps"] + 1000
    assert f"max_env_steps: {bound}" in (run.folder / "config.yaml").read_text()


def test_a_run_that_is_over_is_not_started_again_and_names_the_key_to_go_on_with(
    finished: tuple[System, Path, Run], system: System
) -> None:
    folder = _copy(finished, system.folder / "runs")
    before = {p: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
    run = system.train(finished[1], "--resume", f"run.dir={folder}", "run.name=r")
    assert run.wait() == 0, run.diagnosis()
    assert run.output == (
        f"the run in {folder / 'r'} is over: it has reached run.max_env_steps=4000. To resume "
        "it, give a higher bound, e.g. run.max_env_steps=8000\n"
    )
    assert {p: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()} == before
    target = system.train(finished[1], "--resume", f"run.dir={folder}", "run.target_return=9")
    assert target.wait() == 0, target.diagnosis()
    assert "it has reached its target of 9 at" in target.output
    assert "give run.stop_at_target=false or a higher run.target_return" in target.output


def test_a_resumed_run_keeps_its_configuration_and_says_what_the_file_would_have_changed(
    finished: tuple[System, Path, Run], system: System
) -> None:
    folder = _copy(finished, system.folder / "runs")
    before = (folder / "r" / "config.yaml").read_text()
    edited = yaml.safe_load(finished[1].read_text()) | {"optimiser": {"learning_rate": 0.5}}
    edited["run"] |= {"dir": str(folder), "name": "r"}  # the folder was moved: the file says where
    path = system.folder / "edited.yaml"
    path.write_text(yaml.safe_dump(edited))
    run = system.train(path, "--resume")
    assert run.wait() == 0, run.diagnosis()
    assert str(folder / "r") in run.output
    words = f"the run keeps its own configuration; not taken from {path}: optimiser.learning_rate."
    assert words in run.output
    after = (folder / "r" / "config.yaml").read_text()
    assert yaml.safe_load(after)["optimiser"] == yaml.safe_load(before)["optimiser"]


def _damage(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "truncated":
        content = content[: len(content) // 2]
    else:
        content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("how", ["truncated", "flipped"])
def test_a_damaged_checkpoint_is_passed_over_and_if_all_are_the_run_ends(
    finished: tuple[System, Path, Run], system: System, how: str
) -> None:
    folder = _copy(finished, system.folder / "runs")
    newest_first = sorted((folder / "r" / "checkpoints").glob("*.safetensors"), reverse=True)
    assert len(newest_first) >= 2
    for path in newest_first if how == "truncated" else newest_first[:1]:
        _damage(path, how)
    bound = _beyond(finished, 2000)
    run = system.train(
        finished[1], "--resume", f"run.dir={folder}", "run.name=r", f"run.max_env_steps={bound}"
    )
    status = run.wait()
    if how == "truncated":
        assert status in (1, 64), run.diagnosis()
        assert "damaged" in run.output and str(newest_first[0]) in run.output
        check_lines(run.lines())
    else:
        assert status == 0, run.diagnosis()
        assert newest_first[0].stem in run.log("trainer-0")
        assert f"event=resumed checkpoint={newest_first[1].stem}" in run.log("trainer-0")
        run.check_account()


def test_another_policy_than_the_runs_own_is_refused_and_changes_nothing(
    finished: tuple[System, Path, Run], system: System
) -> None:
    folder = _copy(finished, system.folder / "runs")
    config = (folder / "r" / "config.yaml").read_bytes()
    checkpoints = sorted(p.name for p in (folder / "r" / "checkpoints").iterdir())
    run = system.train(
        finished[1], "--resume", f"run.dir={folder}", "run.name=r", "policy.hidden=[8]"
    )
    assert run.wait() == 64, run.diagnosis()
    assert "is of another run: policy.hidden is" in run.output
    assert (folder / "r" / "config.yaml").read_bytes() == config
    check_lines(run.lines())
    assert sorted(p.name for p in (folder / "r" / "checkpoints").iterdir()) == checkpoints
