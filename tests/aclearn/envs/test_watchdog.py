"""Native code that hangs, in its own process."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from aclearn.envs.watchdog import EXIT_HUNG
from tests.support.waiting import DEADLINE_S, run_python

_WAITS_FOR_NOTHING = """
from aclearn.config import EnvConfig
from aclearn.envs import make_vector_env
envs = make_vector_env(
    EnvConfig(id="ALE/Pong-v5"), num_envs=2, seed=1, step_timeout_s={timeout_s}, max_faults=0
)
envs.reset()
print("reset", flush=True)
envs.recv()  # without a send: the emulator waits for ever
print("came back", flush=True)
"""


# longer than the time-out, in many short bodies
_MANY_SHORT_WAITS = """
import threading, time
from aclearn.envs.watchdog import Watchdog
watch = Watchdog(0.8, "a loop")
end = time.monotonic() + 1.2
while time.monotonic() < end:
    with watch:
        pass
    time.sleep(0.001)
watch.close()
print("hang-watch" in {thread.name for thread in threading.enumerate()})
"""


def test_a_game_that_hangs_ends_its_process_with_a_traceback() -> None:
    result = run_python("-c", _WAITS_FOR_NOTHING.format(timeout_s=2.8))
    assert result.returncode == EXIT_HUNG, result.stderr
    assert result.stdout == "reset\n"
    assert "environment ALE/Pong-v5: a step has hung for 3 s; this process ends" in result.stderr
    assert "in recv" in result.stderr  # where it hung


def test_what_comes_back_in_time_is_left_alone() -> None:
    result = run_python("-c", _MANY_SHORT_WAITS)
    assert (result.returncode, result.stdout) == (0, "False\n"), result.stderr


_STANDS_STILL = """
import time
from aclearn.envs.watchdog import Watchdog
watch = Watchdog(3.0, "a step")
print("begins", flush=True)
with watch:
    end, last = 0.2, time.monotonic()
    while end > 0:  # some tenths of a second of its own time
        time.sleep(0.01)
        now = time.monotonic()
        end, last = end - min(now - last, 0.05), now
print("came back", flush=True)
"""


def test_a_process_that_was_stopped_itself_has_not_hung() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _STANDS_STILL], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "begins\n"
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(4.5)  # longer than its time-out
        process.send_signal(signal.SIGCONT)
        assert process.communicate(timeout=DEADLINE_S)[0] == "came back\n"
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait(DEADLINE_S)
