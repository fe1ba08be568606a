"""Delivery of directives: lost ones, late answers, restarts, contradictions."""

from __future__ import annotations

import json

import pytest

from aclearn.control import (
    Directive,
    SaveBest,
    SetActors,
    SetChain,
    SetMix,
    SetWorkers,
    StopRole,
)
from services.monitor.directive_channel import MONITOR_RANK, DirectiveChannel
from tests.support.tuned_runs import member

_TRAINER, _P, _Q = member("trainer-0", "t"), member("predictor-0", "p"), member("predictor-1", "q")


class Line:
    """A channel, its clock, and its receivers."""

    def __init__(self, *there) -> None:
        self.channel, self.now, self.there = DirectiveChannel(), 0.0, list(there)
        self.channel.meet(tuple(self.there))

    def issue(self, to: str, payload, rank: int = 0, **options) -> None:
        directive = Directive(to, payload, {"rate": 812.5}, **options)
        self.channel.issue(directive, by=f"plugin {rank}", rank=rank)

    def sent(self, seconds: float = 0.0) -> list[tuple[str, object]]:
        self.now += seconds
        self.channel.meet(tuple(self.there))
        return [(m.routing_id.decode(), m.message) for m in self.channel.messages(self.now)]


def test_a_directive_is_sent_again_until_each_receiver_has_acknowledged_it(caplog) -> None:
    caplog.set_level("INFO")
    line = Line(_TRAINER, _P, _Q)
    line.issue("predictor", SetWorkers(2))
    told = SetWorkers(2).message(1)
    assert line.sent() == [("p", told), ("q", told)]
    assert line.sent(0.4) == []
    line.channel.acknowledge("p", 1)
    assert line.sent(0.1) == [("q", told)]  # it, or its acknowledgement, was lost
    assert line.channel.gauges()["monitor_directives_unacknowledged"] == 1.0
    line.channel.acknowledge("q", 1)
    line.issue("predictor", SetWorkers(2))  # repeated, it is the same
    assert line.sent(60.0) == []
    assert line.channel.gauges()["monitor_directives_unacknowledged"] == 0.0
    [text] = [text for text in caplog.messages if text.startswith("event=directive ")]
    assert "id=1 by=plugin 0 to=predictor payload=SetWorkers(count=2)" in text
    assert "cause={'rate': 812.5}" in text


def test_a_late_acknowledgement_of_what_was_superseded_counts_for_nothing() -> None:
    line = Line(_TRAINER)
    line.issue("trainer", SetWorkers(2))
    assert line.sent() == [("t", SetWorkers(2).message(1))]
    line.issue("trainer", SetWorkers(3))
    assert line.sent(0.1) == [("t", SetWorkers(3).message(2))]  # at once
    for foreign in (("t", 1), ("t", 7), ("nobody", 2)):
        line.channel.acknowledge(*foreign)
    assert line.sent(0.5) == [("t", SetWorkers(3).message(2))]
    line.channel.acknowledge("t", 2)
    assert line.sent(60.0) == []


def test_a_role_that_was_started_again_is_told_what_stands() -> None:
    line = Line(_TRAINER)
    line.issue("trainer", SetWorkers(2))
    line.sent()
    line.channel.acknowledge("t", 1)
    line.there = [member("trainer-0", "u"), _P]
    assert line.sent(1.0) == [("u", SetWorkers(2).message(1))]


