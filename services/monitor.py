"""The monitor: knows the roles, keeps the books of the run, and says when it is over."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from aclearn.control import Goal
from aclearn.errors import RunFolderError
from aclearn.launch import PARENT_PID_VARIABLE
from aclearn.launch.resources import FreeCores
from aclearn.metrics import FREE_CORES, RunView, TensorBoardWriter, UnwrittenNotes
from aclearn.monitoring import Member, Registry
from aclearn.runs import (
    MetricsWriter,
    RunFolder,
    is_metrics_line,
    release,
    reserve,
    why_not_written,
    write_atomically,
    write_summary,
)
from aclearn.runs.tuner_log import TunedSettings
from aclearn.telemetry import WaitMeter
from aclearn.views import PlainConsole
from aclearn.wire import (
    Beat,
    Hello,
    Message,
    NumberRequest,
    Server,
    StatusRequest,
    StopRun,
)
from services.letters import Letter
from services.monitor_book import MonitorBook, Phase
from services.role import RoleContext
from services.role_name import first_numbers
from services.run_clock import Moment, moment, read_moment, started_seconds_ago
from services.run_end import closing_words
from services.tuning import Tuning, open_tuning, tuned_file

_LOGGER = logging.getLogger(__name__)

#: Silence after which a second process of a name replaces the first: seconds and beats, the longer.
_REPLACED_AFTER_S, _REPLACED_AFTER_BEATS = 2.0, 4
#: Seconds in which living roles find a monitor that was started again.
_RECONNECTED_WITHIN_S = 3.0
#: Longest wait for a message before the monitor looks at its clock.
_LOOK_EVERY_S = 0.05


class MonitorFiles:
    """What the monitor writes: metrics.jsonl, TensorBoard events, summary.json, its books."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self.metrics = MetricsWriter(folder.metrics_path)
        # in the run folder itself: TensorBoard calls a run by the folder of its events
        self.board = TensorBoardWriter(folder.path)
        last_step = int(self.last_line.get("env_steps") or 0)
        text = f"```yaml\n{folder.read_config_yaml()}\n```"
        self.board.write_text("configuration", text, step=last_step)
        self._notes = UnwrittenNotes()
        self._failures = 0
        self._reserve()

    def open_view(self, begun: float) -> RunView:
        """A view that goes on where the one that wrote these files ended."""
        last = self.last_line or None
        try:
            state = json.loads(self._folder.books_path.read_bytes()) if last else None
            return RunView(begun, resume_from=last, state=state)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, AttributeError) as error:
            _LOGGER.error("event=books_not_read reason=%r", str(error))
        return RunView(begun, resume_from=last)

    @property
    def last_written(self) -> Moment | None:
        """When the newest books were written; None where nobody can say."""
        try:
            return read_moment(json.loads(self._folder.books_path.read_bytes())["written"])
        except (OSError, ValueError, TypeError, KeyError):
            return None

    @property
    def last_line(self) -> dict[str, Any]:
        """The newest line; empty where there is none, or a damaged disk has spoiled it."""
        last = self.metrics.last_line or {}
        if is_metrics_line(last):
            return last
        _LOGGER.error("event=last_line_not_read file=%s", self._folder.metrics_path)
        return {}

    def write_line(self, line: dict[str, Any], view: RunView) -> list[str]:
        """One line everywhere; a disk that refuses is reported and the run goes on.

        Args:
            line: gets `metrics_failures` and `metrics_error`, from the first failure on.
            view: that made it.

        Returns:
            What a person should be told: that files begin to fail, or are written again.
        """
        if self._failures:
            line |= {"metrics_failures": self._failures, "metrics_error": None}
        try:
            books = view.state() | {"written": str(moment(time.monotonic()))}
            # the books first: they must never be older than the line that they belong to
            write_atomically(self._folder.books_path, json.dumps(books).encode())
            self.metrics.write(line)
            self.board.write(line)
        except (RunFolderError, OSError) as error:
            self._failures += 1
            words = why_not_written(error, self._folder.path)
            line |= {"metrics_failures": self._failures, "metrics_error": words}
        except ValueError as error:  # no number that JSON has; the next line may be whole again
            _LOGGER.error("event=line_not_written reason=%r", str(error)[:300])
        notes = self._notes.observe(line)
        for text in notes:
            _LOGGER.info("event=unwritten text=%r", text)
        return notes

    def close(self, line: dict[str, Any], view: RunView, goal: Goal, reason: str) -> None:
        """The last line and the summary, in the room that was kept for them; then close."""
        try:
            release(self._folder.path)
        except OSError as error:
            _LOGGER.error("event=room_not_released reason=%r", str(error))
        self.write_line(line, view)
        try:
            write_summary(
                self._folder.summary_path,
                line,
                wall_s=line["time_s"],
                reached_target_at_s=goal.reached_target_at_s,
                reason=reason,
            )
        except RunFolderError as error:
            _LOGGER.error("event=summary_not_written reason=%r", str(error))
        self.metrics.close()
        self.board.close()

    def _reserve(self) -> None:
        try:
            reserve(self._folder.path)
        except OSError as error:
            words = why_not_written(error, self._folder.path)
            _LOGGER.warning("event=no_room_for_summary reason=%r", words)


