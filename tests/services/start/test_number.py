"""Names of roles: valid values of --name, and numbers from the monitor."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from aclearn.config import config_from_yaml
from aclearn.errors import ConfigError
from aclearn.launch import EXIT_GIVE_UP
from aclearn.wire import Hello, MembershipReply, Number, NumberRequest
from services.roles import ACTOR, ROLES, TRAINER
from services.start.run_role import NoNumber, ask_number, number_in

_CONFIG = config_from_yaml("env: {id: CartPole-v1}")


@pytest.mark.parametrize(("name", "number"), [("actor-0", 0), ("actor-999999", 999_999)])
def test_the_number_of_a_name(name, number) -> None:
    assert number_in(ACTOR, name, _CONFIG) == number


@pytest.mark.parametrize(
    "name",
    ["trainer-0", "actor", "actor-", "-3", "actor-²", "actor-٣", "actor-007", "actor-1000000",
     "actor--1", "actor-3\n", "my-actor-3", "actor-1_0", ""],
)  # fmt: skip
def test_a_name_that_is_not_the_role_and_a_number_is_refused(name) -> None:
    with pytest.raises(ConfigError, match=r"is no name of role actor; expected actor- and a"):
        number_in(ACTOR, name, _CONFIG)


@pytest.mark.parametrize("role", ["trainer", "monitor"])
def test_a_run_has_one_of_some_roles_which_has_number_0(role) -> None:
    assert number_in(ROLES[role], f"{role}-0", _CONFIG) == 0
    with pytest.raises(ConfigError, match=f"'{role}-1': a run has one {role}"):
        number_in(ROLES[role], f"{role}-1", _CONFIG)


def test_a_run_of_two_ranks_has_two_trainers() -> None:
    config = config_from_yaml("{env: {id: CartPole-v1}, trainer: {processes: 2}}")
    assert number_in(TRAINER, "trainer-1", config) == 1
    words = r"2 processes of role trainer \(trainer.processes\); expected trainer-0 to trainer-1"
    with pytest.raises(ConfigError, match=words):
        number_in(TRAINER, "trainer-2", config)


def test_a_process_asks_until_the_monitor_that_comes_late_gives_it_a_number(
    roles, tools, caplog
) -> None:
    context = roles("actor-0")
    clock = tools.Clock()

    def pass_time() -> None:
        clock.now += 0.6

    def is_said() -> bool:
        pass_time()  # at each look: the thread may first read the clock after any of them
        return "event=monitor_does_not_answer" in caplog.text

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask_number, context, clock=clock)
        tools.wait_until(is_said, "it is said")
        monitor = roles("monitor-0").serve_at(roles.monitor, (NumberRequest, Hello))
        for _ in range(2):  # it asks again, since nothing was answered
            routing_id, envelope = tools.next_message(monitor, pass_time)
            assert envelope.message == NumberRequest("actor")
        assert monitor.send(routing_id, Number(7))
        assert asked.result(tools.deadline_s) == 7


@pytest.mark.parametrize(
    ("end", "status"),
    [("SIGTERM", 143), ("leave", EXIT_GIVE_UP), ("stop", 0)],
)
def test_a_process_that_waits_for_its_number_can_be_stopped(roles, tools, end, status) -> None:
    context = roles("actor-0")
    monitor = roles("monitor-0").serve_at(roles.monitor, (NumberRequest,))
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask_number, context)
        routing_id, _ = tools.next_message(monitor)
        if end == "SIGTERM":
            context.stop.set(end)
        else:
            assert monitor.send(routing_id, MembershipReply(end, "its role is unknown"))
        with pytest.raises(NoNumber) as ended:
            asked.result(tools.deadline_s)
    assert ended.value.exit_status == status
