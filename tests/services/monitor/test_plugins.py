"""Plug-ins in the monitor: their indicators, their directives and their errors."""

from __future__ import annotations

import json

import pytest

from aclearn.config import Config
from aclearn.config.monitor import UsersClass
from aclearn.control import (
    Directive,
    Indicators,
    MonitorPlugin,
    Note,
    SaveBest,
    SetActors,
    SetChain,
    SetMix,
    SetWorkers,
    StopRole,
    StopRun,
)
from aclearn.errors import ConfigError
from aclearn.wire import DirectiveAck, Peers, StatusRequest
from services.monitor.ending import Phase
from services.monitor.plugins import Plugins, load_plugins
from tests.support.monitor import Monitor as AnyMonitor


class Says(MonitorPlugin):
    """Gives the directives of its argument, and records its indicators."""

    def __init__(self, *directives: object) -> None:
        self.directives, self.seen = directives, list[Indicators]()

    def observe(self, indicators: Indicators) -> list:
        self.seen.append(indicators)
        return list(self.directives)


class Fails(MonitorPlugin):
    """Raises in every call."""

    def observe(self, indicators: Indicators) -> list:
        raise KeyError("rate")

    def gauges(self) -> dict[str, float]:
        raise RuntimeError("no gauge")

    def close(self) -> None:
        raise OSError("no file")


class Named(MonitorPlugin):
    def __init__(self, text: str = "") -> None:
        self.text = text


class Monitor(AnyMonitor):
    """A monitor with plug-ins."""

    def __init__(self, tools, **plugins: MonitorPlugin) -> None:
        super().__init__(tools, plugins=plugins, expected={"trainer": 1, "actor": 2})

    def sent(self, seconds: float = 0.2) -> list[tuple[str, object]]:
        return [(m.routing_id.decode(), m.message) for m in self.tick(seconds)]


def test_a_plugin_sees_each_heartbeat_once_and_who_lives_and_who_died(tools) -> None:
    says = Says()
    monitor = Monitor(tools, says=says)
    monitor.hello("actor-0", "a")
    monitor.hello("trainer-0", "t")
    monitor.sent()
    for learned in (100, 250):
        monitor.now += 0.5
        monitor.heartbeat("t", counters={"learned_steps": learned}, gauges={"workers": 2.0})
    monitor.sent()
    first, second = says.seen
    assert first.heartbeats == () and first.line["learned_steps"] == 0
    assert [member.name for member in first.members] == ["actor-0", "trainer-0"]
    assert [h.counters["learned_steps"] for h in second.heartbeats] == [100, 250]
    assert [h.heard_s for h in second.heartbeats] == pytest.approx([0.7, 1.2])
    assert second.time_s == pytest.approx(1.4)
    assert second.line["learned_steps"] == 250
    [trainer] = second.of_role("trainer")
    assert (trainer.workers, trainer.incarnation, trainer.host) == (2, "t", "box")
    assert second.of_role("actor")[0].workers is None
    assert (second.deaths, second.expected["actor"]) == (0, 2)
    monitor.sent(3.0)
    monitor.hello("actor-0", "b")
    monitor.heartbeat("t", final=True)
    monitor.sent()
    third = says.seen[-1]
    assert third.deaths == 1  # of the actor; the trainer said that it leaves
    assert [member.incarnation for member in third.members] == ["b"]
    assert [h.final for h in third.heartbeats] == [True]
    with pytest.raises(TypeError):
        third.line["x"] = 1  # type: ignore[index]


def test_a_plugin_sees_figures_of_the_last_half_second_between_two_written_lines(tools) -> None:
    says = Says()
    monitor = Monitor(tools, says=says)
    monitor.hello("trainer-0", "t")
    written = monitor.state.make_line(0.0)
    reported: list[tuple[float, int]] = []
    for tick in range(1, 40):
        monitor.heartbeat("t", counters={"learned_steps": tick})
        reported.append((monitor.now, tick))
        monitor.sent(0.1)
        before = [steps for at, steps in reported if at <= monitor.now - 0.5]
        assert says.seen[-1].line["learned_steps"] >= max(before, default=0)
        assert says.seen[-1].line["monitor_directives"] == 0.0
    assert monitor.state.status()["line"] is written


