"""The parent of a run, with a scripted supervisor and clock."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from aclearn.config import Config, EnvConfig, MonitorConfig, NetworkConfig
from aclearn.launch import RoleCommand, RoleStatus, StopFlag
from aclearn.launch.role_command import Event
from services.launcher import run_parent as module
from services.launcher.role_commands import monitor_addresses
from services.launcher.run_parent import RunParent, hello_within_s


@pytest.mark.parametrize(
    ("host", "bound", "found"),
    [
        ("127.0.0.1", "tcp://127.0.0.1:5555", "tcp://127.0.0.1:5555"),
        ("10.0.0.7", "tcp://10.0.0.7:5555", "tcp://10.0.0.7:5555"),
        ("0.0.0.0", "tcp://0.0.0.0:5555", "tcp://127.0.0.1:5555"),
        ("::1", "tcp://[::1]:5555", "tcp://[::1]:5555"),
        ("[::1]", "tcp://[::1]:5555", "tcp://[::1]:5555"),
        ("::", "tcp://[::]:5555", "tcp://[::1]:5555"),
    ],
)
def test_the_roles_of_this_machine_find_the_monitor_wherever_it_listens(
    tmp_path, host: str, bound: str, found: str
) -> None:
    config = Config(
        env=EnvConfig(id="CartPole-v1"),
        monitor=MonitorConfig(port=5555),
        network=NetworkConfig(bind_host=host, keys_dir=str(tmp_path)),
    )
    assert monitor_addresses(config, tmp_path) == (bound, found)
    address = f"ipc://{tmp_path}/monitor.sock"  # without a port
    config = Config(env=EnvConfig(id="CartPole-v1"))
    assert monitor_addresses(config, tmp_path) == (address, address)


class Supervised:
    """Roles that exit with 0 at their times; one with None stays until it is stopped."""

    def __init__(self, clock, ends: dict[str, float | None]) -> None:
        self._clock, self._ends = clock, ends
        self.began = clock()
        self.over = False
        self.stopped_after_s: float | None = None

    def start(self) -> None:
        pass

    def poll(self) -> list[Event]:
        return []

    def expect_end(self) -> None:
        self.over = True

    def roles(self) -> list[RoleStatus]:
        after_s = self._clock() - self.began
        exited = "done" if self.over else "ended"
        return [
            RoleStatus(
                name.partition("-")[0],
                name,
                "running" if end is None or after_s < end else exited,
                0,
                None,
            )
            for name, end in self._ends.items()
        ]

    @property
    def finished(self) -> bool:
        return all(role.state == "done" for role in self.roles())

    def stop(self, timeout_s: float, forced) -> None:
        self.stopped_after_s = self._clock() - self.began


@pytest.fixture
def run_parent(tools, monkeypatch):
    """Runs a parent over roles with these ends; returns the seconds until it stopped the rest."""
    clock = tools.Clock()

    def sleep(seconds: float) -> None:
        clock.now += seconds
        assert clock.now < 100.0 + 1000.0, "it would wait for ever"

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock, sleep=sleep))

    def run(**ends: float | None) -> float:
        supervised = Supervised(clock, {name.replace("_", "-"): end for name, end in ends.items()})
        line = SimpleNamespace(poll=lambda now: None, asked=0, actors=None)
        config = Config(env=EnvConfig(id="CartPole-v1"))
        RunParent(config, supervised, line, SimpleNamespace(), StopFlag(), lambda index: None).run()
        return supervised.stopped_after_s

    return run


@pytest.mark.parametrize(
    ("ends", "stopped_s"),
    [
        # roles left after the monitor has ended are stopped ten seconds later
        ({"monitor_0": 3.0, "trainer_0": 4.0, "actor_0": None}, 13.0),
        ({"monitor_0": 3.0, "trainer_0": 12.0, "actor_0": 7.0}, 12.0),  # all have ended
        ({"monitor_0": 500.0, "trainer_0": 1.0, "actor_0": None}, 510.0),
    ],
)
def test_no_role_is_stopped_while_the_monitor_runs(run_parent, ends, stopped_s: float) -> None:
    assert run_parent(**ends) == pytest.approx(stopped_s, abs=0.25)


def test_an_exit_with_0_is_a_death_only_where_a_later_status_says_that_the_run_goes_on() -> None:
    states, deaths = {"actor-0": "running", "trainer-0": "ended"}, []
    supervised = SimpleNamespace(
        roles=lambda: [RoleStatus("actor", name, state, 0, 1) for name, state in states.items()],
        count_as_death=deaths.append,
    )
    line = SimpleNamespace(asked=7)
    config = Config(env=EnvConfig(id="CartPole-v1"))
    parent = RunParent(config, supervised, line, SimpleNamespace(), StopFlag(), lambda index: None)

    def answer(number: int, phase: str) -> list[str]:
        line.asked = max(line.asked, number)
        parent._judge_ended({"phase": phase, "answers": number})
        told, deaths[:] = list(deaths), []
        return told

    parent._judge_ended(None)
    assert answer(7, "running") == []  # the monitor was asked before the trainer exited
    assert answer(8, "running") == ["trainer-0"]
    assert answer(9, "stopping actors") == []
    states["actor-0"] = "ended"
    assert answer(9, "running") == ["trainer-0"]
    assert answer(10, "running") == ["actor-0", "trainer-0"]


class Watching:
    """A parent with running roles and a monitor that answers or not."""

    def __init__(self, **pids: int) -> None:
        self.pids = {name.replace("_", "-"): pid for name, pid in pids.items()}
        self.members = set(self.pids)
        self.answers, self.phase, self.now = True, "running", 0.0
        self.kills: list[tuple[str, str]] = []
        self.silent: list[list] = []
        supervised = SimpleNamespace(
            roles=lambda: [
                RoleStatus(name.partition("-")[0], name, "running", 0, pid)
                for name, pid in self.pids.items()
            ],
            kill=lambda name, why: self.kills.append((name, why)),
        )
        self.config = Config(env=EnvConfig(id="CartPole-v1"))
        self.known: dict[str, dict[str, int]] = {}
        self.shown: list[dict] = []
        self.notes: list[str] = []
        console = SimpleNamespace(
            update=lambda line, roles: setattr(self, "shown", roles), note=self.notes.append
        )
        self.parent = RunParent(
            self.config, supervised, SimpleNamespace(), console, StopFlag(), lambda index: None
        )

    def status(self) -> dict:
        return {
            "phase": self.phase,
            "line": {},
            "members": list(self.members),
            "pids": self.known,
            "silences": len(self.silent),
            "silent": self.silent,
            "notes": [],
        }

    def look(self, seconds: float, step_s: float = 0.5) -> list[tuple[str, str]]:
        """Look for this time; returns the killed roles."""
        end, self.kills = self.now + seconds, []
        while self.now < end:
            self.now += step_s
            self.parent._end_what_hangs(self.now, self.status() if self.answers else None)
        return self.kills


@pytest.mark.parametrize(("silent_pid", "killed"), [(41, ["actor-0"]), (40, [])])
def test_only_the_process_that_was_silent_is_killed_not_its_successor(silent_pid, killed) -> None:
    watching = Watching(actor_0=41)
    watching.silent = [["actor-0", silent_pid]]
    for _ in range(2):  # the same silence, reported again
        watching.parent._show(watching.status())
    assert [name for name, _ in watching.kills] == killed


def test_a_monitor_that_does_not_answer_any_more_is_killed_after_a_minute() -> None:
    watching = Watching(monitor_0=7, actor_0=8)
    assert watching.look(100.0) == []
    watching.answers = False
    assert watching.look(60.0) == []
    assert watching.look(1.0) == [("monitor-0", "no answer for 60 s")]
    # its successor has more time to start
    watching.pids["monitor-0"] = 9
    assert watching.look(600.0) == []
    watching.answers = True
    assert watching.look(1000.0) == []


def test_a_parent_that_was_suspended_itself_calls_no_role_silent() -> None:
    watching = Watching(monitor_0=7)
    watching.look(1.0)
    watching.answers = False
    assert watching.look(50 * 3600.0, step_s=3600.0) == []  # each look counts for a second


def test_a_role_that_hangs_before_its_hello_is_killed_when_its_time_is_over() -> None:
    watching = Watching(monitor_0=7, trainer_0=8, actor_0=9)
    watching.members = {"monitor-0", "actor-0"}
    limit_s = hello_within_s(watching.config, "trainer")
    assert limit_s == 600 + 2 * 30
    assert watching.look(limit_s) == []
    assert watching.look(1.0) == [("trainer-0", "the monitor has not known it for 660 s")]
    watching.pids["trainer-0"] = 10  # the next one has as much time
    assert watching.look(limit_s) == []
    watching.members.add("trainer-0")
    assert watching.look(3 * limit_s) == []


def test_a_name_that_a_foreign_process_has_is_reported_once() -> None:
    watching = Watching(monitor_0=7, actor_0=8, actor_1=9)
    watching.known = {"box": {"actor-0": 8, "actor-1": 9, "actor-12": 99}}
    watching.look(1.0)
    watching.pids["actor-0"] = 10  # restarted; the monitor does not know it yet
    watching.look(1.0)
    assert watching.notes == []
    watching.known = {"box": {"actor-0": 10, "actor-1": 77}}
    watching.look(3.0)
    assert watching.notes == [
        "actor-1 waits: process 77 on box, which this command has not started, has its name; end "
        "that process"
    ]


def test_a_role_started_by_hand_is_shown_until_it_leaves() -> None:
    watching = Watching(monitor_0=7, actor_0=8, actor_1=9)
    watching.members.add("actor-12")
    watching.look(1.0)
    watching.parent._show(watching.status() | {"line": {"time_s": 1.0}})
    assert [role["name"] for role in watching.shown] == [
        "monitor-0",
        "actor-0",
        "actor-1",
        "actor-12",
    ]
    assert watching.shown[-1] == {"role": "actor", "name": "actor-12", "state": "joined"}
    # the tuner has ended one of ours; the monitor does not know it yet
    del watching.pids["actor-1"]
    watching.members.remove("actor-12")
    watching.look(1.0)
    watching.parent._show(watching.status() | {"line": {"time_s": 2.0}})
    assert [role["name"] for role in watching.shown] == ["monitor-0", "actor-0"]


class Adjusted:
    """A supervisor's actors, by their states."""

    def __init__(self, *states: str) -> None:
        self.states = {f"actor-{i}": state for i, state in enumerate(states)}
        self.optional: list[str] = []
        self.without_process: set[str] = set()

    def roles(self) -> list[RoleStatus]:
        return [
            RoleStatus("actor", name, state, 0, None if name in self.without_process else 1)
            for name, state in self.states.items()
        ]

    def add(self, command: RoleCommand) -> None:
        self.states[command.name] = "running"
        self.optional += [command.name] if command.optional else []

    def remove(self, name: str) -> None:
        del self.states[name]