def run_monitor(context: RoleContext, *, clock: Callable[[], float] = time.monotonic) -> None:
    """Run the monitor until the run is over; its last act is the summary."""
    config, folder = context.config, context.folder
    if folder is None:
        raise ValueError("the monitor needs a run folder for its books")
    existed = folder.metrics_path.exists()
    server = context.serve_at(context.monitor, (NumberRequest, Hello, Beat, StopRun, StatusRequest))
    files = MonitorFiles(folder)
    begun = clock() - started_seconds_ago(files.last_written, moment(clock()))
    view = files.open_view(begun)
    last_line = files.last_line
    if last_line:
        _LOGGER.info(
            "event=run_continued folder=%s time_s=%s", folder.path, last_line.get("time_s")
        )
    goal = Goal.resumed(config.run, last_line)
    beat_every_s = config.monitor.beat_every_s
    registry = Registry(
        silent_after_s=config.monitor.silent_after_s,
        replaced_after_s=max(_REPLACED_AFTER_S, _REPLACED_AFTER_BEATS * beat_every_s),
        first_numbers=first_numbers(config) if PARENT_PID_VARIABLE in os.environ else {},
    )
    book = MonitorBook(
        registry,
        view,
        goal,
        numbers_from=clock() + beat_every_s + _RECONNECTED_WITHIN_S if existed else 0.0,
    )
    memory = TunedSettings(tuned_file(config))
    time_base_s = float(last_line.get("time_s") or 0.0)
    tuning = open_tuning(
        config,
        folder,
        memory,
        clock=clock,
        time_s=lambda now: time_base_s + now - begun,
        show=files.board.write_at,
    )
    meter = WaitMeter()
    cores = FreeCores()
    next_line = clock()  # at once: who looks at a run that starts sees that it does

    def make_line() -> dict[str, Any]:
        view.observe_own_waits("monitor", meter.seconds(), clock())
        line = book.make_line(clock())
        line["monitor_refused_messages"] = sum(server.refused.values()) + book.refused_beats
        line["monitor_refused_connections"] = server.refused_connections
        free = cores.look()
        here = all(m.host == socket.gethostname() for m in registry.members)
        if free is not None and here:  # who is elsewhere has other cores
            line[FREE_CORES] = free
        if tuning is not None:
            line |= {**tuning.gauges(), "tuner_file_warnings": memory.warnings}
        return line

    # under `aclearn train` the parent shows the run; else nobody else does
    by_hand = PARENT_PID_VARIABLE not in os.environ
    goals = config.run.bounds()
    console = PlainConsole(goals, name=context.run, stream=sys.stdout) if by_hand else None
    while book.phase is not Phase.OVER:
        with meter.waiting("messages"):
            received = server.receive(_LOOK_EVERY_S)
        for address, envelope in received:
            now = clock()
            member = registry.get(envelope.sender)
            refused = book.refused_beats
            _send(server, book.take(address, envelope, now))
            if book.refused_beats > refused:
                continue
            if tuning is not None and book.phase is Phase.RUNNING and member is not None:
                _tune(tuning, member, envelope.message, book, registry, now)
        now = clock()
        if tuning is not None and book.phase is Phase.RUNNING:
            _send(server, tuning.letters(registry.members, now))
        if context.stop:
            if context.contained:
                book.leave(str(context.stop.reason))
            else:
                book.stop(str(context.stop.reason), now)
        _send(server, book.observe_time(now))
        if context.health is not None:
            context.health.say(
                lambda: "" if any(m.role == "trainer" for m in registry.members) else "a trainer"
            )
        if now >= next_line:
            next_line = now + config.run.metrics_every_s
            line = make_line()
            for text in files.write_line(line, view):
                book.note(text)
            if console is not None:
                console.update(line, [])
    files.close(make_line(), view, goal, book.reason or "stopped")
    if tuning is not None:
        tuning.close()
    server.close(linger_s=0.5)
    if by_hand and (summary := folder.read_summary()) is not None:
        print(closing_words(config, summary), flush=True)


def _tune(
    tuning: Tuning,
    member: Member,
    message: Message,
    book: MonitorBook,
    registry: Registry,
    now: float,
) -> None:
    """Let the tuner read a beat; what it wants of the parent is in the book's status."""
    if isinstance(message, Beat):
        tuning.take(member, message, registry.members, book.line, now)
    book.actors_wanted = tuning.actors_wanted
    while tuning.notes:
        book.note(tuning.notes.popleft())


def _send(server: Server, letters: list[Letter]) -> None:
    for letter in letters:
        server.send(letter.address, letter.message)
