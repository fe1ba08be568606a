"""Standard output and standard error of a command: what cannot be written is lost, nothing else."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_STDIN, _STDOUT, _STDERR = 0, 1, 2
#: The reader has gone, as `head` does, or the terminal: which needs no message.
_READER_GONE: Final = (errno.EPIPE, errno.EIO)
#: The disk is full: it may have room again, and the log of a role goes on then.
_MAY_PASS: Final = (errno.ENOSPC, errno.EDQUOT)


class _LossyFile(io.FileIO):
    """A file descriptor that loses what cannot be written: all that follows, or a piece of it.

    Here and not in each `print`: Python itself writes once more when the interpreter ends.
    """

    _told = False

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            written = super().write(data)
        except OSError as error:
            if error.errno not in _MAY_PASS:
                self._discard_the_rest()
            self._tell(error)
            written = None
        # None also where a stream that does not block is full: that piece is lost
        return memoryview(data).nbytes if written is None else written

    def _discard_the_rest(self) -> None:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), self.fileno())

    def _tell(self, error: OSError) -> None:
        if self.fileno() != _STDOUT or error.errno in _READER_GONE or self._told:
            return
        self._told = True
        print(
            f"aclearn: standard output cannot be written ({error.strerror}): what does not fit is "
            "lost, the command goes on",
            file=sys.stderr,
        )


def make_output_lossy() -> None:
    """Let this process survive the loss of its standard output and standard error.

    A reader that goes away (`| head`), a full disk or a stream that was closed from the start costs
    lines of text; no write to `sys.stdout` or `sys.stderr` raises. Call it before anything opens a
    file, which would get the number of a closed stream.
    """
    for descriptor in (_STDIN, _STDOUT, _STDERR):
        try:
            os.fstat(descriptor)
        except OSError:
            # gets the lowest free number, which is this one; children shall have it too
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stderr = _lossy(_STDERR, sys.stderr)
    sys.stdout = _lossy(_STDOUT, sys.stdout)


def _lossy(descriptor: int, stream: TextIO | None) -> TextIO:
    """A text stream to the descriptor, encoded as `stream`, which is None where it was closed."""
    file = _LossyFile(descriptor, "wb", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(file),
        encoding="utf-8" if stream is None else stream.encoding,
        errors="replace" if stream is None else stream.errors,
        line_buffering=descriptor == _STDERR or file.isatty(),
    )
