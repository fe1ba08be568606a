"""Whole runs in this process, with faults at exact points; the account balances every round."""

from __future__ import annotations

from itertools import groupby

import pytest

from aclearn.types import OBSERVATION, Unroll
from aclearn.wire import decode
from compress.methods.quantizer import Quantizer
from services.roles import MONITOR, PREDICTOR, TRAINER
from tests.support.metrics_lines import check_line, check_lines
from tests.support.whole_run import WholeRun

_UPDATES = {"run": {"max_updates": 12}}
_CHAIN = {"compressor": {"chain": ["int8", "onnx"], "every_s": 0.125}}
_PREDICTOR = {
    "actors": {"processes": 2, "envs_per_group": 2, "unroll_length": 4, "inference": "predictor"}
}
_NORMALISED = {
    "policy": {"normalise_observations": True},
    "loss": {"normalise_returns": True},
    "correctors": "auto",
    **_CHAIN,
}
_Q = {
    "policy": {"architecture": "mlp", "hidden": [8], "critic": "q"},
    "correctors": ["retrace", "importance_sampling"],
}


def steps_of(unrolls) -> int:
    return sum(int(unroll.valid.sum()) for unroll in unrolls)


def check_end(run: WholeRun, summary) -> None:
    """Check that all files balance, and that each sent unroll was learned or dropped."""
    check_lines(run.lines())
    check_line(summary)
    assert summary["in_flight_steps"] == 0
    ends = (*run.network.servers.values(), *run.network.clients.values())
    assert not any(end.inbox for end in ends)


@pytest.mark.parametrize(
    ("groups", "roles"),
    [
        ({}, {"monitor": 1, "trainer": 1, "actor": 2}),
        (_CHAIN, {"monitor": 1, "trainer": 1, "compressor": 1, "actor": 2}),
        (_PREDICTOR, {"monitor": 1, "trainer": 1, "predictor": 1, "actor": 2}),
        (
            _CHAIN | _PREDICTOR,
            {"monitor": 1, "trainer": 1, "predictor": 1, "compressor": 1, "actor": 2},
        ),
    ],
    ids=["local", "compressor", "predictor", "all five"],
)
def test_a_whole_run_reaches_its_bound(start, learned, groups, roles) -> None:
    run = start(**_UPDATES, **groups)
    started = [name.rpartition("-")[0] for name in run.roles]
    assert {role: started.count(role) for role in started} == roles
    summary = run.run()
    check_end(run, summary)
    assert (summary["reason"], summary["updates"], summary["policy_version"]) == (
        "max_updates",
        12,
        12,
    )
    assert summary["learned_steps"] == steps_of(u for batch in learned for u in batch)
    assert summary["episodes"] > 0 and summary["lag_max"] <= 3
    assert run.checkpoint().state["counters"]["updates"] == 12
    assert run.passed["Unroll"] == len(run.sent) >= 24
    # no process died, so only steps acted after the last update are lost
    assert set(summary["dropped_steps"]) <= {"max_updates", "actor_lost", "shutdown"}


@pytest.mark.parametrize("kind", ["Unroll", "UnrollReply"])
def test_what_is_lost_for_two_seconds_is_sent_again_and_learned_at_most_once(
    start, learned, kind
) -> None:
    run = start(run={"max_updates": 100_000}, actors={"max_in_flight_unrolls": 3})
    run.run_until(lambda: len(learned) == 10, "it learns")
    lost, at = run.faults.drop(kind, nth=None), run.clock.now
    while run.clock.now < at + 2.0:
        assert run.round()
    assert lost.hits == 6  # all that the actors may have in flight
    run.faults.present.clear()
    before = len(learned)
    run.run_until(lambda: len(learned) > before, "it learns again")
    assert run.clock.now < at + 4.0
    run.run_until(lambda: run.heartbeats["actor-0"].gauges["repeated_unrolls"] == 3, "it says so")
    assert run.refused == ({} if kind == "Unroll" else {"duplicate": 6})
    assert run.heartbeats["trainer-0"].dropped == {}
    check_learned_once(learned)