def test_an_actor_of_the_tuner_s_that_failed_has_its_name_back_when_it_is_not_waited_for() -> None:
    actors = Adjusted("running")
    config = Config(env=EnvConfig(id="CartPole-v1"))

    def command(index: int) -> RoleCommand:
        return RoleCommand("actor", f"actor-{index}", (), {}, Path())

    parent = RunParent(config, actors, SimpleNamespace(), SimpleNamespace(), StopFlag(), command)
    parent._adjust_actors(3)
    assert actors.optional == ["actor-1", "actor-2"]  # their failure does not end the run
    actors.states["actor-1"] = "failed"
    parent._adjust_actors(3)
    assert actors.states == {"actor-0": "running", "actor-1": "failed", "actor-2": "running"}
    parent._adjust_actors(2)  # the tuner has given it up
    assert actors.states == {"actor-0": "running", "actor-2": "running"}
    parent._adjust_actors(3)
    assert actors.states.keys() == {"actor-0", "actor-1", "actor-2"}
    parent._adjust_actors(1)
    assert actors.states == {"actor-0": "running"}


def test_actors_that_wait_for_a_node_are_given_up_before_those_that_run() -> None:
    actors = Adjusted("waiting", "running", "running", "running")
    actors.without_process = {"actor-0", "actor-2"}
    config = Config(env=EnvConfig(id="CartPole-v1"))
    parent = RunParent(
        config, actors, SimpleNamespace(), SimpleNamespace(), StopFlag(), lambda index: None
    )
    parent._adjust_actors(None)
    parent._adjust_actors(4)
    assert len(actors.states) == 4
    parent._adjust_actors(3)
    assert actors.states.keys() == {"actor-0", "actor-1", "actor-3"}
    parent._adjust_actors(2)
    assert actors.states.keys() == {"actor-1", "actor-3"}


def test_an_actor_has_time_for_all_of_its_environments_and_no_role_hangs_in_an_ending_run() -> None:
    watching = Watching(monitor_0=7, actor_0=9)
    watching.members = {"monitor-0"}
    assert hello_within_s(watching.config, "actor") == 600 + 2 * 16 * 30
    watching.phase = "stopping"
    assert watching.look(3000.0) == []
    watching.phase = "running"
    assert [name for name, _ in watching.look(1561.0)] == ["actor-0"]
