"""Standard output and standard error that ignore errors of writing: output never changes a run."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

from aclearn.files import FULL_DISK

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_STDIN, _STDOUT, _STDERR = 0, 1, 2
#: The reader, e.g. `head`, or the terminal has gone: no message.
_READER_GONE: Final = (errno.EPIPE, errno.EIO)


class _LossyFile(io.FileIO):
    """A file descriptor that drops data which cannot be written: that piece, or all that follow.

    Wrapping each `print` would not do: the interpreter flushes once more when it ends.
    """

    _told = False

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            written = super().write(data)
        except OSError as error:
            if error.errno not in FULL_DISK:  # a log continues once there is room
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


def forget_zero_size() -> None:
    """Remove COLUMNS=0 and LINES=0, which some terminals export: a view of no size is empty."""
    for name in ("COLUMNS", "LINES"):
        if os.environ.get(name) == "0":
            del os.environ[name]


def _lossy(descriptor: int, stream: TextIO | None) -> TextIO:
    """A text stream to the descriptor, encoded as `stream`; None if that was closed.

    Characters that the encoding lacks become "?".
    """
    file = _LossyFile(descriptor, "wb", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(file),
        encoding="utf-8" if stream is None else stream.encoding,
        errors="replace",
        line_buffering=descriptor == _STDERR or file.isatty(),
    )


class _LossyText:
    """A stream of the user's program, which drops what it cannot write."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text; characters that the encoding lacks become "?"."""
        if self._stream is not None:
            encoding = getattr(self._stream, "encoding", None) or "utf-8"
            with suppress(OSError, ValueError):  # gone, full, or closed
                self._stream.write(text.encode(encoding, "replace").decode(encoding))
        return len(text)

    def flush(self) -> None:
        """Flush, if that is possible."""
        if self._stream is not None:
            with suppress(OSError, ValueError):
                self._stream.flush()

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        try:
            return self._stream is not None and self._stream.isatty()
        except ValueError:  # closed
            return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def lossy_stdout() -> Iterator[None]:
    """Within it, no write to `sys.stdout` raises; for a program that is not ours."""
    with redirect_stdout(cast(TextIO, _LossyText(sys.stdout))):
        yield