def test_a_trainer_that_is_busy_for_long_gets_few_copies_and_learns_each_unroll_once(
    start, learned
) -> None:
    run = start(
        run={"max_updates": 100_000},
        actors={"processes": 1, "max_in_flight_unrolls": 3},
        monitor={"silent_after_s": 1000.0},
    )
    run.run_until(lambda: len(learned) == 10, "it learns")
    run.suspend("trainer-0")
    before, at = run.passed["Unroll"], run.clock.now
    while run.clock.now < at + 100.0:
        assert run.round()
    # the three, and again after 3, 9, 21, 45 and 93 s
    assert run.passed["Unroll"] - before <= 3 + 5 * 3
    run.wake("trainer-0")
    run.run_until(lambda: run.refused["duplicate"] >= 12, "the copies are refused")
    run.run_until(lambda: len(learned) > 20, "it learns again")
    check_learned_once(learned)


def test_an_unroll_that_comes_twice_is_learned_once(start, learned) -> None:
    run = start(**_UPDATES)
    twice = run.faults.duplicate("Unroll", nth=5)
    summary = run.run()
    check_end(run, summary)
    assert twice.hits == 1
    check_learned_once(learned)
    assert run.refused == {"duplicate": 1}


def check_learned_once(learned) -> None:
    """Check that no unroll is in two batches: observations of CartPole never repeat."""
    contents = [u.observations[OBSERVATION].tobytes() for batch in learned for u in batch]
    assert len(set(contents)) == len(contents)


def test_a_trainer_that_dies_between_publication_and_checkpoint_goes_on_from_the_checkpoint(
    start, learned
) -> None:
    run = start(run={"max_updates": 40, "checkpoint_every_s": 1.0})
    trainer = run.roles["trainer-0"]

    def updates() -> int:
        return run.heartbeats["trainer-0"].counters["updates"]

    run.run_until(lambda: "trainer-0" in run.heartbeats and updates() >= 9, "it has learned")
    run.run_until(
        lambda: run.heartbeats["trainer-0"].counters["unsaved_updates"] > 0,
        "weights are published that no checkpoint has",
    )
    saved, published = run.checkpoint().state, run.heartbeats["trainer-0"].counters
    run.kill("trainer-0")
    del trainer
    before = len(learned)
    for _ in range(10):  # actors continue to their bound of unrolls in flight
        assert run.round()
    assert len(learned) == before
    run.start(TRAINER)
    summary = run.run()
    check_end(run, summary)
    assert 0 < saved["counters"]["updates"] < published["updates"]
    assert (summary["generation"], summary["updates"]) == (1, 40)
    check_learned_once(learned)
    old, new = learned[:before], learned[before:]
    assert {u.generation for batch in old for u in batch} == {0}
    assert {u.generation for batch in new for u in batch} == {1}
    # the learning of the checkpoint and of the second trainer counts
    learned_since = steps_of(u for batch in new for u in batch)
    assert summary["learned_steps"] == saved["account"]["learned_steps"] + learned_since
    # and each step that the first one learned after it is lost
    assert (
        summary["dropped_steps"]["lost"]
        >= published["learned_steps"] - saved["account"]["learned_steps"]
    )
    assert summary["dropped_steps"]["old_generation"] > 0


def test_data_flows_on_without_the_monitor_and_the_next_one_knows_everything(
    start, learned
) -> None:
    run = start(run={"max_updates": 40})
    run.run_until(lambda: len(learned) == 10, "ten batches are learned")
    written = len(run.lines())
    run.run_until(lambda: len(run.lines()) > written, "a line is written")
    lines = run.lines()  # with all received heartbeats
    run.kill("monitor-0")
    while len(learned) < 20:
        assert not run.round()  # no process could report that it is over
    run.start(MONITOR)
    summary = run.run()
    check_end(run, summary)
    check_learned_once(learned)
    assert (summary["updates"], summary["generation"], summary["reason"]) == (40, 0, "max_updates")
    assert summary["learned_steps"] == steps_of(u for batch in learned for u in batch)
    assert run.lines()[: len(lines)] == lines
    assert summary["episodes"] == sum(
        run.heartbeats[f"actor-{i}"].counters["episodes"] for i in range(2)
    )


