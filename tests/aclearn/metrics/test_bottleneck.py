from __future__ import annotations

from typing import Any

import pytest

from aclearn.metrics import Bottleneck, SteadyBottleneck, find_bottleneck, queue_fills


def _found(**shares: dict[str, float]) -> Bottleneck:
    for role, parts in shares.items():
        assert sum(parts.values()) == pytest.approx(1.0), f"the test's own shares of {role}"
    return find_bottleneck({"wait_share": shares})


def test_a_busy_trainer_that_actors_wait_for_is_the_bottleneck() -> None:
    found = _found(
        trainer={"working": 0.97, "unrolls": 0.03},
        actor={"working": 0.35, "emulator": 0.25, "training queue": 0.40},
    )
    assert found == Bottleneck(
        "trainer",
        "trainer: it works 97 % of the time while actors wait 40 % for the training queue; "
        "more trainer.workers where cores are free, fewer actors.processes, a smaller "
        "policy.architecture or a faster device would help; tuner.enabled=true tries such counts "
        "by itself",
        count="trainers",
    )


def test_actors_that_wait_for_the_draws_of_a_replay_memory_blame_its_ratio() -> None:
    shares = {
        "trainer": {"working": 0.97, "unrolls": 0.03},
        "actor": {"working": 0.6, "training queue": 0.4},
    }
    found = find_bottleneck({"wait_share": shares, "replay_ratio": 7.98})
    assert found == Bottleneck(
        "trainer",
        "trainer: it works 97 % of the time while actors wait 40 % for the training queue, since "
        "replay.ratio draws 7.98 steps for each new one before actors go on; a smaller "
        "replay.ratio, a smaller policy.architecture or a faster device would help",
    )


@pytest.mark.parametrize(
    ("waits", "role", "words"),
    [
        (
            "trainer: working 45, unrolls 55; actor: working 90, emulator 10",
            "actor",
            "actor: it works 90 % of the time while the trainer waits 55 % for unrolls; more",
        ),
        (
            "trainer: working 45, unrolls 55; actor: working 20, emulator 70, training queue 10",
            "actor",
            "actor: it waits 70 % of the time for the emulator",
        ),
        (
            "trainer: working 40, unrolls 60; actor: actions 100; predictor: working 100",
            "predictor",
            "predictor: it works 100 % of the time while actors wait 100 % for actions and the",
        ),
        (
            "trainer: working 40, unrolls 60; actor: actions 100; predictor: requests 100",
            None,
            "messages between actors and predictor: actors wait 100 % for actions",
        ),
        (
            "trainer: working 30, unrolls 70; actor: working 40, training queue 60",
            None,
            "messages between actors and trainer: actors wait 60 % for the training queue",
        ),
        (
            "trainer: working 30, unrolls 70; actor: working 40, weights 60",
            None,
            "starting: actors wait 60 % for their first weights",
        ),
        (
            "trainer: working 80, unrolls 20; actor: working 20, newer weights 80",
            "trainer",
            "trainer: actors wait 80 % for newer weights",
        ),
        (
            "trainer: working 30, unrolls 70; actor: working 10, emulator 50, newer weights 40",
            "actor",
            "actor: it waits 50 % of the time for the emulator while",
        ),
        (
            "trainer: working 93, unrolls 7; actor: working 95, training queue 5",
            None,
            "balanced: the trainer works 93 % of the time",
        ),
        (
            "trainer: working 50, the disk 50; actor: working 100",
            "trainer",
            "trainer: it waits 50 % of the time for the disk",
        ),
        (
            "trainer: working 50, unrolls 50; actor: working 30, the moon 70",
            "actor",
            "actor: it waits 70 % of the time for the moon",
        ),
        ("", None, "not known yet: the trainer has not reported"),
        ("trainer: working 10, unrolls 90", "actor", "actor: none has reported"),
        (
            "trainer: working 10, unrolls 90; actor: working 10, actions 90",
            "predictor",
            "predictor: none has reported",
        ),
        (
            "trainer: working 100",
            "trainer",
            "trainer: it works 100 % of the time; no actor has reported",
        ),
    ],
)
def test_the_waits_lead_to_the_role(waits: str, role: str | None, words: str) -> None:
    shares: dict[str, dict[str, float]] = {}
    for text in filter(None, waits.split("; ")):
        name, _, parts = text.partition(": ")
        labels = (part.rpartition(" ") for part in parts.split(", "))
        shares[name] = {label: int(percent) / 100 for label, _, percent in labels}
    found = _found(**shares)
    assert found.role == role
    assert found.sentence.startswith(words)


def test_a_full_training_queue_alone_names_the_trainer() -> None:
    shares = {
        "trainer": {"working": 0.97, "unrolls": 0.03},
        "actor": {"working": 0.95, "training queue": 0.05},
    }
    found = find_bottleneck({"wait_share": shares, "queue_fill": 0.9})
    assert found.role == "trainer"
    assert "while the training queue is 90 % full;" in found.sentence


