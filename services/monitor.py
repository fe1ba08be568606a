"""The monitor: knows the roles, keeps the books of the run, and says when it is over."""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections import deque
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

from aclearn.errors import RunFolderError
from aclearn.launch import parent_is_alive
from aclearn.monitoring import (
    EPISODES_FOR_TARGET,
    Goal,
    Member,
    Registry,
    RunView,
    TensorBoardWriter,
)
from aclearn.monitoring.tuner_file import TunedSettings
from aclearn.runs import (
    MetricsWriter,
    RunFolder,
    write_atomically,
    write_summary,
)
from aclearn.wire import (
    Beat,
    BeatReply,
    Directive,
    Envelope,
    Hello,
    Message,
    Peer,
    Peers,
    Server,
    Status,
    StatusRequest,
    StopRun,
    parse_endpoint,
)
from services.letters import Letter
from services.role import RoleContext
from services.tuning import Tuning, open_tuning, tuned_file

_LOGGER = logging.getLogger(__name__)

#: Environment variable with the time (seconds since the epoch) at which the command was started.
STARTED_AT_VARIABLE = "ACLEARN_STARTED_AT"
#: Beginning of the name of the directory that holds a run's socket files.
SOCKET_DIRECTORY_PREFIX = "aclearn-"
#: Longest wait for a message before the monitor looks at its clock.
_LOOK_EVERY_S = 0.05
#: Seconds for the actors, then for all others, to say goodbye when the run is over.
_GOODBYE_WITHIN_S = 3.0
#: Least seconds between two checkpoints that are kept as the best.
_BEST_EVERY_S = 60.0
#: Seconds between two reminders to stop.
_REMIND_EVERY_S = 0.5


class Phase(Enum):
    """How far the end of the run has come."""

    RUNNING = "running"
    STOPPING_ACTORS = "stopping actors"
    STOPPING_ALL = "stopping"
    OVER = "over"


