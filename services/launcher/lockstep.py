"""Deterministic mode: a whole run in this process, whose roles take turns.

Nothing runs in parallel and no role reads a real clock, so two runs with one seed take the same
actions and end with the same bits.
"""

from __future__ import annotations

import time

import torch

from aclearn.config import Config
from aclearn.launch import StopFlag
from aclearn.runs import RunFolder
from aclearn.types import EnvSpec
from aclearn.views import RunConsole
from services.ending.run_ending import RunEnding
from services.launcher.in_process_run import InProcessRun

#: Seconds between two updates of the console.
_SHOW_EVERY_S = 0.5


def run_lockstep(
    config: Config,
    folder: RunFolder,
    spec: EnvSpec,
    *,
    stop: StopFlag,
    console: RunConsole,
    ending: RunEnding,
) -> None:
    """Run the whole configuration in this process until its goal, its bound or a signal.

    Writes the same files as a run of separate processes. Weights after N updates depend on the seed
    alone; measured times and the moments of checkpoints do not.

    Args:
        ending: gets the newest metrics line.

    Raises:
        AclearnError: the environment, a checkpoint or the disk cannot be used.
    """
    run = InProcessRun(config, folder, spec, stop=stop)
    show_at, noted = 0.0, 0
    threads, random = torch.get_num_threads(), torch.get_rng_state()
    try:
        run.start_all()
        while run.round():
            if (now := time.monotonic()) < show_at or run.monitor is None:
                continue
            show_at = now + _SHOW_EVERY_S
            status = run.monitor.state.status()
            if status["line"]:
                ending.newest_line = status["line"]
                console.update(status["line"], [])
            new, noted = status["noted"] - noted, status["noted"]
            for text in status["notes"][-new:] if new else ():
                console.note(text)
    except BaseException:
        run.fail("failed")
        raise
    finally:
        run.close()
        # of the program that called us; a new torch keeps denormals
        torch.set_num_threads(threads)
        torch.set_rng_state(random)
        torch.set_flush_denormal(False)
