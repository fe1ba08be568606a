"""All roles of a run in one process, stepped in turns: no socket, no thread, no real clock."""

from __future__ import annotations

import logging
import pkgutil
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import groupby

from aclearn.config import Config
from aclearn.launch import StopFlag
from aclearn.learning.ranks import LockstepRanks
from aclearn.runs import RunFolder
from aclearn.types import EnvSpec
from aclearn.wire import InProcessNetwork
from services.monitor.main import MonitorRole
from services.role.context import Clocks, RoleContext, RunEnv, Start
from services.role.loop import Role
from services.roles import MONITOR, ROLES, RoleSpec

_LOGGER = logging.getLogger(__name__)

#: Seconds of a round on the roles' clock; a power of two, for exact sums.
ROUND_S = 1 / 256
#: Seconds on the roles' clock for an orderly end; it must wait for dead roles.
_END_WITHIN_S = 10.0
_MONITOR_ADDRESS = "inproc://monitor"


def _role_of(name: str) -> str:
    return name.rpartition("-")[0]


class VirtualClock:
    """A clock that is set by its owner."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """The time that was set last."""
        return self.now


class InProcessRun:
    """The roles of one run, each stepped once a round in the order of the table of roles.

    Decisions depend on a clock that counts rounds, so the seed determines the run.

    Args:
        stop: ends the run in order, as it ends the monitor.
        wall_clock: real seconds, for metrics, `run.max_wall_s` and `run.checkpoint_every_s`.

    Attributes:
        roles: the living roles by name.
    """

    def __init__(
        self,
        config: Config,
        folder: RunFolder,
        spec: EnvSpec,
        *,
        stop: StopFlag | None = None,
        wall_clock: Callable[[], float] = time.monotonic,
        round_s: float = ROUND_S,
    ) -> None:
        self._round_s = round_s
        self._config, self._folder, self._spec = config, folder, spec
        self._stop = StopFlag() if stop is None else stop
        self._wall_clock = wall_clock
        self.clock = VirtualClock()
        self.network = InProcessNetwork()
        self.roles: dict[str, Role] = {}
        self._ranks = LockstepRanks(config.ranks) if config.ranks > 1 else None
        self.rounds = 0
        self._contexts: dict[str, RoleContext] = {}
        self._starts: Counter[str] = Counter()

    @property
    def monitor(self) -> MonitorRole | None:
        """The monitor; None if it is dead."""
        role = self.roles.get(f"{MONITOR.name}-0")
        assert role is None or isinstance(role, MonitorRole)
        return role

    def start_all(self) -> None:
        """Start every role of the configuration, the monitor first."""
        for spec in ROLES.values():
            starts = {
                index: partial(self._start, spec, index)
                for index in range(spec.processes(self._config))
            }
            self._in_turns(spec.name, starts)

    def _start(self, spec: RoleSpec, index: int) -> None:
        try:
            self.start(spec, index)
        except Exception as error:
            self._do_without(f"{spec.name}-{index}", error)

    def start(self, spec: RoleSpec, index: int = 0) -> None:
        """Start or restart a role; a rank in its own turn, as `start_all` does."""
        name = f"{spec.name}-{index}"
        folder = self._folder if spec.needs_folder and index == 0 else None
        context = RoleContext(
            spec.name,
            index,
            self._config,
            RunEnv(_MONITOR_ADDRESS, folder, self._spec, self.network, self._ranks),
            # the monitor stops the others, as between processes
            self._stop if spec is MONITOR else StopFlag(),
            # the roles' computation takes no time
            Clocks(self.clock, cpu=lambda: 0.0, wall=self._wall_clock),
            Start(self._starts[name], by_hand=False),
        )
        self._starts[name] += 1
        try:
            self.roles[name] = pkgutil.resolve_name(spec.entry_point)(context)
        except BaseException:
            context.close()
            raise
        self._contexts[name] = context
        # restarted roles keep their place
        order = list(ROLES)
        self.roles = dict(
            sorted(self.roles.items(), key=lambda item: order.index(_role_of(item[0])))
        )

    def round(self) -> bool:
        """Step each role once; returns whether the run continues, i.e. its monitor does.

        A role whose step raises is closed and counts as dead; the run does without an optional one.
        """
        for role, names in groupby(list(self.roles), key=_role_of):
            steps = {int(name.rpartition("-")[2]): partial(self._step, name) for name in names}
            self._in_turns(role, steps)
        self.rounds += 1
        self.clock.now += self._round_s
        return self.monitor is not None

    def _step(self, name: str) -> None:
        goes_on = False
        try:
            goes_on = self.roles[name].step(0.0)
        except Exception as error:
            self._do_without(name, error)
        finally:
            if not goes_on:
                self._close(name)

    def _do_without(self, name: str, error: Exception) -> None:
        """Log the failure of an optional role; raise any other's."""
        if not ROLES[_role_of(name)].optional:
            raise error
        _LOGGER.error("event=role_failed name=%s", name, exc_info=error)

    def kill(self, name: str) -> None:
        """End a role at once, as `kill -9` does: it sends and saves nothing more."""
        del self.roles[name]
        self._contexts.pop(name).close()

    def fail(self, reason: str) -> None:
        """End the run in order after a role has died: checkpoint, last line and summary.

        A dead monitor is restarted for this. Roles that fail meanwhile are dead too.
        """
        stop_at = self.clock()
        if self.monitor is None:
            self.start(MONITOR)
            # until the other roles have said hello
            stop_at += 2 * self._config.monitor.heartbeat_every_s
        end_by = stop_at + _END_WITHIN_S
        while self.monitor is not None and self.clock() < end_by:
            if self.clock() >= stop_at:
                self.monitor.state.stop(reason, self.clock())
            try:
                self.round()
            except Exception as error:
                _LOGGER.error("event=role_failed reason=%r", str(error))

    def close(self) -> None:
        """Close the living roles, even if one of them fails."""
        with ExitStack() as closing:
            if self._ranks is not None:
                closing.callback(self._ranks.close)
            for name in self.roles:
                role, _, number = name.rpartition("-")
                closes = {int(number): partial(self._close, name)}
                closing.callback(self._in_turns, role, closes)

    def _in_turns(self, role: str, functions: Mapping[int, Callable[[], None]]) -> None:
        """Call a function for each process of a role; those of ranks may exchange tensors."""
        if self._ranks is not None and ROLES[role].together:
            self._ranks.run(functions)
            return
        for function in functions.values():
            function()

    def _close(self, name: str) -> None:
        try:
            self.roles.pop(name).close()
        finally:
            self._contexts.pop(name).close()
