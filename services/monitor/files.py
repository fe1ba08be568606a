"""The files that the monitor writes."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

from aclearn.control.decision_log import DecisionLog
from aclearn.errors import RunFolderError
from aclearn.files import FULL_DISK
from aclearn.metrics import LineNotes, MetricsAggregator, TensorBoardWriter
from aclearn.metrics.policies import PoliciesAggregator
from aclearn.metrics.sinks import SinkSet
from aclearn.runs import (
    ACTIONS_FILE,
    MetricsWriter,
    RunFolder,
    is_metrics_line,
    why_not_written,
    write_atomically,
    write_summary,
)
from aclearn.wire import Action
from services.monitor.address_file import MonitorAddress
from services.monitor.run_clock import Moment, moment, read_moment
from services.roles import ROLES

_LOGGER = logging.getLogger(__name__)

#: Seconds for the summary on a full disk, and between two attempts.
_SUMMARY_WITHIN_S, _SUMMARY_AGAIN_AFTER_S = 1.0, 0.1


class MonitorFiles:
    """Writes metrics.jsonl, TensorBoard events, summary.json and the monitor's state."""

    def __init__(
        self, folder: RunFolder, indicators: Sequence[str] = (), sinks: SinkSet | None = None
    ) -> None:
        self._folder = folder
        self.metrics = MetricsWriter(folder.metrics_path)
        # in the run folder itself: TensorBoard names a run after the folder of its events
        self.tensorboard = TensorBoardWriter(folder.path, ROLES, indicators)
        last_step = int(self.last_line.get("env_steps") or 0)
        text = f"```yaml\n{folder.read_config_yaml()}\n```"
        self.tensorboard.write_text("configuration", text, step=last_step)
        self._sinks = SinkSet({}) if sinks is None else sinks
        self._notes = LineNotes()
        self._failures = 0
        self._reserve()

    def open_metrics(
        self, begun: float, policies: Sequence[str] = (), judged: Sequence[str] = ()
    ) -> MetricsAggregator:
        """An aggregator that continues from the last written line and state.

        Args:
            policies, judged: of a run with several policies, as of `PoliciesAggregator`.
        """
        last = self.last_line or None

        def make(state: Any) -> MetricsAggregator:
            if not policies:
                return MetricsAggregator(begun, resume_from=last, state=state)
            return PoliciesAggregator(begun, policies, judged, resume_from=last, state=state)

        try:
            return make(json.loads(self._folder.monitor_state_path.read_bytes()) if last else None)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, AttributeError) as error:
            _LOGGER.error("event=monitor_state_not_read reason=%r", str(error))
        return make(None)

    def read_directives(self) -> dict[str, Any]:
        """The directives of the monitor before; {} if there are none or the file is damaged."""
        try:
            state = json.loads(self._folder.directives_path.read_bytes())
            return state if isinstance(state, dict) else {}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            _LOGGER.error("event=directives_not_read reason=%r", str(error))
            return {}

    def write_directives(self, state: dict[str, Any]) -> None:
        """Write the directives; an error is logged and the run continues."""
        try:
            write_atomically(self._folder.directives_path, json.dumps(state).encode())
        except OSError as error:
            _LOGGER.error("event=directives_not_written reason=%r", str(error))

    @property
    def last_written(self) -> Moment | None:
        """When the newest state was written; None if unknown."""
        try:
            return read_moment(json.loads(self._folder.monitor_state_path.read_bytes())["written"])
        except (OSError, ValueError, TypeError, KeyError):
            return None

    @property
    def last_line(self) -> dict[str, Any]:
        """The newest line; empty if there is none or it is damaged."""
        last = self.metrics.last_line or {}
        if is_metrics_line(last):
            return last
        _LOGGER.error("event=last_line_not_read file=%s", self._folder.metrics_path)
        return {}

    def write_line(self, line: dict[str, Any], metrics: MetricsAggregator) -> list[str]:
        """Write one line to every file and sink; errors are reported and the run continues.

        Args:
            line: gets `metrics_failures` and `metrics_error`, from the first failure on.

        Returns:
            Notes for the user: files or sinks begin to fail, or files are written again.
        """
        if self._failures:
            line |= {"metrics_failures": self._failures, "metrics_error": None}
        try:
            state = metrics.state() | {"written": str(moment(time.monotonic()))}
            # the state first: it must never be older than its line
            write_atomically(self._folder.monitor_state_path, json.dumps(state).encode())
            self.metrics.write(line)
            self.tensorboard.write(line)
        except (RunFolderError, OSError) as error:
            self._failures += 1
            words = why_not_written(error, self._folder.path)
            line |= {"metrics_failures": self._failures, "metrics_error": words}
        except ValueError as error:  # no JSON number; the next line may be valid
            _LOGGER.error("event=line_not_written reason=%r", str(error)[:300])
            return []
        notes = self._notes.observe(line) + self._sinks.write(line)
        for text in notes:
            _LOGGER.info("event=note text=%r", text)
        return notes

    def write_action(self, line: Mapping[str, Any], action: Action, refusal: str) -> None:
        """Append a user's action to the log of them, or why its receiver refuses it.

        An error is logged and the run continues.
        """
        refused = {"refused": refusal} if refusal else {}
        at = {name: line.get(name) for name in ("time_s", "env_steps")}
        try:
            with closing(DecisionLog(self._folder.path / ACTIONS_FILE)) as log:
                log.write({**at, "action": action.kind, **action.values, **refused})
        except RunFolderError as error:
            _LOGGER.error("event=action_not_written reason=%r", str(error))

    def write_address(self, address: MonitorAddress) -> None:
        """Write where the monitor answers; an error is logged and the run continues."""
        try:
            address.write(self._folder.monitor_path)
        except OSError as error:
            _LOGGER.warning("event=address_not_written reason=%r", str(error))

    def remove_address(self) -> None:
        """Remove what `write_address` wrote: this monitor answers no more."""
        with suppress(OSError):  # readers find that it does not answer
            self._folder.monitor_path.unlink(missing_ok=True)

    def show_strategy(self, line: Mapping[str, Any]) -> None:
        """Show a line of the strategies' log among TensorBoard's texts, and to the sinks."""
        text = f"```json\n{json.dumps(line)}\n```"
        self.tensorboard.write_text(f"strategy/{line['strategy']}", text, step=line["env_steps"])
        self._sinks.write_decision(line["strategy"], line)

    def show_tuner(self, line: Mapping[str, Any], scalars: Mapping[str, Any]) -> None:
        """Show the numbers of a line of the tuner's log in TensorBoard, and it to the sinks."""
        self.tensorboard.write_at(line["decision"], scalars)
        self._sinks.write_decision("tuner", line)

    def finish(
        self, line: dict[str, Any], metrics: MetricsAggregator, *, reason: str, seed: int
    ) -> bool:
        """Write the last line and the summary into the reserved space; then close.

        Returns:
            Whether the summary was written.
        """
        try:
            self._folder.release()
        except OSError as error:
            _LOGGER.error("event=room_not_released reason=%r", str(error))
        self.write_line(line, metrics)
        summary = {**line, "wall_s": line["time_s"], "reason": reason, "seed": seed}
        written = self._write_summary(summary)
        notes = self._sinks.close(self._folder.read_summary() if written else None)
        if notes and written:  # no further line can tell the user
            self._write_summary({**summary, **self._sinks.gauges(), "sink_error": "; ".join(notes)})
        self.close()
        return written

    def close(self) -> None:
        """Close the files and sinks; closing twice has no effect."""
        self.metrics.close()
        self.tensorboard.close()
        self._sinks.close()

    def _write_summary(self, summary: Mapping[str, Any]) -> bool:
        give_up_at = time.monotonic() + _SUMMARY_WITHIN_S
        while True:
            try:
                write_summary(self._folder.summary_path, summary)
                return True
            except RunFolderError as error:
                full = getattr(error.__cause__, "errno", None) in FULL_DISK
                if not full or time.monotonic() >= give_up_at:
                    _LOGGER.error("event=summary_not_written reason=%r", str(error))
                    return False
            # a trainer that ends late may use the released space for a checkpoint that fails
            time.sleep(_SUMMARY_AGAIN_AFTER_S)

    def _reserve(self) -> None:
        try:
            self._folder.reserve()
        except OSError as error:
            words = why_not_written(error, self._folder.path)
            _LOGGER.warning("event=no_room_for_summary reason=%r", words)
