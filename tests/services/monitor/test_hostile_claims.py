"""For any claims of roles, the monitor answers, and a successor reads its files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aclearn.config import RunConfig
from aclearn.control import StopCondition
from aclearn.metrics import MetricsAggregator, TensorBoardWriter
from aclearn.runs import MetricsWriter, RunFolder, is_metrics_line
from aclearn.types import EpisodeCohort, pack_seen
from aclearn.wire import (
    Envelope,
    ErrorReply,
    Heartbeat,
    Hello,
    NumberRequest,
    PolicyNumbers,
    StatusRequest,
    encode,
)
from services.monitor.core import MonitorState
from services.monitor.ending import Phase
from services.monitor.files import MonitorFiles
from services.monitor.plugins import Plugins
from services.monitor.registry import OutgoingMessage, Registry
from services.roles import ROLES
from tests.support.monitor import Monitor

_ids = st.sampled_from(["a", "b", "c", "ä" * 40])
_roles = st.sampled_from([*ROLES, "visitor", ""])
_counts = st.sampled_from([0, 1, 7, 500, 2**36, 2**53, 2**53 + 1, 2**63 - 1])
_floats = st.sampled_from([0.0, 1.5, -3.0, 1e30, 1e100, -1e308, 1.7e308])
_labels = st.sampled_from(
    ["env_steps", "learned_steps", "in_flight_steps", "episodes", "updates", "batches",
     "predictions", "policy_version", "generation", "total", "working",
     "workers", "lag_mean", "time_s", "x" * 200, ""]
)  # fmt: skip
_hellos = st.builds(
    Hello, _roles, _counts, st.just("bäx" * 300), _counts,
    st.dictionaries(_labels, st.text("t", max_size=300), max_size=10),
)  # fmt: skip
_heartbeats = st.builds(
    Heartbeat, *(st.dictionaries(_labels, values, max_size=6)
    for values in (_counts, _floats, _counts, _floats, _floats)),
    st.lists(_floats, max_size=3), st.just("ä" * 1000), st.booleans(),
)  # fmt: skip
_messages = st.one_of(
    _hellos, _heartbeats, st.builds(NumberRequest, _roles), st.just(StatusRequest())
)


def _state(view: MetricsAggregator | None = None) -> MonitorState:
    goal = StopCondition(RunConfig(max_env_steps=10_000))
    plugins = Plugins({}, Monitor.config)
    return MonitorState(
        Registry(silent_after_s=20.0),
        view or MetricsAggregator(0.0),
        goal,
        plugins,
        policies=["tagger"],
    )


def _encode(messages: list[OutgoingMessage]) -> None:
    for message in messages:
        encode(message.message, run="r" * 100, incarnation="s" * 32, sequence=1)


@pytest.fixture(scope="module")
def sinks(tmp_path_factory):
    folder: Path = tmp_path_factory.mktemp("sinks")
    with MetricsWriter(folder / "m.jsonl") as metrics, TensorBoardWriter(folder) as tensorboard:
        yield metrics, tensorboard


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(_ids, _messages), max_size=40))
def test_any_messages_leave_a_monitor_that_answers_and_files_that_a_successor_reads(
    sinks, said
) -> None:
    view = MetricsAggregator(0.0)
    state, now = _state(view), 0.0
    state.observe_time(now)
    for incarnation, message in said:
        now += 1.0
        _encode(state.take(incarnation.encode(), Envelope("r", incarnation, 0, message), now))
        _encode(state.observe_time(now))
    line = state.make_line(now)
    for sink in sinks:
        sink.write(line)
    assert is_metrics_line(json.loads(json.dumps(line)))
    _encode(state.take(b"cli", Envelope("r", "cli", 0, StatusRequest()), now))
    again = MetricsAggregator(now, resume_from=line, state=json.loads(json.dumps(view.state())))
    _state(again).make_line(now + 1.0)


_TWO = {"tagger": np.array([1, 2])}
_TOO_MUCH = {"begun_s": 0.0, "episodes": 1, "return_sum": 1e308, "length_sum": 1}


def _cohorts(*, count: int = 1, **changes: Any) -> Heartbeat:
    fields = {"begun_s": 0.0, "episodes": 1, "return_sum": 1.0, "length_sum": 1, **changes}
    return Heartbeat(cohorts=[EpisodeCohort(**fields)] * count, clock_s=1.0)


def _of_tagger(counters: dict[str, int], returns: list[float] = []) -> Heartbeat:  # noqa: B006
    return Heartbeat(policies={"tagger": PolicyNumbers(counters, episode_returns=returns)})


def _seen(steps: dict[str, int], policy: str = "tagger") -> dict[str, Any]:
    names, numbers = pack_seen(steps)
    return {"actors": {policy: names}, "actor_steps": {policy: numbers}}


def _heartbeat(counters: dict[str, int], returns: list[float] = []) -> Heartbeat:  # noqa: B006
    return Heartbeat(counters, episode_returns=returns)


@pytest.mark.parametrize(
    ("heartbeat", "words"),
    [
        (_heartbeat({"env_steps": 2**63 - 1}), "env_steps is above 2^53"),
        (_heartbeat({"env_steps": 120 + 2**36 + 1}), "more than a process can have taken"),
        (_heartbeat({"env_steps": 119}), "env_steps fell from 120 to 119"),
        (
            Heartbeat(episode_returns=[1.0, 2.0], episode_policies=["original"]),
            "episode_policies has not one entry for each",
        ),
        (_heartbeat({}, [1.7e308]), "a gauge, a time or a return is beyond 1e+100"),
        (_cohorts(episodes=0), "a cohort has no episode"),
        (_cohorts(return_sum=1e308), "a sum beyond 1e+100"),
        (_cohorts(length_sum=2**60), "a count above 2^53"),
        (_cohorts(begun_s=9.0), "a cohort began after the heartbeat"),
        (_cohorts(info_sums={"won": 1.0}), "figures of info, or ones without count"),
        (_cohorts(count=65), "more than 64 cohorts"),
        (Heartbeat(policies={"ghost": PolicyNumbers()}), "this run has no policy 'ghost'"),
        (_of_tagger({"env_steps": 2**63 - 1}), "env_steps is above 2^53"),
        (_of_tagger({"env_steps": 2}), "env_steps of tagger fell from 3 to 2"),
        (_of_tagger({}, [1.7e308]), "a gauge, a time or a return is beyond 1e+100"),
        (Heartbeat(**_seen({"b": 1})), "only a trainer counts the steps of actors"),
        (Heartbeat(**_seen({"b": 1}, "ghost")), "this run has no policy 'ghost'"),
        (Heartbeat(**_seen({"b": 2**60})), "expected agent steps from 0 to 2^53"),
        (Heartbeat(**_seen({"b": -1})), "expected agent steps from 0 to 2^53"),
        (Heartbeat(**_seen({"b" * 49: 1})), "actors: expected actors [A, 1 to 48]"),
        (Heartbeat(actors=_seen({"b": 1})["actors"]), "actor_steps of the same policies"),
        (
            Heartbeat(actors={"tagger": np.full((2, 3), 98, np.uint8)}, actor_steps=_TWO),
            "expected each actor once",
        ),
        (
            Heartbeat(actors={"tagger": np.full((2, 3), 255, np.uint8)}, actor_steps=_TWO),
            "expected actors in UTF-8",
        ),
        (
            Heartbeat(actors={"tagger": np.full((3, 3), 98, np.uint8)}, actor_steps=_TWO),
            "got (3, 3) and (2,)",
        ),
    ],
)
def test_a_claim_that_cannot_be_is_refused_counted_and_said_once(heartbeat, words) -> None:
    state = _state()
    state.observe_time(0.0)

    def take(message):
        return state.take(b"a", Envelope("r", "a", 0, message), 1.0)

    take(Hello("actor", 0, "box", 1, {}))
    take(replace(_of_tagger({"env_steps": 3}), counters={"env_steps": 120}))
    for _ in range(2):
        [_, refusal] = take(heartbeat)
        assert isinstance(refusal.message, ErrorReply)
        assert refusal.message.reason == "bad_heartbeat" and words in refusal.message.detail
    assert state.refused == 2
    assert [words in text for text in state.report.events] == [True]
    take(_heartbeat({"env_steps": 121}))
    assert state.make_line(1.0)["env_steps"] == 121


def test_an_actors_claim_ends_no_run_but_the_trainers_account_does() -> None:
    state = _state()
    state.observe_time(0.0)
    for incarnation, role in (("a", "actor"), ("t", "trainer")):
        state.take(b"x", Envelope("r", incarnation, 0, Hello(role, 0, "box", 1, {})), 1.0)
    state.take(b"a", Envelope("r", "a", 0, _heartbeat({"env_steps": 50_000})), 1.0)
    assert state.make_line(1.0)["env_steps"] == 50_000
    assert state.phase is Phase.RUNNING
    beat = replace(_heartbeat({"env_steps": 10_000}), **_seen({"a": 10_000}))
    state.take(b"t", Envelope("r", "t", 0, beat), 1.0)
    state.make_line(2.0)
    assert state.reason == "max_env_steps"


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ({"time_s": 1e300, "episodes": 3}, "{}"),
        ({"time_s": "soon", "episodes": {}}, "{}"),
        ({"time_s": 7.0, "episodes": 3}, json.dumps({"episodes": [_TOO_MUCH], "totals": {}})),
        ({"time_s": 7.0, "episodes": 3}, '{"episodes": ["x"]}'),
        ({"time_s": 7.0, "episodes": 3}, '{"totals": {}}'),
        ({"time_s": 7.0, "episodes": 3}, "[]"),
    ],
)
def test_what_a_predecessor_left_ends_no_successor(tmp_path, line, state, caplog) -> None:
    folder = RunFolder.create(tmp_path, "r", "{}\n")
    folder.metrics_path.write_text(json.dumps(line) + "\n")
    folder.monitor_state_path.write_text(state)
    files = MonitorFiles(folder)
    view = files.open_metrics(0.0)
    assert any(event in caplog.text for event in ("last_line_not_read", "monitor_state_not_read"))
    made = view.line(1.0)
    assert made["episodes"] == (3 if line["time_s"] == 7.0 else 0)
    assert files.write_line(made, view) == []
    assert json.loads(folder.metrics_path.read_text().splitlines()[-1]) == made
    files.finish(made, view, reason="x", seed=1)
