"""An environment that hangs in native code: its actor is killed and started again."""

from __future__ import annotations

from tests.support.system import CARTPOLE, System

_MODULE = '''
"""CartPole of which the first to take so many steps hangs; a file tells the others."""

import ctypes
import signal

import gymnasium


class HangsOnce(gymnasium.Wrapper):
    def __init__(self, mark, after=40):
        super().__init__(gymnasium.make("CartPole-v1"))
        self.mark, self.left = mark, after

    def step(self, action):
        self.left -= 1
        if self.left == 0:
            try:
                open(self.mark, "x").close()
            except FileExistsError:
                pass
            else:
                hang_in_c()
        return self.env.step(action)


def hang_in_c():
    # a call that comes back for no signal and keeps the interpreter's lock
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
    ctypes.PyDLL(None).sleep(10_000)
'''


def test_an_environment_that_hangs_in_native_code_costs_its_actor_alone(system: System) -> None:
    (system.folder / "hanging_env.py").write_text(_MODULE)
    config = system.config(
        CARTPOLE,
        env={
            "id": "hanging_env:HangsOnce",
            "kwargs": {"mark": str(system.folder / "hung")},
        },
        actors={"step_timeout_s": 2.0},
        monitor={"silent_after_s": 10.0, "heartbeat_every_s": 0.1},
    )
    run = system.train(config)
    run.wait_for((system.folder / "hung").exists, "an environment hangs")
    pids = run.pids()
    run.wait_for(lambda: "silent" in run.output, "the silence is noticed")
    hung = "actor-0" if "actor-0 killed" in run.output else "actor-1"
    assert f"{hung} killed: " in run.output
    new = run.wait_for_new(hung, pids[hung])
    assert run.pids() == pids | {hung: new}
    before = run.last()["learned_steps"]
    run.wait_until_learning(beyond=before + 300)
    run.finish()