_PREDICTOR_WAITS = {
    "trainer": {"working": 0.4, "unrolls": 0.6},
    "actor": {"working": 0.4, "actions": 0.6},
    "predictor": {"working": 0.3, "requests": 0.7},
}
_QUEUE_WAITS = {
    "trainer": {"working": 0.3, "unrolls": 0.7},
    "actor": {"working": 0.4, "training queue": 0.6},
}


@pytest.mark.parametrize(
    ("shares", "gauge", "role", "sentence"),
    [
        (
            _PREDICTOR_WAITS,
            "predictor_sockets_busy",
            "predictor",
            "predictor: its thread for messages works 90 % of the time while actors wait 60 % for "
            "actions and the trainer waits 60 % for unrolls; more predictor.processes",
        ),
        (
            _QUEUE_WAITS,
            "sockets_busy",
            "trainer",
            "trainer: its thread for messages works 90 % of the time while actors wait 60 % for "
            "the training queue and the trainer waits 70 % for unrolls; fewer and larger messages",
        ),
    ],
)
def test_a_thread_for_messages_that_never_rests_is_the_bottleneck(
    shares, gauge, role, sentence
) -> None:
    line = {"wait_share": shares, gauge: 0.9}
    found = find_bottleneck(line)
    assert (found.role, found.count) == (role, None)  # more of its workers would not help
    assert found.sentence.startswith(sentence)
    assert find_bottleneck(line | {gauge: 0.5}).sentence.startswith("messages between actors and")


def test_a_run_that_has_not_learned_yet_is_starting_whatever_waits() -> None:
    shares = {
        "trainer": {"working": 0.2, "unrolls": 0.8},
        "actor": {"working": 0.38, "weights": 0.62},
    }
    found = find_bottleneck({"wait_share": shares, "learned_steps": 0})
    assert found == Bottleneck(
        None,
        "starting: nothing is learned yet; actor waits 62 % for weights, trainer waits 80 % for "
        "unrolls",
    )
    shares["actor"] = {"working": 0.9, "emulator": 0.1}
    assert find_bottleneck({"wait_share": shares, "learned_steps": 1}).role == "actor"


def test_a_line_brings_its_shares_its_fills_and_what_is_learned() -> None:
    line = {
        "wait_share": {
            "trainer": {"working": 1.0},
            "actor": {"working": 1.0},
            "monitor": {"messages": 1.0},  # as always
        },
        "queue_fill": 0.9,
        "learned_steps": 640,
    }
    assert "the training queue is 90 % full" in find_bottleneck(line).sentence
    assert find_bottleneck(line | {"learned_steps": 0}).sentence == (
        "starting: nothing is learned yet; all roles work"
    )
    assert find_bottleneck({}).role is None


_TRAINER_BUSY = {"trainer": {"working": 1.0}, "actor": {"training queue": 1.0}}
_ACTORS_BUSY = {"trainer": {"working": 0.4, "unrolls": 0.6}, "actor": {"working": 1.0}}
_TUNER = {"tuner_temperature": 0.0, "tuner_predictors": 1.0, "tuner_trainers": 2.0}


@pytest.mark.parametrize(
    ("shares", "gauges", "hint"),
    [
        (_TRAINER_BUSY, {}, "tuner.enabled=true tries such counts by itself"),
        (_TRAINER_BUSY, _TUNER | {"tuner_frozen": 0.0}, "the tuner is trying such counts"),
        (
            _TRAINER_BUSY,
            _TUNER | {"tuner_frozen": 1.0},
            "the tuner has tried such counts and keeps the best",
        ),
        # the default tuner does not change the number of actors
        (
            _ACTORS_BUSY,
            {},
            "tuner.enabled=true with actors in tuner.counts tries such counts by itself",
        ),
        (
            _ACTORS_BUSY,
            _TUNER | {"tuner_frozen": 0.0},
            "the tuner would try such counts with actors in tuner.counts",
        ),
        (_ACTORS_BUSY, _TUNER | {"tuner_actors": 3.0}, "the tuner is trying such counts"),
        (
            _TRAINER_BUSY,
            {"tuner_temperature": 0.0, "tuner_actors": 3.0},
            "the tuner would try such counts with trainers in tuner.counts",
        ),
    ],
)
def test_the_hint_is_what_the_run_s_tuner_does(shares, gauges, hint) -> None:
    sentence = find_bottleneck({"wait_share": shares, **gauges}).sentence
    assert sentence.rpartition("; ")[2] == hint