class MonitorBook:
    """The monitor's state and its pure steps: events in, letters out.

    Args:
        registry: who is there.
        view: what the run does.
        goal: when it is over.
        best_return: mean of 100 returns of the checkpoint that is kept as the best so far.
    """

    def __init__(
        self,
        registry: Registry,
        view: RunView,
        goal: Goal,
        *,
        best_return: float | None = None,
    ) -> None:
        self._registry, self._view, self._goal = registry, view, goal
        self.phase = Phase.RUNNING
        self.reason: str | None = None
        self._phase_since = 0.0
        self._reminded_at = float("-inf")
        self._told_generation = 0
        self.events: deque[str] = deque(maxlen=50)
        self._silent: deque[str] = deque(maxlen=50)
        self._silences = 0
        self._wait_share: dict[str, Any] = {}
        self.line: dict[str, Any] = {}
        self._best_return = best_return
        self._best_at = float("-inf")
        self._best_due = False
        #: What the tuner says to the parent; see `services.tuning`.
        self.actors_wanted: int | None = None
        self._notes: deque[str] = deque(maxlen=50)
        self._noted = 0

    def take(self, address: bytes, envelope: Envelope, now: float) -> list[Letter]:
        """Take one message; returns the answers."""
        message, sender = envelope.message, envelope.sender
        if isinstance(message, Hello):
            return self._hello(address, sender, message, now)
        if isinstance(message, Beat):
            return self._beat(address, sender, message, now)
        if isinstance(message, StopRun):
            self.stop(message.reason, now)
            return []
        if isinstance(message, StatusRequest):
            return [Letter(address, Status(json.dumps(self.status())))]
        return []

    def observe_time(self, now: float) -> list[Letter]:
        """What is due: silence is noticed, changes are told, the end goes on."""
        letters: list[Letter] = []
        for member in self._registry.take_out_silent(now):
            self._view.role_gone(member.incarnation, now)
            self._silent.append(member.name)
            self._silences += 1
            self._event(f"{member.name} is silent")
        if self._registry.generation != self._told_generation:
            self._told_generation = self._registry.generation
            letters += [Letter(m.address, self._peers()) for m in self._registry.members]
        if self._best_due:
            self._best_due = False
            trainers = [m for m in self._registry.members if m.role == "trainer"]
            letters += [Letter(m.address, Directive("save_best", "")) for m in trainers]
        return letters + self._end(now)

    def make_line(self, now: float) -> dict[str, Any]:
        """The metrics line of this moment; notices when the run is over."""
        self.line = self._view.line(now)
        self._note_best(now)
        self.line["best_return"] = self._best_return
        reason = self._goal.observe(self.line, episodes_in_mean=self._view.returns_in_mean)
        self.line["reached_target_at_s"] = self._goal.reached_target_at_s
        if self.phase is Phase.RUNNING:
            self._wait_share = self.line["wait_share"]
        else:
            # roles that have left keep the shares that they had while the run went on
            self.line["wait_share"] = self._wait_share | self.line["wait_share"]
        if reason is not None:
            self.stop(reason, now)
        return self.line

    def _note_best(self, now: float) -> None:
        mean = self.line["return_mean_100"]
        enough = self._view.returns_in_mean >= EPISODES_FOR_TARGET
        better = self._best_return is None or (mean is not None and mean > self._best_return)
        if not enough or not better or now - self._best_at < _BEST_EVERY_S:
            return
        self._best_return, self._best_at = mean, now
        self._best_due = True

    def stop(self, reason: str, now: float) -> None:
        """End the run: actors first, so that nothing is produced that nobody will learn."""
        if self.phase is Phase.RUNNING:
            self.phase, self.reason, self._phase_since = Phase.STOPPING_ACTORS, reason, now
            self._event(f"run ends: {reason}")

    def status(self) -> dict[str, Any]:
        """What the console shows."""
        return {
            "phase": self.phase.value,
            "reason": self.reason,
            "line": self.line,
            "members": [{"role": m.role, "name": m.name} for m in self._registry.members],
            "events": list(self.events)[-10:],
            "silent": list(self._silent),
            "silences": self._silences,
            "actors_wanted": self.actors_wanted,
            "notes": list(self._notes),
            "noted": self._noted,
        }

    def note(self, text: str) -> None:
        """Say something to the person who watches the run."""
        self._notes.append(text)
        self._noted += 1
        self.events.append(text)

    def _hello(self, address: bytes, sender: str, hello: Hello, now: float) -> list[Letter]:
        refusal = self._registry.refusal(sender, hello.name)
        if refusal is not None:
            self._event(
                f"{hello.name} at {hello.host} (process {hello.pid}) is sent away: {refusal}"
            )
            return [Letter(address, Directive("leave", refusal))]
        member = Member(hello.role, hello.name, sender, address, dict(hello.endpoints), now)
        for replaced in self._registry.hello(member):
            self._view.role_gone(replaced.incarnation, now)
            self._event(f"{replaced.name} was started again")
        return [Letter(address, self._peers())]

    def _beat(self, address: bytes, sender: str, beat: Beat, now: float) -> list[Letter]:
        member = self._registry.get(sender)
        if member is None:
            return [Letter(address, Directive("hello", "the monitor does not know you"))]
        self._registry.heard(sender, now)
        self._view.observe_beat(member.role, member.name, sender, beat, now)
        if beat.final:
            self._registry.leave(sender)
            if member.role != "trainer":
                self._view.role_gone(sender, now)
        return [Letter(address, BeatReply(self._registry.generation))]

    def _peers(self) -> Peers:
        peers = [
            Peer(m.role, m.name, m.incarnation, dict(m.endpoints)) for m in self._registry.members
        ]
        return Peers(self._registry.generation, peers)

    def _end(self, now: float) -> list[Letter]:
        late = now - self._phase_since > _GOODBYE_WITHIN_S
        members = self._registry.members
        if self.phase is Phase.STOPPING_ACTORS:
            members = [m for m in members if m.role == "actor"]
            if late or not members:
                self.phase, self._phase_since = Phase.STOPPING_ALL, now
                self._reminded_at = float("-inf")
                members = self._registry.members
        elif self.phase is Phase.STOPPING_ALL:
            if late or not members:
                self.phase = Phase.OVER
                return []
        else:
            return []
        if now - self._reminded_at < _REMIND_EVERY_S:
            return []
        self._reminded_at = now
        return [Letter(m.address, Directive("stop", self.reason or "")) for m in members]

    def _event(self, text: str) -> None:
        self.events.append(text)
        _LOGGER.info("event=run text=%r", text)