def test_directives_go_out_with_a_number_and_what_is_for_the_monitor_stays_there(tools) -> None:
    says = Says(Directive("trainer", SetWorkers(2)), Directive("monitor", Note("look here")))
    monitor = Monitor(tools, says=says)
    monitor.hello("trainer-0", "t")
    assert monitor.sent() == [("t", SetWorkers(2).message(1))]
    assert monitor.sent(0.05) == [] and len(says.seen) == 1  # not asked ten times a second
    monitor.take("t", DirectiveAck(1))
    assert monitor.sent(1.0) == []
    assert monitor.state.status()["notes"] == ["look here", "look here"]
    says.directives = (Directive("monitor", StopRun("learned enough")),)
    monitor.sent()
    assert monitor.state.phase is not Phase.RUNNING
    assert monitor.state.reason == "learned enough"
    asked = len(says.seen)
    monitor.sent(1.0)
    assert len(says.seen) == asked  # the run is over


def test_the_count_of_actors_goes_to_the_supervisor_and_is_acknowledged(tools) -> None:
    monitor = Monitor(tools, says=Says(Directive("supervisor", SetActors(3))))
    assert monitor.sent() == []
    monitor.take("parent", StatusRequest())
    assert monitor.sent() == [("parent", SetActors(3).message(1))]
    assert monitor.sent(0.6) == [("parent", SetActors(3).message(1))]
    monitor.take("parent", DirectiveAck(1))
    assert monitor.sent(0.6) == []
    monitor.take("another parent", StatusRequest())
    assert monitor.sent() == []
    for _ in range(10):  # until the first one is silent for too long
        monitor.sent(10.0)
    monitor.take("another parent", StatusRequest())
    assert monitor.sent() == [("another parent", SetActors(3).message(1))]


def test_the_monitor_tells_which_role_refuses_a_directive_and_why(tools) -> None:
    monitor = Monitor(tools, says=Says(Directive("compressor", SetChain(2))))
    monitor.hello("compressor-0", "c")
    monitor.sent()
    for number in (1, 1, 7, 8):  # the last two were never issued
        monitor.take("c", DirectiveAck(number, "SetChain: the ladder\nis\x1bshorter"))
    assert monitor.sent(60.0) == []
    event = "compressor-0 refuses directive 1: SetChain: the ladder is shorter"
    assert [text for text in monitor.state.status()["events"] if "refuses" in text] == [event]
    assert monitor.state.make_line(60.0)["monitor_directives_refused"] == 1.0


def test_of_the_directives_of_others_the_monitor_obeys_only_the_supervisor_s_stop(tools) -> None:
    monitor = Monitor(tools)
    monitor.hello("actor-0", "a")
    for sender in ("a", "stranger"):
        [answer] = monitor.take(sender, StopRun("enough").message(3))
        assert answer.message.id == 3 and "only the supervisor" in answer.message.refusal
    monitor.take("cli", StatusRequest())
    for refused in (SetWorkers(2), Note("x")):
        [answer] = monitor.take("cli", refused.message(4))
        assert answer.message.id == 4 and "expected one of StopRun" in answer.message.refusal
    monitor.take("a", StatusRequest())  # is no supervisor while there is one
    [answer] = monitor.take("a", StopRun("enough").message(3))
    assert (monitor.state.refused, monitor.state.phase) == (5, Phase.RUNNING)
    [answer] = monitor.take("cli", StopRun("enough").message(5))
    assert answer.message == DirectiveAck(5)
    assert monitor.state.reason == "enough"


def test_a_plugin_that_raises_is_counted_told_once_and_the_others_go_on(tools, caplog) -> None:
    monitor = Monitor(tools, fails=Fails(), says=Says(Directive("trainer", SetWorkers(2))))
    monitor.hello("trainer-0", "t")
    assert monitor.sent() == [("t", SetWorkers(2).message(1))]
    monitor.sent()
    line = monitor.state.make_line(1.0)
    # two looks, and the gauges of two lines: of the first look, and this one
    assert line["monitor_plugin_failures"] == 4.0
    monitor.plugins.close()
    texts = [text for text in caplog.messages if text.startswith("event=plugin_failed")]
    assert texts == ["event=plugin_failed plugin=fails"] * 3  # a KeyError, another, an OSError
    assert "KeyError: 'rate'" in caplog.text


