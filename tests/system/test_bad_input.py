"""User errors before the first step: a message says how to mend each."""

from __future__ import annotations

import signal
import socket

from aclearn.wire.messages import PROTOCOL_VERSION
from tests.support.system import CARTPOLE, Command, System, free_port

_OWN = '''
import sys
import gymnasium


class Own(gymnasium.Wrapper):
    """CartPole that closes its window, and with it the program, at a step."""

    def __init__(self, closes_at):
        super().__init__(gymnasium.make("CartPole-v1"))
        self.left = closes_at

    def step(self, action):
        self.left -= 1
        if self.left <= 0:
            raise RuntimeError("the window was closed")
        return self.env.step(action)
'''


def _refused(system: System, command: Command, words: list[str]) -> None:
    """Check for exit status 64 and one line; the fixture checks processes and sockets."""
    assert command.wait() == 64, command.output
    assert command.output.startswith("aclearn: ") and command.output.count("\n") == 1
    for word in words:
        assert word in command.output, command.output
    assert not (system.folder / "runs").exists()
    assert [path for path in system.sockets.iterdir() if path.is_dir()] == []


def test_an_environment_that_cannot_be_used_is_refused_before_anything_is_there(
    system: System,
) -> None:
    (system.folder / "own.py").write_text(_OWN)
    config = system.config(CARTPOLE, env={"id": "own:Own", "kwargs": {"closes_at": 1}})
    where = f"[line 16 of {system.folder / 'own.py'}, in step]"
    words = ["is stepped for the first time: RuntimeError: the window was closed", where]
    _refused(system, system.train(config), words)


def test_roles_by_hand_are_refused_before_they_have_a_folder(system: System) -> None:
    no_env = system.config(CARTPOLE, "no-env", env={"id": "NoGame-v1"})
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        _refused(system, system.role("monitor", system.config(CARTPOLE), taken), [taken, "in use"])
        # before a monitor has given it a number: this one never answers
        started = system.role("actor", no_env, taken)
        _refused(system, started, ["NoGame-v1", "gymnasium knows no such environment"])


def test_a_run_that_failed_at_its_start_makes_way_for_the_one_that_is_mended(
    system: System,
) -> None:
    (system.folder / "own.py").write_text(_OWN)
    # a folder named like a package of ours is not imported
    system.cwd = system.folder / "project"
    (system.cwd / "services").mkdir(parents=True)
    (system.cwd / "services" / "__init__.py").write_text("raise RuntimeError('not this one')")
    own = {"id": "own:Own", "kwargs": {"closes_at": 2}}
    actors = {"max_env_faults": 0}
    failed = system.train(system.config(CARTPOLE, env=own, actors=actors))
    assert failed.wait() == 1, failed.diagnosis()
    assert "own:Own failed 1 times (raised 1)" in failed.output, failed.output
    assert "actors.max_env_faults allows 0" in failed.output
    assert "RuntimeError: the window was closed" in failed.output
    failed.check_account()
    run = system.train(system.config(CARTPOLE, run={"max_updates": 3}))
    assert run.wait() == 0, run.diagnosis()
    summary = run.check_account()
    assert summary["reason"] == "max_updates"
    assert f"{run.folder} had learned nothing; it is replaced" in run.output
    assert [path.name for path in run.folder.parent.iterdir()] == [run.folder.name]
    # it is too short to have a best checkpoint
    assert summary["best_return"] is None
    play = system.command("evaluate", run.folder, "--at", "best")
    assert play.wait() == 64
    assert "no checkpoint was saved as the best" in play.output


def test_roles_of_two_versions_both_name_the_protocols_that_they_speak(system: System) -> None:
    config = system.config(CARTPOLE)
    monitor = f"tcp://127.0.0.1:{free_port()}"
    newer = system.role("monitor", config, monitor)
    # an older image: the same except for its protocol
    image = system.folder / "older"
    image.mkdir()
    (image / "sitecustomize.py").write_text(
        "import aclearn.wire.codec as codec\n\ncodec.PROTOCOL_VERSION -= 1\n"
    )
    system.environment["PYTHONPATH"] += f":{image}"
    older = system.role("actor", config, monitor)
    here, there = PROTOCOL_VERSION, PROTOCOL_VERSION - 1
    for role, peer, own in ((newer, there, here), (older, here, there)):
        words = f"the peer speaks protocol {peer}, this end speaks protocol {own}; all roles of a"
        role.wait_for(lambda r=role, w=words: w in r.output, "it names both versions")
        assert role.output.count("reason=wrong_version") == 1
        assert "need the same aclearn (rebuild the image)" in role.output
    for role in (older, newer):
        role.signal(signal.SIGTERM)
        role.wait()
