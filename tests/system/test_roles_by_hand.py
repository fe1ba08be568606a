"""Roles started one by one over TCP: they join, leave and return, and find their run's folder."""

from __future__ import annotations

import signal

from aclearn.launch import EXIT_GIVE_UP
from aclearn.runs import load_newest
from tests.support.system import CARTPOLE, Run, System, free_port
from tests.support.waiting import wait_for


def _left_in_order(run: Run, number: signal.Signals, *, is_monitor: bool = False) -> None:
    run.signal(number)
    # a monitor ends the run with it; the others leave a running one
    assert run.wait(within_s=10.0) == (0 if is_monitor else 128 + number), run.output
    assert "Traceback" not in run.output


def test_roles_with_local_inference_leave_on_a_signal_and_come_back(system: System) -> None:
    config = system.config(CARTPOLE, run={"checkpoint_every_s": 3600.0}, actors={"processes": 1})
    address = f"tcp://127.0.0.1:{free_port()}"
    roles = {name: system.role(name, config, address) for name in ("actor", "trainer", "monitor")}
    run = roles["monitor"]
    run.wait_until_learning(beyond=300)

    # an actor leaves after Ctrl-C at its terminal, and another one takes its place
    _left_in_order(roles["actor"], signal.SIGINT)
    before = run.last()["learned_steps"]
    roles["actor"] = system.role("actor", config, address)
    given = "event=number_given name=actor-0\n"  # the number is free again
    run.wait_for(lambda: given in roles["actor"].output, "the next actor has its number")
    run.wait_until_learning(beyond=before + 500)
    assert run.last()["generation"] == 0

    # the trainer saves as it leaves; the next one continues from there under a new generation
    _left_in_order(roles["trainer"], signal.SIGTERM)
    saved = load_newest(run.folder / "checkpoints")
    assert saved is not None
    learned = saved.state["account"]["learned_steps"]
    assert learned > before + 500
    bound = f"run.max_env_steps={saved.state['account']['env_steps'] + 2000}"
    roles["trainer"] = system.role("trainer", config, address, bound)
    run.wait_for(lambda: run.last()["generation"] == 1, "the new trainer is known")
    run.wait_until_learning(beyond=learned + 300)

    # the monitor has no such bound, and the trainer waits for it
    told = "event=bound_reached bound=run.max_env_steps detail='waits for the monitor to end the "
    run.wait_for(lambda: told in roles["trainer"].output, "the trainer says that it waits")

    # the end of the monitor ends the run
    _left_in_order(run, signal.SIGINT, is_monitor=True)
    for name in ("actor", "trainer"):
        assert roles[name].wait(within_s=10.0) == 0, roles[name].output
    assert roles["trainer"].output.count(told) == 1
    summary = run.check_account()
    assert summary["reason"] == "SIGINT"
    assert summary["in_flight_steps"] == 0
    # no other process shows the run
    progress = [line for line in run.output.splitlines() if line.startswith("time=0:")]
    assert len(progress) >= 1 and all(" env_steps=" in line for line in progress), run.output
    assert "run r (seed 1) ended: SIGINT, return " in run.output
    assert "event=run_continued" not in "".join(role.output for role in roles.values())
    last = load_newest(run.folder / "checkpoints")
    assert last is not None
    assert last.state["account"]["learned_steps"] == summary["learned_steps"]


def test_a_second_trainer_waits_and_the_one_that_must_leave_saves_first(system: System) -> None:
    config = system.config(CARTPOLE, run={"checkpoint_every_s": 3600.0}, actors={"processes": 1})
    address = f"tcp://127.0.0.1:{free_port()}"
    run = system.role("monitor", config, address)
    first = system.role("trainer", config, address)
    actors = [system.role("actor", config, address) for _ in range(2)]
    run.wait_until_learning(beyond=300)
    wait_for(
        lambda: all("event=number_given" in actor.output for actor in actors),
        "both actors have a number",
    )
    assert {actor.output.partition("event=number_given name=")[2][:7] for actor in actors} == {
        "actor-0",
        "actor-1",
    }

    second = system.role("trainer", config, address, f"run.dir={system.folder / 'other'}")
    wait_for(lambda: "event=name_is_taken" in second.output, "it waits", context=second.diagnosis)
    assert "trainer-0 is process" in second.output and "which lives" in second.output
    learned = run.wait_until_learning(beyond=run.last()["learned_steps"] + 500)["learned_steps"]

    first.signal(signal.SIGSTOP)
    run.wait_for(lambda: "trainer-0 was restarted" in run.output, "the second takes its place")
    first.signal(signal.SIGCONT)
    assert first.wait(within_s=30.0) == 1, first.output  # the run continues without it
    assert "trainer-0 is process" in first.output
    saved = load_newest(run.folder / "checkpoints")
    assert saved is not None
    assert saved.state["account"]["learned_steps"] >= learned
    for role in (*actors, second, run):
        _left_in_order(role, signal.SIGTERM, is_monitor=role is run)


def test_a_role_of_another_environment_is_refused_by_key_unless_forced(system: System) -> None:
    config = system.config(CARTPOLE, actors={"processes": 1})
    address = f"tcp://127.0.0.1:{free_port()}"
    run = system.role("monitor", config, address)
    trainer = system.role("trainer", config, address)
    other = ("env.clip_rewards=true", "env.kwargs={sutton_barto_reward: true}")
    actor = system.role("actor", config, address, *other)
    assert actor.wait(within_s=30.0) == EXIT_GIVE_UP
    told = "it differs from the run in env.kwargs, env.clip_rewards; start it with the run's own"
    assert f'event=refused_by_the_run reason="{told}' in actor.output, actor.output
    assert run.last()["env_steps"] == 0 and run.last()["episodes"] == 0
    forced = system.role("actor", config, address, *other, "--force")
    run.wait_until_learning(beyond=300)
    assert "although it differs in env.kwargs, env.clip_rewards" in run.output
    for each in (forced, trainer):
        _left_in_order(each, signal.SIGTERM)
    _left_in_order(run, signal.SIGTERM, is_monitor=True)
