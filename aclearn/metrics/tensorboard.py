"""Numbers and texts for TensorBoard, written without torch and TensorFlow."""

from __future__ import annotations

import itertools
import logging
import os
import socket
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from aclearn.metrics.tags import tagged

_LOGGER = logging.getLogger(__name__)
_NUMBER = itertools.count()


class TensorBoardWriter:
    """Appends metrics lines to its own event file; the step axis is `env_steps`.

    Writes and flushes in the calling thread, so that values can be seen at once. A disk error ends
    the writing with a warning, not the run; also at the start, since a monitor may restart on a
    full disk.

    Args:
        folder: gets the event file; made if missing. TensorBoard shows the folder's name as the
            run's. Files of an earlier part of the run stay; TensorBoard joins them.
        roles: the names of all roles; each is a group of tags.
    """

    def __init__(
        self,
        folder: Path,
        roles: Collection[str] = (),
        indicators: Collection[str] = (),
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        # Imported here: it takes 0.2 s and protobuf, which actors do not need.
        from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, types_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._new_event: Callable[..., Any] = event_pb2.Event
        self._new_summary: Callable[..., Any] = summary_pb2.Summary
        self._new_metadata: Callable[..., Any] = summary_pb2.SummaryMetadata
        self._new_tensor = partial(tensor_pb2.TensorProto, dtype=types_pb2.DT_STRING)
        self._roles, self._own, self._clock = roles, indicators, clock
        # TensorBoard finds event files by "tfevents" and reads them in the order of their names;
        # the number separates two writers of one process within a second.
        name = f"events.out.tfevents.{int(clock()):010d}.{socket.gethostname()}"
        path = folder / f"{name}.{os.getpid()}.{next(_NUMBER)}"
        self._file: BinaryIO | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = path.open("xb")
        except OSError as error:
            _LOGGER.warning('event=tensorboard_lost file=%s error="%s"', path, error)
            return
        self._records: Any = RecordWriter(self._file)
        self._append(self._new_event(wall_time=clock(), file_version="brain.Event:2"))

    def __enter__(self) -> TensorBoardWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def write(self, line: Mapping[str, Any]) -> None:
        """Append every number in a metrics line under its tag, see `tagged`.

        Does nothing after `close`.
        """
        self.write_at(int(line.get("env_steps") or 0), line)

    def write_at(self, step: int, values: Mapping[str, Any]) -> None:
        """Write figures at a step of the caller's, for events between two lines."""
        tags = tagged(values, self._roles, self._own)
        self._append_values(step, [{"tag": tag, "simple_value": value} for tag, value in tags])

    def write_text(self, tag: str, text: str, *, step: int = 0) -> None:
        """Append a Markdown text."""
        metadata = self._new_metadata(plugin_data={"plugin_name": "text"})
        tensor = self._new_tensor(string_val=[text.encode()])
        self._append_values(step, [{"tag": tag, "metadata": metadata, "tensor": tensor}])

    def close(self) -> None:
        """Close the file; closing twice has no effect."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def _append_values(self, step: int, values: list[dict[str, Any]]) -> None:
        try:
            summary = self._new_summary(value=values)
            event = self._new_event(wall_time=self._clock(), step=step, summary=summary)
        except (TypeError, ValueError, OverflowError) as error:
            _LOGGER.error('event=tensorboard_values_lost step=%d error="%s"', step, error)
            return
        self._append(event)

    def _append(self, event: Any) -> None:
        if self._file is None:
            return
        try:
            self._records.write(event.SerializeToString())
            self._file.flush()
        except OSError as error:
            _LOGGER.warning('event=tensorboard_lost file=%s error="%s"', self._file.name, error)
            self._abandon()

    def _abandon(self) -> None:
        """Close the file; its buffer is lost."""
        try:
            self.close()
        except OSError as error:
            _LOGGER.debug('event=tensorboard_close error="%s"', error)
