"""Users' actions at the monitor: who may give them, what they do, and for how long."""

from __future__ import annotations

import json

import pytest

from aclearn.config import Config
from aclearn.control import Directive, MonitorPlugin, SetChain
from aclearn.wire import Action, ActionReply, DirectiveAck, DirectiveMessage, StatusRequest
from services.monitor.ending import Phase
from services.monitor.plugins import Plugins
from tests.support.monitor import Monitor as AnyMonitor

_KEY = "a key of a test"


class Monitor(AnyMonitor):
    def __init__(self, tools, config: Config | None = None, **options) -> None:
        if config is not None:
            self.config = config
        self.logged: list[Action] = []
        self.refusals: list[tuple[str, dict, str]] = []
        super().__init__(tools, actions_key=_KEY, on_action=self._note, **options)
        for role in ("trainer", "compressor"):
            self.hello(f"{role}-0", role)
        self.take("parent", StatusRequest())

    def _note(self, action: Action, refusal: str) -> None:
        if refusal:
            self.refusals.append((action.kind, action.values, refusal))
        else:
            self.logged.append(action)

    def act(self, kind: str, key: str = _KEY, **values) -> str:
        """The refusal, "" if the action is in force."""
        [answer] = self.take("page", Action(key, kind, values))
        assert isinstance(answer.message, ActionReply)
        return answer.message.refusal

    def told(self, seconds: float = 0.0) -> dict[str, tuple[str, dict]]:
        """Receiver → the directives that it gets now."""
        return {
            message.routing_id.decode(): (message.message.kind, message.message.values)
            for message in self.tick(seconds)
            if isinstance(message.message, DirectiveMessage)
        }

    def status(self) -> dict:
        [answer] = self.take("page", StatusRequest(supervises=False))
        return json.loads(answer.message.json)


@pytest.mark.parametrize(
    ("kind", "values", "receiver"),
    [
        ("SaveCheckpoint", {}, "trainer"),
        ("SetActors", {"count": 3}, "parent"),
        ("SetChain", {"rung": 2}, "compressor"),
        ("SetLearningRate", {"rate": 1e-4}, "trainer"),
        ("SetEntropyCost", {"cost": 0.0}, "trainer"),
    ],
)
def test_an_action_is_a_directive_to_its_role_an_event_and_a_line_of_the_log(
    tools, kind: str, values: dict, receiver: str
) -> None:
    monitor = Monitor(tools)
    monitor.told()
    assert monitor.act(kind, **values) == ""
    assert monitor.told() == {receiver: (kind, values)}
    assert monitor.logged == [Action(_KEY, kind, values)]
    shown = [text for text in monitor.status()["events"] if text.startswith("the user's action")]
    assert shown == [
        " ".join(["the user's action:", kind, *(f"{n} {v:g}" for n, v in values.items())])
    ]
    kept = {} if kind == "SaveCheckpoint" else {kind: values}
    assert monitor.status()["set"] == kept
    again = AnyMonitor(tools, directives=monitor.state.directives, plugins={})
    assert {each["kind"] for each in again.state.directives["standing"]} == set(kept)


def test_a_user_stops_the_run(tools) -> None:
    monitor = Monitor(tools)
    assert monitor.act("StopRun", reason="enough") == ""
    assert (monitor.state.phase is Phase.RUNNING, monitor.state.reason) == (False, "enough")
    assert monitor.act("SetChain", rung=1) == "the run ends already: enough"


def test_a_checkpoint_can_be_wanted_twice(tools) -> None:
    monitor = Monitor(tools)
    for number in (1, 2):
        assert monitor.act("SaveCheckpoint") == ""
        assert monitor.told() == {"trainer": ("SaveCheckpoint", {})}
        monitor.take("trainer", DirectiveAck(number))
        assert monitor.told(1.0) == {}


@pytest.mark.parametrize(
    ("kind", "key", "values", "why"),
    [
        ("SetChain", "another", {"rung": 1}, "the key is not that of"),
        ("SetChain", "", {"rung": 1}, "the key is not that of"),
        ("SetChain", _KEY, {"rung": 3}, "expected a rung below 3"),
        ("SetChain", _KEY, {"rung": -1}, "SetChain: "),
        ("SetChain", _KEY, {"sprosse": 1}, "expected a map with exactly"),
        ("SetActors", _KEY, {"count": 0}, "SetActors: "),
        ("SetActors", _KEY, {"count": 10**9}, "SetActors: "),
        ("SetLearningRate", _KEY, {"rate": 0.0}, "SetLearningRate: "),
        ("SetLearningRate", _KEY, {"rate": 11.0}, "SetLearningRate: "),
        ("SetEntropyCost", _KEY, {"cost": -0.1}, "SetEntropyCost: "),
        ("StopRole", _KEY, {"reason": "x"}, "expected one of StopRun, SaveCheckpoint"),
    ],
)
def test_a_wrong_action_is_refused_and_counted(
    tools, kind: str, key: str, values: dict, why: str
) -> None:
    monitor = Monitor(tools)
    monitor.told()
    assert why in monitor.act(kind, key, **values)
    assert (monitor.told(), monitor.logged, monitor.state.refused) == ({}, [], 1)


