"""The profile of an agent step: the cost of each part of each role, from two snapshots of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from aclearn.errors import AclearnError
from aclearn.metrics import PART_SECONDS
from aclearn.telemetry import TOTAL, WAITING_FOR
from services.roles import ROLES

#: The order of parts in the table, that of a step; others follow by name.
PARTS = (
    "emulator",
    "inference",
    "encode",
    "wire",
    "decode",
    "batch",
    "forward",
    "backward",
    "device",
    "record",
    "refresh",
    "optimiser",
    "publish",
    "swap",
)
OTHER = "other"
#: Largest unreported difference between a role's parts and its wall time.
MOST_MISSING = 0.10
_ROLES = (*reversed(ROLES), "command")


@dataclass(frozen=True)
class Snapshot:
    """A run at one moment.

    Attributes:
        at_s: its monotonic time, in seconds.
        cpu_s: name of a process (actor-0) → its CPU time so far.
    """

    at_s: float
    line: Mapping[str, Any]
    cpu_s: Mapping[str, float]


@dataclass(frozen=True)
class RoleProfile:
    """One role's time between two snapshots, over all of its processes and threads.

    Attributes:
        parts: part → seconds of work on the clock.
        waits: "waiting for …" → seconds.
        total_s: lifetime of its threads in seconds; 0 for a role that measures no parts.
    """

    role: str
    parts: dict[str, float]
    waits: dict[str, float]
    total_s: float
    cpu_s: float

    @property
    def accounted(self) -> float:
        """The share of the parts and waits in the time on the clock."""
        named_s = sum(self.parts.values()) + sum(self.waits.values())
        return named_s / self.total_s if self.total_s > 0 else 0.0

    @property
    def other_s(self) -> float:
        """Time on the clock outside all parts."""
        return max(0.0, self.total_s * (1.0 - self.accounted))

    def cpu_of(self, seconds: float) -> float:
        """CPU time of a part that took `seconds` on the clock.

        CPU time is known per process only. It is split in proportion to the parts' time on the
        clock, as if all parts waited for a core alike.
        """
        work_s = sum(self.parts.values()) + self.other_s
        return self.cpu_s * seconds / work_s if work_s > 0 else 0.0


@dataclass(frozen=True)
class StepProfile:
    """The profile of a learned agent step.

    Attributes:
        seconds: between the two snapshots.
        learned_steps: agent steps learned in that time; all costs are per one of them.
        cores: number of CPU cores of the run.
        notes: disturbances of the measurement.
    """

    seconds: float
    learned_steps: int
    cores: int
    roles: tuple[RoleProfile, ...]
    cpu_s: dict[str, float]
    notes: tuple[str, ...] = field(default=())

    @property
    def learned_steps_per_s(self) -> float:
        """Learned agent steps per second."""
        return self.learned_steps / self.seconds

    def micros(self, seconds: float) -> float:
        """µs per learned agent step."""
        return 1e6 * seconds / self.learned_steps

    def core_share(self, cpu_s: float) -> float:
        """CPU time as a share of all cores' time."""
        return cpu_s / (self.cores * self.seconds)

    def to_dict(self) -> dict[str, Any]:
        """All numbers, for JSON: µs and shares by role and part."""
        roles = {}
        for role in self.roles:
            work = {**role.parts, **({OTHER: role.other_s} if role.total_s > 0 else {})}
            roles[role.role] = {
                "wall_us": {n: self.micros(s) for n, s in {**work, **role.waits}.items()},
                "cpu_us": {n: self.micros(role.cpu_of(s)) for n, s in work.items()},
                "accounted": role.accounted if role.total_s > 0 else None,
                "threads": role.total_s / self.seconds,
                "cpu_us_all": self.micros(role.cpu_s),
                "core_share": self.core_share(role.cpu_s),
            }
        return {
            "seconds": self.seconds,
            "learned_steps": self.learned_steps,
            "learned_steps_per_s": self.learned_steps_per_s,
            "cores": self.cores,
            "core_share": self.core_share(sum(self.cpu_s.values())),
            "roles": roles,
            "cpu_cores": {name: used / self.seconds for name, used in self.cpu_s.items()},
            "notes": list(self.notes),
        }