def test_a_predictor_that_dies_with_requests_in_flight_is_followed_by_the_next(
    start, learned
) -> None:
    run = start(run={"max_updates": 20}, **_PREDICTOR)
    run.run_until(lambda: len(learned) == 8, "eight batches are learned")

    def asked() -> int:
        ends = run.network.servers.values()
        return sum(len(end.inbox) for end in ends if end.owner == "predictor-0")

    run.run_until(asked, "requests are on their way")
    run.kill("predictor-0")
    answered = run.passed["ActReply"]
    for _ in range(32):
        assert run.round()
    assert run.passed["ActReply"] == answered
    run.start(PREDICTOR)
    summary = run.run()
    check_end(run, summary)
    check_learned_once(learned)
    assert (summary["updates"], summary["reason"]) == (20, "max_updates")


def test_in_place_of_a_refused_artifact_the_uncompressed_policy_acts(start) -> None:
    run = start(run={"max_updates": 40}, **_CHAIN)
    chains: dict[str, list[str]] = {"actor-0": [], "actor-1": []}

    def observe(sender, receiver, frames):
        message = decode(frames).message
        if isinstance(message, Unroll):
            chains[sender] += message.chains

    run.faults.observe = observe

    def damaged(message):
        return [[*message[:-1], bytes(len(message[-1]))]]

    # the sixth is one of the chain's, which needs observations first
    refused = run.faults.change("ArtifactReply", damaged, nth=6, receiver="actor-0")
    summary = run.run()
    check_line(summary)
    assert (summary["updates"], refused.hits) == (40, 1)
    in_turn = {name: [chain for chain, _ in groupby(used)] for name, used in chains.items()}
    chain = ["fuse>onnx", f"{Quantizer().id}>onnx"]
    assert in_turn == {"actor-0": chain + chain, "actor-1": chain}
    told = {
        line["actor_policy_refused"] for line in run.lines() if line.get("actor_policy_refused")
    }
    assert told == {0.5}  # the mean of two actors


@pytest.mark.parametrize(
    "groups",
    [{}, _Q | _CHAIN | _PREDICTOR, _NORMALISED],
    ids=["local", "Q head and all five", "compressor and norms"],
)
def test_the_seed_alone_decides_a_run_also_one_that_is_resumed(tmp_path, groups) -> None:
    ended = []
    for name, seed in (("first", 1), ("again", 1), ("other", 2)):
        (tmp_path / name).mkdir()
        for part, updates in enumerate((5, 10)):
            run = WholeRun(
                tmp_path / name,
                resume=part > 0,
                run={"max_updates": updates, "seed": seed},
                **groups,
            )
            summary = run.run()
        assert (summary["updates"], summary["generation"]) == (10, 1)
        told = [
            (line["time_s"], line["env_steps"], line["return_mean_100"]) for line in run.lines()
        ]
        if groups.get("correctors") == "auto":  # which splits ratios by kept weights
            assert run.lines()[-1]["split_share"] == 1.0
        tensors = run.checkpoint().tensors
        assert ("weights/q.weight" in tensors) == (groups.get("policy") == _Q["policy"])
        ended.append((tensors, told))
    (a, a_told), (b, b_told), (c, _) = ended
    assert a.keys() == b.keys() == c.keys()
    assert [name for name in a if a[name].tobytes() != b[name].tobytes()] == []
    weights = [name for name in a if name.startswith("weights/") and a[name].any()]
    assert weights and all(a[name].tobytes() != c[name].tobytes() for name in weights)
    assert a_told == b_told