class MonitorFiles:
    """What the monitor writes: metrics.jsonl, TensorBoard events, summary.json, its books."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self.metrics = MetricsWriter(folder.metrics_path)
        self.board = TensorBoardWriter(folder.tensorboard_dir)

    def open_view(self, begun: float) -> RunView:
        """A view that goes on where the one that wrote these files ended."""
        last = self.metrics.last_line
        try:
            state = json.loads(self._folder.books_path.read_bytes()) if last else None
            return RunView(begun, resume_from=last, state=state)
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            _LOGGER.error("event=books_not_read reason=%r", str(error))
        return RunView(begun, resume_from=last)

    def write_line(self, line: dict[str, Any], view: RunView) -> None:
        """One line everywhere; a disk that refuses is reported and the run goes on."""
        try:
            # the books first: they must never be older than the line that they belong to
            write_atomically(self._folder.books_path, json.dumps(view.state()).encode())
            self.metrics.write(line)
            self.board.write(line)
        except (RunFolderError, OSError) as error:
            _LOGGER.error("event=metrics_not_written reason=%r", str(error))

    def close(self, line: dict[str, Any], goal: Goal, reason: str) -> None:
        """The summary, then close."""
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


def started_seconds_ago(last_written_at: float | None, now: float) -> float:
    """How long before `now` the clock of this part of the run began, in seconds.

    The command's start counts, not the monitor's; but a monitor that was started again in mid-run
    goes on from the last line that its predecessor wrote.

    Args:
        last_written_at: when metrics were last written, None if never; seconds since the epoch.
        now: seconds since the epoch.
    """
    started_at = float(os.environ.get(STARTED_AT_VARIABLE, now))
    if last_written_at is not None and last_written_at > started_at:
        started_at = last_written_at
    return max(0.0, now - started_at)


def run_monitor(context: RoleContext, *, clock: Callable[[], float] = time.monotonic) -> None:
    """Run the monitor until the run is over; its last act is the summary."""
    config, folder = context.config, context.folder
    if folder is None:
        raise ValueError("the monitor needs a run folder for its books")
    existed = folder.metrics_path.exists()
    written_at = folder.metrics_path.stat().st_mtime if existed else None
    server = context.serve_at(context.monitor, (Hello, Beat, StopRun, StatusRequest))
    files = MonitorFiles(folder)
    begun = clock() - started_seconds_ago(written_at, time.time())
    view = files.open_view(begun)
    last_line = files.metrics.last_line or {}
    goal = Goal(config.run, reached_target_at_s=last_line.get("reached_target_at_s"))
    registry = Registry(silent_after_s=config.monitor.silent_after_s)
    book = MonitorBook(registry, view, goal, best_return=last_line.get("best_return"))
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
    next_line = clock()  # at once: who looks at a run that starts sees that it does

    def write_line() -> dict[str, Any]:
        line = book.make_line(clock())
        line["monitor_refused_messages"] = sum(server.refused.values())
        if tuning is not None:
            line |= {**tuning.gauges(), "tuner_file_warnings": memory.warnings}
        files.write_line(line, view)
        return line

    while book.phase is not Phase.OVER:
        for address, envelope in server.receive(_LOOK_EVERY_S):
            now = clock()
            member = registry.get(envelope.sender)
            _send(server, book.take(address, envelope, now))
            if tuning is not None and book.phase is Phase.RUNNING and member is not None:
                _tune(tuning, member, envelope.message, book, registry, now)
        now = clock()
        if tuning is not None and book.phase is Phase.RUNNING:
            _send(server, tuning.letters(registry.members, now))
        if context.stop:
            book.stop(str(context.stop.reason), now)
        _send(server, book.observe_time(now))
        if now >= next_line:
            next_line = now + config.run.metrics_every_s
            write_line()
    files.close(write_line(), goal, book.reason or "stopped")
    if tuning is not None:
        tuning.close()
    server.close(linger_s=0.5)
    if not parent_is_alive():
        _remove_socket_directory(context.monitor)


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


def _remove_socket_directory(address: str) -> None:
    """What the parent does, unless it was killed; the monitor is the last to go."""
    directory = Path(parse_endpoint(address).path).parent
    if directory.name.startswith(SOCKET_DIRECTORY_PREFIX):
        shutil.rmtree(directory, ignore_errors=True)


def _send(server: Server, letters: list[Letter]) -> None:
    for letter in letters:
        server.send(letter.address, letter.message)