def step_profile(
    first: Snapshot, last: Snapshot, *, cores: int, notes: Sequence[str] = ()
) -> StepProfile:
    """The profile of the time between two snapshots of a run.

    Raises:
        AclearnError: no time passed between the two, or nothing was learned in it.
    """
    line_s = float(last.line["time_s"]) - float(first.line["time_s"])
    learned = int(last.line["learned_steps"]) - int(first.line["learned_steps"])
    if line_s <= 0 or last.at_s <= first.at_s or learned <= 0:
        raise AclearnError(
            f"there is no profile: {learned} agent steps were learned in {line_s:.1f} s; "
            "profile for longer (--seconds), or find the cause with `aclearn train`"
        )
    # Snapshots and lines are of different moments: CPU time is scaled to the lines.
    scale = line_s / (last.at_s - first.at_s)
    cpu_s = {
        name: max(0.0, used - first.cpu_s[name]) * scale
        for name, used in last.cpu_s.items()
        if name in first.cpu_s
    }
    before, after = first.line.get(PART_SECONDS) or {}, last.line.get(PART_SECONDS) or {}
    names = {*after, *(_role_of(process) for process in cpu_s)}
    order = [*(role for role in _ROLES if role in names), *sorted(names - set(_ROLES))]
    roles = []
    for role in order:
        spent = {
            part: max(0.0, seconds - (before.get(role) or {}).get(part, 0.0))
            for part, seconds in (after.get(role) or {}).items()
        }
        total_s = spent.pop(TOTAL, 0.0)
        waits = {n: s for n, s in sorted(spent.items()) if n.startswith(WAITING_FOR)}
        parts = {n: spent[n] for n in sorted(spent, key=_place) if n not in waits}
        used_s = sum(s for process, s in cpu_s.items() if _role_of(process) == role)
        roles.append(RoleProfile(role, parts, waits, total_s, used_s))
    return StepProfile(line_s, learned, cores, tuple(roles), cpu_s, tuple(notes))


def render(profile: StepProfile) -> RenderableType:
    """The profile as tables for a terminal or a text file."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("role", no_wrap=True)
    table.add_column("part", no_wrap=True)
    for title in ("clock µs", "of role", "CPU µs", "of cores"):
        table.add_column(title, justify="right", no_wrap=True)
    for role in profile.roles:
        _add_role(table, profile, role)
    used = sum(profile.cpu_s.values())
    idle = max(0.0, profile.cores * profile.seconds - used)
    table.add_row("all", "", "", "", *_cpu_cells(profile, used), style="bold")
    table.add_row("", "idle, or other programs", "", "", *_cpu_cells(profile, idle))
    lines = [
        *(_account(role) for role in profile.roles if role.total_s > 0),
        "CPU time of each process as a share of the clock: "
        + ", ".join(f"{name} {used / profile.seconds:.0%}" for name, used in profile.cpu_s.items()),
        *profile.notes,
    ]
    title = (
        f"Profile of a learned agent step: {profile.learned_steps_per_s:,.0f} a second over "
        f"{profile.seconds:.1f} s on {profile.cores} cores"
    )
    return Group(Text(title, style="bold"), table, *(Text(line) for line in lines))


def _add_role(table: Table, profile: StepProfile, role: RoleProfile) -> None:
    if role.total_s <= 0:
        # measures no parts
        table.add_row(role.role, "", "", "", *_cpu_cells(profile, role.cpu_s), end_section=True)
        return
    work = {**role.parts, OTHER: role.other_s}
    for number, (part, seconds) in enumerate((*work.items(), *role.waits.items())):
        cpu = _cpu_cells(profile, role.cpu_of(seconds)) if part in work else ("", "")
        wall = f"{profile.micros(seconds):.1f}", f"{seconds / role.total_s:.1%}"
        table.add_row("" if number else role.role, part, *wall, *cpu)
    whole = f"{profile.micros(role.total_s):.1f}", f"{1:.1%}"
    table.add_row("", "together", *whole, *_cpu_cells(profile, role.cpu_s), end_section=True)


def _cpu_cells(profile: StepProfile, cpu_s: float) -> tuple[str, str]:
    return f"{profile.micros(cpu_s):.1f}", f"{profile.core_share(cpu_s):.1%}"


def _account(role: RoleProfile) -> str:
    words = f"{role.role}: accounted for {role.accounted:.0%} of its time on the clock"
    if abs(1.0 - role.accounted) > MOST_MISSING:
        words += "; no part measures the rest"
    return words


def _place(part: str) -> tuple[int, str]:
    return (PARTS.index(part) if part in PARTS else len(PARTS), part)


def _role_of(process: str) -> str:
    return process.rpartition("-")[0] or process
