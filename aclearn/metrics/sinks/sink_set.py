"""The sinks of a run, each in a thread of its own."""

from __future__ import annotations

import copy
import logging
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aclearn.config.monitor import MetricsConfig
from aclearn.errors import words_of
from aclearn.extensions import make_extensions
from aclearn.metrics.sinks.sink import MetricsSink, SinkRun

_LOGGER = logging.getLogger(__name__)
_KEY: Final = "metrics.sinks"

#: Our sinks by their names; the `config_model` of each has its arguments.
SINKS: Final = {
    "wandb": "aclearn.metrics.sinks.wandb_sink:WandbSink",
    "trackio": "aclearn.metrics.sinks.trackio_sink:TrackioSink",
    "mlflow": "aclearn.metrics.sinks.mlflow_sink:MlflowSink",
}

#: Calls that wait for a sink; newer ones are dropped. Minutes of a run with usual lines.
MOST_WAITING: Final = 256


class _SinkThread:
    """Calls one sink in a thread; only the monitor's thread uses the public methods."""

    def __init__(self, name: str, sink: MetricsSink) -> None:
        self._name, self._sink, self._opened = name, sink, False
        # one more, so that there is always room for the call of `close`
        self._calls: queue.Queue[tuple[str, Any]] = queue.Queue(MOST_WAITING + 1)
        self._lock = threading.Lock()
        self._notes: list[str] = []
        self._reported: set[str] = set()
        self.failures = self.dropped = 0
        # a daemon: a sink that hangs must not keep the process
        self._thread = threading.Thread(target=self._work, name=f"sink-{name}", daemon=True)
        self._thread.start()

    def call(self, method: str, argument: Any) -> None:
        """Call a method of the sink once it is free; drop the call if too many wait."""
        if self._calls.qsize() < MOST_WAITING:
            self._calls.put_nowait((method, copy.deepcopy(argument)))
            return
        self.dropped += 1
        self._note(
            "dropped",
            f"metrics sink {self._name} is too slow or hangs: {MOST_WAITING} calls wait for it, "
            "and newer ones are dropped; the run continues",
        )

    def close(self, summary: Mapping[str, Any] | None) -> None:
        """Let the sink finish; `join` waits for it."""
        self._calls.put_nowait(("close", summary))

    def join(self, timeout_s: float) -> None:
        """Wait for the end of the sink's last call; a late one is told and left alone."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            waiting = self._calls.qsize()
            _LOGGER.error("event=sink_not_closed sink=%s waiting_calls=%d", self._name, waiting)
            self._note(
                "late",
                f"metrics sink {self._name} was not done in time at the end, {waiting} calls "
                "waited for it; raise metrics.sink_timeout_s",
            )

    def take_notes(self) -> list[str]:
        """New notes for the user."""
        with self._lock:
            notes, self._notes = self._notes, []
        return notes

    def _work(self) -> None:
        method = ""
        while method != "close":
            method, argument = self._calls.get()  # ends with `close`, or with the process
            if method != "open" and not self._opened:
                continue
            try:
                getattr(self._sink, method)(argument)
                self._opened = True
            except (Exception, SystemExit) as error:  # the sink is the user's code
                self._fail(method, error)

    def _fail(self, method: str, error: BaseException) -> None:
        self.failures += 1
        after = {"open": "; the run continues without it", "close": ""}
        text = f"metrics sink {self._name} fails in {method}: {words_of(error)}"
        text += after.get(method, "; the run continues")
        # once for each class of error: it may fail at every line
        if self._note(f"{method} {type(error).__name__}", text):
            _LOGGER.error("event=sink_failed sink=%s call=%s", self._name, method, exc_info=error)

    def _note(self, about: str, text: str) -> bool:
        """Tell the user, once for each subject; returns whether it is the first time."""
        with self._lock:
            if about in self._reported:
                return False
            self._reported.add(about)
            self._notes.append(text)
            return True


class SinkSet:
    """Feeds all sinks of a run; no call waits for a sink but `close`.

    Args:
        timeout_s: for all of them to finish in `close`.
    """

    def __init__(self, sinks: Mapping[str, MetricsSink], *, timeout_s: float = 0.0) -> None:
        self._sinks, self._timeout_s = sinks, timeout_s
        self._threads: Sequence[_SinkThread] = ()
        self._closed = False

    def open(self, run: SinkRun) -> None:
        """Start a thread for each sink, which opens it; without this they get nothing."""
        self._threads = [_SinkThread(name, sink) for name, sink in self._sinks.items()]
        self._call("open", run)

    def write(self, line: Mapping[str, Any]) -> list[str]:
        """Give each sink a metrics line; returns new notes for the user."""
        self._call("write", line)
        return self._take_notes()

    def write_decision(self, by: str, decision: Mapping[str, Any]) -> None:
        """Give each sink a decision of the tuner or of the strategy `by`."""
        self._call("write_decision", {"by": by, **decision})

    def gauges(self) -> dict[str, float]:
        """Failed and dropped calls of all sinks; {} without a sink."""
        if not self._threads:
            return {}
        return {
            "monitor_sink_failures": float(sum(thread.failures for thread in self._threads)),
            "monitor_sink_dropped": float(sum(thread.dropped for thread in self._threads)),
        }

    def close(self, summary: Mapping[str, Any] | None = None) -> list[str]:
        """Let all sinks finish, within the timeout together; returns new notes for the user.

        Closing twice has no effect.
        """
        if self._closed:
            return []
        self._closed = True
        for thread in self._threads:
            thread.close(summary)
        deadline = time.monotonic() + self._timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return self._take_notes()

    def _take_notes(self) -> list[str]:
        return [note for thread in self._threads for note in thread.take_notes()]

    def _call(self, method: str, argument: Any) -> None:
        for thread in self._threads:
            thread.call(method, argument)


def load_sinks(metrics: MetricsConfig, host: str) -> dict[str, MetricsSink]:
    """The sinks of a run by name; a repeated name gets a number.

    Args:
        host: address at which this process listens.

    Raises:
        ConfigError: one cannot be imported or made, or is no `MetricsSink`.
    """
    named = [(entry.name, entry.arguments.model_dump()) for entry in metrics.sinks]
    sinks = make_extensions(named, key=_KEY, expected=MetricsSink, ours=SINKS)
    if (port := metrics.prometheus_port) is None:
        return sinks
    arguments = {"host": host, "port": port}
    return sinks | make_extensions(
        [("prometheus", arguments)],
        key="metrics.prometheus_port",
        expected=MetricsSink,
        ours={"prometheus": "aclearn.metrics.sinks.prometheus_sink:PrometheusSink"},
    )