@pytest.mark.parametrize(
    ("shares", "few"),
    [
        (_TRAINER_BUSY, "fewer actors.processes, a smaller policy.architecture or a faster device"),
        (_ACTORS_BUSY, "a smaller policy.architecture"),
    ],
)
def test_more_processes_are_no_advice_where_no_core_is_free(shares, few) -> None:
    line = {"wait_share": shares}
    assert "where cores are free" in find_bottleneck(line).sentence
    some = find_bottleneck(line | {"monitor_free_cores": 1.52}).sentence
    assert "; more " in some and " (1.5 cores are free)" in some
    none = find_bottleneck(line | {"monitor_free_cores": 0.2}).sentence
    assert f"; no core is free, so {few} would help" in none
    assert "more " not in none


def test_the_advice_does_not_flip_while_two_roles_are_slow_in_turns() -> None:
    steady, told = SteadyBottleneck(), []
    for step in range(60):  # a line every 2 s
        shares = (_TRAINER_BUSY, _ACTORS_BUSY)[step % 3 > 1]
        found = steady.observe({"time_s": 2.0 * step, "learned_steps": step, "wait_share": shares})
        told.append(found.role)
    assert told == [None] + ["trainer"] * 59
    # the trainer is slow no more: this is shown within 30 seconds, and stays
    for step in range(60, 90):
        line = {"time_s": 2.0 * step, "learned_steps": step, "wait_share": _ACTORS_BUSY}
        told.append(steady.observe(line).role)
    assert told[60:65] == ["trainer"] * 5
    assert told[75:] == ["actor"] * 15


def _split(emulator: float) -> dict[str, dict[str, float]]:
    return _ACTORS_BUSY | {"actor": {"working": 1.0 - emulator, "emulator": emulator}}


@pytest.mark.parametrize(
    ("first", "second", "remedies"),
    [
        (
            {"wait_share": _ACTORS_BUSY, "monitor_free_cores": 0.6},
            {"wait_share": _ACTORS_BUSY, "monitor_free_cores": 0.4},
            ("; more actors.processes (0.6 cores are free)", "; no core is free, so "),
        ),
        (
            {"wait_share": _split(0.51)},
            {"wait_share": _split(0.49)},
            ("a faster environment", "a smaller policy.architecture"),
        ),
    ],
)
def test_the_remedy_does_not_flip_around_a_threshold(first, second, remedies) -> None:
    steady, told = SteadyBottleneck(), []
    for step in range(40):  # a line every 2 s; the second half has the other remedy only
        line = second if step >= 20 or step % 2 else first
        told.append(steady.observe(line | {"time_s": 2.0 * step}).sentence)
    assert all(remedies[0] in sentence for sentence in told[:20])
    assert all(remedies[1] in sentence for sentence in told[30:])


def test_workers_that_wait_for_each_other_are_too_many() -> None:
    found = _found(
        trainer={"working": 0.6, "the other workers": 0.35, "unrolls": 0.05},
        actor={"working": 0.7, "training queue": 0.3},
    )
    assert found == Bottleneck(
        None,
        "the trainer's workers wait 35 % of the time for each other, since one update at a time "
        "changes the weights; fewer trainer.workers would help; tuner.enabled=true tries such "
        "counts by itself",
        count="trainers",
    )


def test_a_resumed_run_starts_without_a_word_about_silent_actors() -> None:
    line = {"wait_share": {"trainer": {"unrolls": 1.0}}, "learned_steps": 10**6}
    assert find_bottleneck(line).sentence.startswith("actor: none has reported")
    started = find_bottleneck({**line, "learned_steps_since_start": 0}).sentence
    assert started.startswith("starting: nothing is learned yet") and "actor" not in started


def test_a_run_with_resident_environments_has_no_actor_to_wait_for() -> None:
    line: dict[str, Any] = {"resident_envs": 4096, "learned_steps_since_start": 0}
    assert find_bottleneck(line).sentence.startswith("starting: the trainer loads; the first time")
    line |= {"learned_steps_since_start": 5, "wait_share": {"trainer": {"working": 1.0}}}
    for rollout, words in (
        (9.0, "rollouts take 75 % of its time; more resident.threads"),
        (1.0, "updates take 75 % of its time; fewer trainer.epochs"),
    ):
        line["part_seconds"] = {"trainer": {"rollout": rollout, "update": 3.0, "total": 99.0}}
        found = find_bottleneck(line)
        assert found.role == "trainer" and words in found.sentence
        assert "it plays 4.10 k environments itself" in found.sentence
    replayed = find_bottleneck(line | {"replay_ratio": 8.0}).sentence
    assert "a smaller replay.ratio, a smaller" in replayed and "epochs" not in replayed


@pytest.mark.parametrize(
    ("line", "fills"),
    [
        ({}, {}),
        ({"queue_fill": 0.5}, {"training queue": 0.5}),
        (
            {"queue_fill": 1, "predictor_queue_fill": 0.25},
            {"training queue": 1.0, "prediction queue": 0.25},
        ),
        ({"queue_fill": None, "other_fill": 0.5}, {}),
    ],
)
def test_queue_fills_are_read_from_the_gauges(
    line: dict[str, Any], fills: dict[str, float]
) -> None:
    assert queue_fills(line) == fills
