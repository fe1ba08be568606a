"""A function called in a process of its own.

A user's code may hang, crash, print, change the directory or end the interpreter; torch takes
seconds to load. The process keeps all that from the caller.
"""

from __future__ import annotations

import contextlib
import json
import os
import pkgutil
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Any

from aclearn.launch import PARENT_PID_VARIABLE, StopFlag, describe_exit, die_with_parent
from aclearn.launch.main_guard import mark_own_process

#: Longest wait before the clock and the signals are checked, in seconds.
_LOOK_EVERY_S = 0.02
#: Bytes of one read of a pipe.
_READ_BYTES = 65_536
#: Newest bytes kept of the printed output.
_PRINTED_BYTES = 4096

#: Gives fields to the caller, at once: later ones replace earlier ones of the same name.
Say = Callable[..., None]


@dataclass(frozen=True)
class Answer:
    """Fields that the function said, and how its process ended.

    Attributes:
        said: the fields.
        late: whether the time was over first.
        exit: how the process ended, in words.
        printed: its last printed line.
    """

    said: dict[str, Any]
    late: bool
    exit: str
    printed: str

    def ended(self, when: str = "") -> str:
        """Words for a message: "its process ended (exit status 1) WHEN: last line"."""
        words = f": {self.printed}" if self.printed else ""
        return f"its process ended ({self.exit}){when}{words}"


def call(
    function: str, payload: Mapping[str, Any], *, within_s: float, stop: StopFlag | None = None
) -> Answer:
    """Call `function(say, **payload)` in another process.

    At the end the process and all that it has started are killed.

    Args:
        function: `module:function`.
        payload: arguments that JSON can hold.
    """
    # a pipe would wait for a reader if the payload is long
    with tempfile.TemporaryFile() as file:
        file.write(json.dumps(payload).encode())
        file.seek(0)
        process = _start(function, file)
    answer, printed = bytearray(), bytearray()
    try:
        late = not _listen(process, answer, printed, time.monotonic() + within_s, stop)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with process:
            pass  # closes the pipes, reaps
    said: dict[str, Any] = {}
    for line in answer.decode().splitlines():
        said |= json.loads(line)
    words = printed.decode(errors="replace").strip().rpartition("\n")[-1]
    return Answer(said, late, describe_exit(process.returncode), words)


#: `call`, or what answers in its place.
Call = Callable[..., Answer]


def _start(function: str, payload: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        # -P: a folder named services in the current directory must not shadow ours
        [sys.executable, "-P", "-m", "services.role.isolated", function],
        stdin=payload,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", PARENT_PID_VARIABLE: str(os.getpid())},
        start_new_session=True,
    )


def _listen(
    process: subprocess.Popen[bytes],
    answer: bytearray,
    printed: bytearray,
    deadline: float,
    stop: StopFlag | None,
) -> bool:
    """Collect the process's output until it ends; False if it is late or `stop` was set."""
    with selectors.DefaultSelector() as selector:
        for pipe, kept in ((process.stdout, answer), (process.stderr, printed)):
            assert pipe is not None
            selector.register(pipe, selectors.EVENT_READ, kept)
        while True:
            # not until both pipes are closed: processes that the user's code started may hold them
            ended = process.poll() is not None
            for key, _ in selector.select(0.0 if ended else _LOOK_EVERY_S):
                read = os.read(key.fd, _READ_BYTES)
                key.data.extend(read)
                if not read:
                    selector.unregister(key.fileobj)
            del printed[:-_PRINTED_BYTES]
            if ended:
                return True
            if stop or time.monotonic() > deadline:
                return False


def _write_all(descriptor: int, data: bytes) -> None:
    while data:  # a pipe takes a part of what is long
        data = data[os.write(descriptor, data) :]


def main() -> None:
    """Call the function that the first argument names, with the payload on standard input."""
    # prints go to standard error, and processes of the user's do not inherit the answer's pipe
    answer = os.dup(1)
    os.dup2(2, 1)

    def say(**fields: Any) -> None:
        _write_all(answer, json.dumps(fields).encode() + b"\n")

    die_with_parent()
    # the terminal's Ctrl-C does not come here: a KeyboardInterrupt is of the user's code
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    mark_own_process()
    pkgutil.resolve_name(sys.argv[1])(say, **json.loads(sys.stdin.read()))
    os._exit(0)  # the user's code may have left threads running


if __name__ == "__main__":
    main()
