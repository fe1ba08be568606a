"""Standard output and standard error of a command, which ignore errors of writing."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_STDIN, _STDOUT, _STDERR = 0, 1, 2
#: The reader, e.g. `head`, or the terminal has gone: no message.
_READER_GONE: Final = (errno.EPIPE, errno.EIO)
#: The disk is full: a role's log continues once there is room.
_MAY_PASS: Final = (errno.ENOSPC, errno.EDQUOT)


class _LossyFile(io.FileIO):
    """A file descriptor that drops data which cannot be written: that piece, or all that follow.

    Wrapping each `print` would not do: the interpreter flushes once more when it ends.
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
        # None also if a non-blocking stream is full: that piece is dropped
        return memoryview(data).nbytes if written is None else written

    def _discard_the_rest(self) -> None:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), self.fileno())

    def _tell(self, error: OSError) -> None:
        if self.fileno() != _STDOUT or error.errno in _READER_GONE or self._told:
            return
        self._told = True
        print(
            f"aclearn: standard output cannot be written ({error.strerror}): the text is "
            "lost, the command continues",
            file=sys.stderr,
        )


def make_output_lossy() -> None:
    """Let this process survive the loss of its standard output and standard error.

    After that, no write to `sys.stdout` or `sys.stderr` raises, whether the reader is gone (`|
    head`), the disk full, or the stream closed from the start. Call it before any file is opened,
    which would get the number of a closed stream.
    """
    for descriptor in (_STDIN, _STDOUT, _STDERR):
        try:
            os.fstat(descriptor)
        except OSError:
            # opens the lowest free number, which is this one; inherited by children
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stderr = _lossy(_STDERR, sys.stderr)
    sys.stdout = _lossy(_STDOUT, sys.stdout)


def _lossy(descriptor: int, stream: TextIO | None) -> TextIO:
    """A text stream to the descriptor, encoded as `stream`; None if that was closed."""
    file = _LossyFile(descriptor, "wb", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(file),
        encoding="utf-8" if stream is None else stream.encoding,
        errors="replace" if stream is None else stream.errors,
        line_buffering=descriptor == _STDERR or file.isatty(),
    )
