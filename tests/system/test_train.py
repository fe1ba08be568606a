"""`aclearn train` from start to end, and the commands on its run afterwards."""

from __future__ import annotations

from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer

from aclearn.runs import load_newest
from tests.support.system import CARTPOLE, Run, System


def test_a_run_ends_at_its_bound_and_can_be_played_drawn_and_looked_at(system: System) -> None:
    # the name is a number in YAML
    run = system.train(system.config(CARTPOLE, run={"name": 42, "max_env_steps": 4000}))
    assert run.wait() == 0, run.diagnosis()
    summary = run.check_account()
    assert summary["reason"] == "max_env_steps"
    # the bound is exceeded by the unroll that reached it, and by two more of each of two actors:
    # one in flight and one that waits, of 5 steps of 4 games each
    assert 4000 <= summary["env_steps"] <= 4000 + 20 + 2 * (20 + 20)
    assert summary["learned_steps"] > 3000
    assert summary["in_flight_steps"] == 0
    assert summary["episodes"] > 20
    assert 9 < summary["return_mean_100"] < 500
    assert summary["reached_target_at_s"] is None
    assert "max_env_steps" in run.output
    checkpoint = load_newest(run.folder / "checkpoints")
    assert checkpoint is not None
    assert checkpoint.state["account"]["learned_steps"] == summary["learned_steps"]
    assert checkpoint.state["counters"]["updates"] == summary["updates"] == checkpoint.label
    _check_events(run)

    picture = system.folder / "curve.png"
    commands = [
        system.command("evaluate", run.folder, "--episodes", "5"),
        system.command("top", run.folder, "--once"),
        system.command("plot", run.folder, "--out", picture),
    ]
    for command in commands:
        assert command.wait() == 0, command.output
    play, top, _ = commands
    assert "5 episodes" in play.output and f"{summary['updates']} updates" in play.output
    assert "the run is over: max_env_steps" in top.output
    for words in ("trainer", "works", "actor", "emulator", "inference"):
        assert words in top.output, (words, top.output)
    assert picture.read_bytes().startswith(b"\x89PNG")
    drawn = system.command("plot", run.folder, "--tuner", "--out", system.folder / "t.png")
    assert drawn.wait() != 0
    assert "the tuner of this run was off" in drawn.output and "Traceback" not in drawn.output
    assert [path.name for path in (system.folder / "runs").iterdir()] == ["42"]


def _check_events(run: Run) -> None:
    # like TensorBoard with --logdir run.dir
    events = EventMultiplexer().AddRunsFromDirectory(str(run.folder.parent))
    events.Reload()
    assert events.Runs().keys() == {"42"}
    tags = set(events.Runs()["42"]["tensors"]) - {"configuration"}
    assert {"steps/learned", "return/mean_100", "wait/actor/emulator"} <= tags
    assert all("/" in tag for tag in tags), "each is in a group"
    (configuration,) = events.Tensors("42", "configuration")
    assert events.SummaryMetadata("42", "configuration").plugin_data.plugin_name == "text"
    text = configuration.tensor_proto.string_val[0].decode()
    assert text == f"```yaml\n{(run.folder / 'config.yaml').read_text()}\n```"