@pytest.mark.parametrize(
    ("groups", "allowed", "refused", "why"),
    [
        ({"trainer": {"processes": 2}}, 2, 1, "each of 2 trainers waits for unrolls"),
        ({"monitor": {"max_processes": 9}}, 8, 9, "lower it to 8 or less"),
        ({"actors": {"wait_for_weights": True}}, None, 1, "actors.wait_for_weights"),
    ],
)
def test_a_number_of_actors_that_the_configuration_could_not_have_is_refused(
    tools, groups: dict, allowed: int | None, refused: int, why: str
) -> None:
    monitor = Monitor(tools, Config.model_validate({"env": {"id": "CartPole-v1"}, **groups}))
    assert why in monitor.act("SetActors", count=refused)
    assert bool(monitor.status()["actions"]["SetActors"]) == (allowed is None)
    if allowed is not None:
        assert monitor.act("SetActors", count=allowed) == ""


def test_without_a_key_of_its_own_a_monitor_refuses_every_action(tools) -> None:
    monitor = AnyMonitor(tools)
    [answer] = monitor.take("page", Action("", "StopRun", {"reason": "x"}))
    assert "the key is not" in answer.message.refusal
    assert monitor.state.phase is Phase.RUNNING


def test_what_a_run_cannot_do_is_refused_by_name_before_anybody_asks(tools) -> None:
    resident = Config.model_validate(
        {
            "env": {"id": "CartPole-v1"},
            "resident": {"envs": 8},
            "loss": {"kind": "sac"},
        }
    )
    found = Monitor(tools, resident).status()["actions"]
    assert {kind: bool(refusal) for kind, refusal in found.items()} == {
        "StopRun": False,
        "SaveCheckpoint": False,
        "SetLearningRate": False,
        "SetActors": True,
        "SetChain": True,
        "SetEntropyCost": True,
    }
    assert "resident.envs" in found["SetActors"]
    assert "compresses nothing" in found["SetChain"]
    assert "loss.kind sac has no entropy_cost" in found["SetEntropyCost"]


def test_without_a_supervisor_nobody_sets_the_number_of_actors(tools) -> None:
    monitor = AnyMonitor(tools, actions_key=_KEY)
    [answer] = monitor.take("page", Action(_KEY, "SetActors", {"count": 2}))
    assert "started one by one" in answer.message.refusal
    [answer] = monitor.take("page", Action(_KEY, "SaveCheckpoint", {}))
    assert "trainer-0 is not there now" in answer.message.refusal


class Wants(MonitorPlugin):
    """Wants the rung 0, always."""

    def observe(self, indicators):
        return [Directive("compressor", SetChain(0))]


def test_a_user_overrules_every_plug_in_also_after_a_restart_of_the_monitor(tools) -> None:
    monitor = Monitor(tools, plugins={"wants": Wants()})
    assert monitor.told() == {"compressor": ("SetChain", {"rung": 0})}
    monitor.act("SetChain", rung=2)
    assert monitor.told(1.0) == {"compressor": ("SetChain", {"rung": 2})}
    again = Monitor(tools, plugins={"wants": Wants()}, directives=monitor.state.directives)
    assert again.told() == {"compressor": ("SetChain", {"rung": 2})}


@pytest.mark.parametrize("before", [None, 1])
def test_what_its_receiver_refuses_is_not_in_force_and_the_one_before_is(
    tools, before: int | None
) -> None:
    monitor = Monitor(tools, plugins={"wants": Wants()})
    monitor.told()
    monitor.take("compressor", DirectiveAck(1))
    if before is not None:
        monitor.act("SetChain", rung=before)
        monitor.told(1.0)
        monitor.take("compressor", DirectiveAck(2))
    monitor.act("SetChain", rung=2)
    assert monitor.told(1.0) == {"compressor": ("SetChain", {"rung": 2})}
    refused = DirectiveAck(monitor.state.directives["issued"], "SetChain: no such rung here")
    for _ in range(2):  # the second one is late
        monitor.take("compressor", refused)
    assert monitor.refusals == [("SetChain", {"rung": 2}, "SetChain: no such rung here")]
    assert monitor.status()["set"] == ({} if before is None else {"SetChain": {"rung": before}})
    assert monitor.told(1.0) == {"compressor": ("SetChain", {"rung": before or 0})}


def test_who_only_looks_is_no_supervisor_and_is_told_of_restarts(tools) -> None:
    monitor = AnyMonitor(tools)
    look = StatusRequest(supervises=False)
    monitor.take("page", look)
    monitor.hello("actor-0", "a")
    monitor.hello("actor-1", "b")
    monitor.look(25.0)
    monitor.hello("actor-0", "c")  # came back without a goodbye
    monitor.heartbeat("c", final=True)
    monitor.hello("actor-0", "d")
    [answer] = monitor.take("page", look)
    status = json.loads(answer.message.json)
    assert status["restarts"] == {"actor": 1}
    assert monitor.state._users.supervisor is None


def test_a_directive_that_a_run_of_other_settings_cannot_obey_is_not_restored(tools) -> None:
    monitor = Monitor(tools)
    monitor.act("SetChain", rung=2)
    monitor.act("SetLearningRate", rate=1e-3)
    plain = Config.model_validate({"env": {"id": "CartPole-v1"}})
    again = Monitor(tools, plain, directives=monitor.state.directives)
    assert again.status()["set"] == {"SetLearningRate": {"rate": 1e-3}}
    assert Plugins({}, plain).refusal(Directive("compressor", SetChain(2)))


def test_the_number_of_actors_is_the_tuners_where_it_changes_that(tools) -> None:
    groups = {"env": {"id": "CartPole-v1"}, "tuner": {"enabled": True, "counts": ["actors"]}}
    monitor = Monitor(tools, Config.model_validate(groups))
    assert "the tuner changes the number of actors" in monitor.act("SetActors", count=3)
    assert "the tuner changes" in monitor.status()["actions"]["SetActors"]
    assert monitor.logged == []