@pytest.mark.parametrize("rank", [3, MONITOR_RANK], ids=["plugin", "monitor"])
def test_what_is_said_once_is_for_the_living_only_and_repeated_by_the_monitor_alone(rank) -> None:
    line = Line(_TRAINER)

    def say(best: float = 5.0, **options) -> None:
        line.issue("trainer", SaveBest(best), rank=rank, **({"once": True} | options))

    say()
    assert line.sent() == [("t", SaveBest(5.0).message(1))]
    say()
    line.channel.acknowledge("t", 1)
    assert line.sent(1.0) == []
    for incarnation in ("t", "u"):  # e.g. it could not be written, or the trainer died
        line.there = [member("trainer-0", incarnation)]
        line.sent()
        say()
        repeated = [to for to, _ in line.sent()]
        line.channel.acknowledge(incarnation, line.channel.issued)
        assert repeated == ([incarnation] if rank == MONITOR_RANK else [])
    # another value, and the same for those that come later too
    say(6.0)
    assert [message.values for _, message in line.sent()] == [{"return_mean": 6.0}]
    line.channel.acknowledge("u", line.channel.issued)
    line.sent()
    say(6.0, once=False)
    assert [message.values for _, message in line.sent()] == [{"return_mean": 6.0}]


def test_what_no_receiver_had_is_said_when_there_is_one() -> None:
    line = Line()
    for there in ([], [_TRAINER], [member("trainer-0", "u")]):  # the first one died too early
        line.there = there
        line.sent()
        line.issue("trainer", SetWorkers(2), once=True)
        assert [to for to, _ in line.sent()] == [each.incarnation for each in there]


def test_a_role_that_never_acknowledges_is_told_rarely_and_warned_of_once(caplog) -> None:
    line = Line(_TRAINER, _P)
    line.issue("all", StopRole("enough"))
    line.sent()
    line.channel.acknowledge("p", 1)
    times = [sum(len(line.sent(0.25)) for _ in range(4)) for _ in range(60)]
    # five after the first in three seconds, then one every eight
    assert sum(times[:3]) == 5
    assert sum(times[3:]) == 7
    [text] = [text for text in caplog.messages if "directive_not_acknowledged" in text]
    assert "name=trainer-0" in text
    assert len(line.channel._deliveries) == 2


def test_of_plugins_that_contradict_each_other_the_later_one_is_followed(caplog) -> None:
    line = Line(_TRAINER)
    line.issue("trainer", SetWorkers(2), rank=0)
    line.issue("trainer", SetWorkers(3), rank=1)
    assert line.sent() == [("t", SetWorkers(3).message(2))]
    line.channel.acknowledge("t", 2)
    for _ in range(3):
        line.issue("trainer", SetWorkers(2), rank=0)  # at each call of the plug-in
        assert line.sent(1.0) == []
    line.issue("trainer", SetWorkers(4), rank=0)
    assert line.sent(1.0) == []
    texts = [text for text in caplog.messages if "directive_overruled" in text]
    assert len(texts) == 1  # the first was issued before there was a contradiction
    assert "by=plugin 0" in texts[0] and "SetWorkers(count=4" in texts[0]
    assert line.channel.gauges()["monitor_directives_overruled"] == 1.0


@pytest.mark.parametrize("first", ["predictor", "predictor-1"])
def test_of_a_role_and_a_name_the_newer_directive_counts(first: str) -> None:
    line = Line(_P, _Q)
    [second] = {"predictor", "predictor-1"} - {first}
    line.issue(first, SetWorkers(2))
    line.issue(second, SetWorkers(3))
    counts = {name: message.values["count"] for name, message in line.sent()}
    assert counts["q"] == 3
    assert counts["p"] == (2 if first == "predictor" else 3)


def test_of_a_role_and_a_name_the_higher_rank_counts_whichever_is_newer() -> None:
    line = Line(_P, _Q)
    line.issue("predictor-0", SetWorkers(4), rank=1)
    line.issue("predictor", SetWorkers(2), rank=0)
    assert {name: message.values["count"] for name, message in line.sent()} == {"p": 4, "q": 2}


def test_what_was_said_once_gives_way_to_what_another_plugin_has_said() -> None:
    line = Line(_P)
    line.issue("predictor", SetWorkers(4), rank=0)
    line.issue("predictor", SetWorkers(1), rank=1, once=True)
    assert line.sent() == [("p", SetWorkers(1).message(2))]
    line.there = [_P, _Q]  # this one came later
    assert line.sent(0.1) == [("q", SetWorkers(4).message(1))]
    line.channel.acknowledge("p", 2)
    assert line.sent(0.1) == [("p", SetWorkers(4).message(1))]


