"""Ends a role when its supervisor has died."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading
import time
from pathlib import Path

from aclearn.launch.role_command import PARENT_PID_VARIABLE

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>

#: Of a fork, whose parent is not its supervisor: a descriptor of the supervisor's process.
_supervisor: int | None = None


def watch_supervisor(descriptor: int) -> None:
    """Say that this process is a fork, whose supervisor is the process of this descriptor."""
    global _supervisor
    _supervisor = descriptor


def _has_ended(descriptor: int, within_s: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(within_s * 1e3))


def parent_is_alive() -> bool:
    """Whether the supervisor that started this process lives.

    Also True for a role that was started by hand, which has no supervisor.
    """
    expected = os.environ.get(PARENT_PID_VARIABLE)
    if expected is None:
        return True
    if _supervisor is not None:
        return not _has_ended(_supervisor, 0.0)
    if os.getppid() != int(expected):  # an orphan has another parent, so a reused pid does no harm
        return False
    # A killed parent is ours until its last thread has ended, on a busy machine for longer than a
    # role takes to end. Its first thread, whose death signals us, is a zombie by then.
    try:
        state = Path(f"/proc/{expected}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:  # another system, or it has ended meanwhile
        return os.getppid() == int(expected)
    return state not in ("Z", "X")


#: Seconds for an orderly end, and between two checks of the parent.
_GRACE_S, _POLL_S = 8.0, 0.5


def die_with_parent() -> None:
    """Send SIGTERM to this process when its supervisor dies, and SIGKILL eight seconds later.

    On Linux the kernel sends a child SIGTERM at once; otherwise a daemon thread does soon. The same
    thread kills the whole process group if the orderly end takes too long. No effect in a role that
    was started by hand.
    """
    if PARENT_PID_VARIABLE not in os.environ:
        return
    if _supervisor is None:
        signal_at_parent_death(signal.SIGTERM)  # if the kernel refuses, the thread does it
    threading.Thread(target=_watch_parent, name="parent-watch", daemon=True).start()


def signal_at_parent_death(number: int) -> None:
    """Let the kernel send this signal to this process when its parent dies; on Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def _watch_parent() -> None:
    # First check: a parent that died before prctl causes no signal.
    while parent_is_alive():
        if _supervisor is None:
            time.sleep(_POLL_S)
        else:
            _has_ended(_supervisor, _POLL_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_S)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    else:  # the group belongs to another process
        os.kill(os.getpid(), signal.SIGKILL)