@pytest.mark.parametrize(
    "directive",
    [
        "stop",
        Directive("monitor", SetWorkers(2)),
        Directive("trainr", SetWorkers(2)),
        Directive("trainer", Note("x")),
        Directive("trainer", StopRun("x")),
        Directive("trainer", SetWorkers(-1)),
        Directive("trainer", SetWorkers(0)),
        Directive("trainer", SetWorkers(10**6)),
        Directive("trainer", SetWorkers(2.5)),  # type: ignore[arg-type]
        Directive("trainer", SaveBest(float("nan"))),
        Directive("supervisor", SetActors(10**6)),
        Directive("supervisor", SetWorkers(2)),
        Directive("trainer", SetActors(2)),
        Directive("trainer", StopRole("enough")),
        Directive("compressor", SetChain(3)),  # of three rungs the last is 2
        Directive("compressor", SetChain(-1)),
        Directive("compressor", SetChain(0.0)),  # type: ignore[arg-type]
        Directive("actor", SetChain(0)),
        Directive("trainer-0", SetChain(0)),
        Directive("actor", SetMix(1.01)),
        Directive("actor", SetMix(-0.01)),
        Directive("actor", SetMix(float("nan"))),
        Directive("compressor-1", SetMix(0.5)),
        Directive("actor-0", "SetMix"),  # type: ignore[arg-type]
        Directive("trainer", SetWorkers(2), None),  # type: ignore[arg-type]
        Directive("monitor", Note(2)),  # type: ignore[arg-type]
        Directive("monitor", StopRun(None)),  # type: ignore[arg-type]
        Directive("monitor", StopRun("\ud800")),
    ],
)
def test_what_no_role_could_take_is_a_failure_of_the_plugin(tools, directive) -> None:
    monitor = Monitor(tools, says=Says(directive))
    monitor.hello("trainer-0", "t")
    assert monitor.sent() == []
    assert monitor.plugins.failures == 1
    assert monitor.state.phase is Phase.RUNNING


@pytest.mark.parametrize(
    ("to", "payload"),
    [
        ("compressor", SetChain(2)),
        ("compressor-0", SetChain(0)),
        ("actor", SetMix(0.0)),
        ("actor-0", SetMix(1.0)),
    ],
)
def test_rung_and_mix_go_to_compressors_and_actors(tools, to, payload) -> None:
    monitor = Monitor(tools, says=Says(Directive(to, payload)))
    for name in ("trainer-0", "compressor-0", "actor-0"):
        monitor.hello(name, name)
    sent = [m for m in monitor.sent() if not isinstance(m[1], Peers)]
    assert sent == [(f"{to.split('-')[0]}-0", payload.message(1))]


@pytest.mark.parametrize(
    "directive", [Directive("compressor", SetChain(0)), Directive("actor", SetMix(0.5))]
)
def test_without_a_ladder_there_is_no_rung_and_no_mix(tools, directive) -> None:
    config = Config.model_validate({"env": {"id": "CartPole-v1"}})
    plugins = Plugins({"says": Says(directive)}, config)
    seen = Indicators(0.0, {}, (), (), 0, {})
    assert list(plugins.observe(seen)) == [] and plugins.failures == 1


def test_the_later_plugin_is_followed(tools) -> None:
    first, second = (Says(Directive("trainer", SetWorkers(n))) for n in (2, 3))
    monitor = Monitor(tools, first=first, second=second)
    monitor.hello("trainer-0", "t")
    assert monitor.sent() == [("t", SetWorkers(3).message(2))]
    assert monitor.sent(1.0) == [("t", SetWorkers(3).message(2))]  # again, since it has no answer


def test_gauges_are_in_the_line_and_what_is_no_number_is_not(tools) -> None:
    good, bad = Says(), Says()
    good.gauges = lambda: {"trend": 0.5}  # type: ignore[method-assign]
    bad.gauges = lambda: {"x": "much"}  # type: ignore[method-assign]
    line = Monitor(tools, good=good, bad=bad).state.make_line(1.0)
    assert line["plugin_trend"] == 0.5
    assert "plugin_x" not in line and line["monitor_plugin_failures"] == 1.0
    json.dumps(line, allow_nan=False)


def test_plugins_are_loaded_by_name_with_arguments() -> None:
    name = f"{__name__}:Named"
    plugins = load_plugins([UsersClass.model_validate(e) for e in (name, {name: {"text": "b"}})])
    assert [plugin.text for plugin in plugins.values()] == ["", "b"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"nowhere_at_all:X": {}}, "module 'nowhere_at_all' cannot be imported"),
        ({f"{__name__}:Namd": {}}, "did you mean Named"),
        ({f"{__name__}:Named": {"size": 3}}, "unexpected keyword argument 'size'"),
        (
            {"collections:Counter": {}},
            "expected an instance of aclearn.control.plugin.",
        ),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_named(entry, said: str) -> None:
    with pytest.raises(ConfigError, match=r"monitor\.plugins") as raised:
        load_plugins([UsersClass.model_validate(entry)])
    assert said in str(raised.value)