def test_all_means_every_process_of_a_role_that_the_payload_names() -> None:
    line = Line(_TRAINER, _P, member("actor-0", "a"), member("supervisor-0", "s"))
    stop, actors, workers = StopRole("enough"), SetActors(3), SetWorkers(2)
    for payload in (stop, actors, workers):
        line.issue("all", payload)
    told = {name: [] for name in "tpas"}
    for name, message in line.sent():
        told[name].append(message)
    stop, actors, workers = stop.message(1), actors.message(2), workers.message(3)
    assert told == {"t": [stop, workers], "p": [stop, workers], "a": [stop], "s": [actors]}


def test_a_refused_directive_is_counted_and_not_sent_again() -> None:
    line = Line(_P, _Q)
    line.issue("predictor", SetWorkers(2))
    line.sent()
    for _ in range(2):  # the second answer is to a repetition
        line.channel.acknowledge("p", 1, refused=True)
    line.channel.acknowledge("q", 1)
    assert line.sent(60.0) == []
    assert line.channel.gauges()["monitor_directives_refused"] == 1.0


def test_the_next_monitor_goes_on_with_rungs_and_mixes_of_plugins_that_are_left() -> None:
    compressor, actor = member("compressor-0", "c"), member("actor-0", "a")
    before = Line(_TRAINER, compressor, actor)
    before.issue("compressor", SetChain(1), rank=0)
    before.issue("compressor", SetChain(2), rank=1)
    before.issue("actor", SetMix(0.25), rank=0)
    before.issue("trainer", SetWorkers(2), rank=0)
    before.issue("compressor", SetChain(0), rank=2, once=True)
    state = json.loads(json.dumps(before.channel.state()))
    after = Line(_TRAINER, compressor, actor)
    ranks = {"plugin 0": 3, "plugin 1": 4}
    # the second plug-in's rung is one that the ladder has no more
    after.channel.restore(
        state, lambda by, given: None if given.payload == SetChain(2) else ranks.get(by)
    )
    assert after.sent() == [("c", SetChain(1).message(1)), ("a", SetMix(0.25).message(3))]
    assert after.channel.state()["standing"] == [
        each for each in state["standing"] if each["id"] != 2
    ]
    after.channel.issue(Directive("compressor", SetChain(1)), by="plugin 0", rank=3)
    assert after.channel.issued == 5  # it stands already
    after.channel.issue(Directive("compressor", SetChain(0)), by="plugin 0", rank=3)
    assert after.sent(0.1) == [("c", SetChain(0).message(6))]


_KEPT = {"id": 7, "by": "x", "to": "compressor", "kind": "SetChain", "values": {"rung": 1}}


@pytest.mark.parametrize(
    "wrong",
    [
        {"to": 5},
        {"by": ["x"]},
        {"id": float("inf")},
        {"id": -1},
        {"kind": []},
        {"kind": "StopRole"},
        {"values": None},
    ],
)
def test_a_wrong_entry_of_the_state_is_left_out_and_logged(wrong, caplog) -> None:
    line = Line(member("compressor-0", "c"))
    state = {"issued": float("inf"), "standing": [_KEPT | wrong, 5, _KEPT]}
    line.channel.restore(state, lambda by, given: {"x": 0}.get(by))
    assert line.sent() == [("c", SetChain(1).message(7))]
    assert line.channel.issued == 7
    assert sum("directive_not_restored" in text for text in caplog.messages) == 3


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"issued": "many"},
        {"standing": 5},
        {"standing": [{"by": "x"}]},
        {"standing": [{"by": "x", "to": "compressor", "kind": "StopRole", "values": {}}]},
        {"standing": [{"by": "x", "to": "compressor", "kind": "SetChain", "values": {"a": 1}}]},
    ],
)
def test_a_damaged_state_of_directives_stops_no_monitor(state) -> None:
    line = Line(_TRAINER)
    line.channel.restore(state, lambda by, given: 0)
    assert line.sent() == []
