"""The parent of a run, with a supervisor and a clock that move when told."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from aclearn.config import Config, EnvConfig, MonitorConfig, NetworkConfig
from aclearn.launch import Event, RoleStatus, StopFlag
from services import run_parent as module
from services.run_parent import RunParent
from services.train import monitor_addresses


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


def test_without_a_port_the_monitor_has_a_socket_file(tmp_path) -> None:
    config = Config(env=EnvConfig(id="CartPole-v1"))
    address = f"ipc://{tmp_path}/monitor.sock"
    assert monitor_addresses(config, tmp_path) == (address, address)


class Supervised:
    """Roles that end by themselves at their times; one of None stays until it is stopped."""

    def __init__(self, clock, ends: dict[str, float | None]) -> None:
        self._clock, self._ends = clock, ends
        self.began = clock()
        self.stopped_after_s: float | None = None

    def start(self) -> None:
        pass

    def poll(self) -> list[Event]:
        return []

    def roles(self) -> list[RoleStatus]:
        after_s = self._clock() - self.began
        return [
            RoleStatus(
                name.partition("-")[0],
                name,
                "running" if end is None or after_s < end else "done",
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
    """Runs a parent over roles with these ends; after how many seconds it stopped what was left."""
    clock = tools.Clock()

    def sleep(seconds: float) -> None:
        clock.now += seconds
        assert clock.now < 100.0 + 1000.0, "it would wait for ever"

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock, sleep=sleep))

    def run(**ends: float | None) -> float:
        supervised = Supervised(clock, {name.replace("_", "-"): end for name, end in ends.items()})
        line = SimpleNamespace(poll=lambda now: None)
        config = Config(env=EnvConfig(id="CartPole-v1"))
        RunParent(config, supervised, line, SimpleNamespace(), StopFlag(), lambda index: None).run()
        return supervised.stopped_after_s

    return run


def test_who_is_left_after_the_monitor_has_ended_is_stopped_ten_seconds_later(run_parent) -> None:
    assert run_parent(monitor_0=3.0, trainer_0=4.0, actor_0=None) == pytest.approx(13.0, abs=0.25)


def test_a_run_is_over_when_everybody_has_ended(run_parent) -> None:
    after_s = run_parent(monitor_0=3.0, trainer_0=12.0, actor_0=7.0)
    assert after_s == pytest.approx(12.0, abs=0.15)


def test_nobody_is_stopped_while_the_monitor_runs(run_parent) -> None:
    after_s = run_parent(monitor_0=500.0, trainer_0=1.0, actor_0=None)
    assert after_s == pytest.approx(510.0, abs=0.25)
