"""The tuner in its run: heartbeats in, directives and files out."""

from __future__ import annotations

from collections import Counter

import pytest

from aclearn.errors import ConfigError, RunFolderError
from aclearn.runs import TUNER_FILE
from aclearn.views import plot_tuner
from tests.support.tuned_runs import World, actors_of, member, tuned_config, two_is_best


def test_workers_of_the_trainer_are_told_and_every_decision_is_a_line(tmp_path) -> None:
    world = World(tuned_config(tmp_path), two_is_best)
    world.go_on(60.0)
    assert world.told()[:2] == [("t", 1), ("t", 2)]
    assert world.workers == {"t": 2}
    lines = world.lines()
    assert [line["verdict"] for line in lines[:3]] == ["baseline", "kept", "accepted"]
    # the second heartbeat is the first with more learned steps, settle_s, every_s
    assert lines[0]["time_s"] == pytest.approx(100.0 + 0.5 + 0.5 + 2.0)
    assert lines[2]["counts"] == lines[2]["kept"] == {"trainers": 2}
    # relative change of 1000/s over 600/s, of which the prior of both takes a little
    assert lines[2]["change"] == pytest.approx(1000 / 600 - 1, abs=0.03)
    assert lines[-1]["state"] == "frozen"
    gauges = world.tuning.gauges()
    assert gauges["tuner_trainers"] == 2.0
    assert gauges["tuner_rate"] == pytest.approx(1000.0, rel=0.01)
    assert gauges["tuner_temperature"] == 0.0
    assert gauges["tuner_frozen"] == 1.0
    assert gauges["tuner_baseline"] == lines[-1]["baseline"]
    assert gauges["tuner_noise"] == lines[-1]["noise"]
    assert gauges["tuner_verdicts"] == Counter(line["verdict"] for line in lines)
    assert "2 trainers are best" in world.notes[-1]
    world.tuning.close()


def test_each_decision_is_shown_once_under_its_number_in_the_log(tmp_path) -> None:
    world = World(tuned_config(tmp_path), two_is_best)
    world.go_on(60.0)
    world.tuning.close()
    again = World(tuned_config(tmp_path), two_is_best)  # counts on
    again.go_on(60.0)
    again.tuning.close()
    lines, shown = again.lines(), [*world.shown, *again.shown]
    assert len(world.shown) < len(lines)
    assert [line["decision"] for line in lines] == list(range(1, len(lines) + 1))
    assert [number for number, _ in shown] == list(range(1, len(lines) + 1))
    for line, (_, scalars) in zip(lines, shown, strict=True):
        [numbers] = scalars.values()
        assert numbers["verdict"] == {line["verdict"].replace(" ", "_"): 1.0}
        for name in ("counts", "kept", "rate", "window_s", "change", "temperature"):
            assert numbers[name] == line[name]
        assert numbers["frozen"] == (line["state"] == "frozen")


@pytest.mark.parametrize(
    ("counts", "inference", "fixed"),
    [
        ("[trainers]", "local", {"predictors": 0, "actors": 2}),
        ("[actors]", "local", {"predictors": 0, "trainers": 1}),
        ("[predictors]", "predictor", {"trainers": 1, "actors": 2}),
        ("[predictors, trainers, actors]", "predictor", {}),
    ],
)
def test_the_log_has_also_the_counts_that_are_not_tuned(
    tmp_path, counts: str, inference: str, fixed: dict
) -> None:
    config = tuned_config(tmp_path, counts=counts, inference=inference)
    world = World(config, lambda workers, actors: 500.0)
    if inference == "predictor":
        world.members.append(member("predictor-0", "p"))
        world.workers["p"] = 1
    world.go_on(10.0)
    assert world.lines() != []
    for line in world.lines():
        assert line["fixed"] == fixed
        assert {**line["fixed"], **line["counts"]}.keys() == {"predictors", "trainers", "actors"}
    world.tuning.close()


def test_nothing_is_measured_before_every_actor_is_there(tmp_path) -> None:
    world = World(tuned_config(tmp_path), two_is_best)
    late = world.members.pop()
    world.go_on(40.0)
    assert world.lines() == []
    world.members.append(late)
    world.go_on(10.0)
    # the heartbeat at 40.25 s is the first to be looked at, the next rises; settle_s, every_s
    assert world.lines()[0]["time_s"] == pytest.approx(100.0 + 40.5 + 0.5 + 2.0)
    assert not any("begins with" in note for note in world.notes)
    world.tuning.close()


def test_an_actor_that_never_comes_keeps_the_tuner_off_for_a_minute(tmp_path) -> None:
    world = World(tuned_config(tmp_path), two_is_best)
    world.members.pop()
    world.go_on(70.0)
    # the first heartbeat at 0.25 s, a minute; the next heartbeat rises, settle_s, every_s
    assert world.lines()[0]["time_s"] == pytest.approx(100.0 + 60.25 + 0.25 + 0.5 + 2.0)
    assert "begins with 1 of 2 actors" in world.notes[0]
    world.tuning.close()


def test_a_restarted_role_gets_the_count_again_and_so_does_one_that_does_not_acknowledge(
    tmp_path,
) -> None:
    world = World(tuned_config(tmp_path), two_is_best)
    world.go_on(60.0)
    told = len(world.messages)
    world.members[0], world.workers = member("trainer-0", "u"), {"u": 1}
    world.rate = lambda workers, actors: 1000.0
    world.deaf = True
    world.go_on(2.0)
    assert world.told()[told:] == [("u", 2)] * 4  # every half second
    world.deaf = False
    world.go_on(2.0)
    assert world.workers == {"u": 2}
    world.tuning.close()


def test_a_count_that_a_role_never_takes_over_is_given_up_and_reported(tmp_path) -> None:
    world = World(tuned_config(tmp_path), two_is_best)
    world.deaf = True
    world.go_on(45.0)
    assert [line["verdict"] for line in world.lines()][:3] == ["baseline", "kept", "given up"]
    assert any("2 trainers given up" in note for note in world.notes)
    assert world.tuning.gauges()["tuner_trainers"] == 1.0
    world.tuning.close()


def _peak(count: int, best: int) -> float:
    return 300.0 * min(count, best) - 100.0 * max(0, count - best)


def test_each_predictor_gets_the_count_and_it_counts_when_all_have_it(tmp_path) -> None:
    config = tuned_config(tmp_path, counts="[predictors]", inference="predictor")
    world = World(config, lambda workers, actors: _peak(min(workers["p"], workers["q"]), 2))
    world.members += [member("predictor-0", "p"), member("predictor-1", "q")]
    world.workers = {"p": 1, "q": 1, "t": 1}
    world.go_on(60.0)
    assert {("p", 2), ("q", 2)} <= set(world.told())
    assert all(receiver != "t" for receiver, _ in world.told())
    assert world.workers["p"] == world.workers["q"] == 2
    world.tuning.close()


def test_only_the_supervisor_gets_the_count_of_actors(tmp_path) -> None:
    config = tuned_config(tmp_path, counts="[actors]")
    world = World(config, lambda workers, actors: _peak(actors, 3))
    assert world.actors_wanted == 2
    world.go_on(80.0)
    assert world.actors_wanted == 3
    assert world.messages == []
    world.tuning.close()


def test_actors_that_leave_are_not_measured_with_those_that_stay(tmp_path) -> None:
    config = tuned_config(tmp_path, counts="[actors]")
    # two are best, and an actor takes four seconds to leave
    world = World(config, lambda workers, actors: 1000.0 - 300.0 * abs(actors - 2))
    world.leaves_within_s = 4.0
    world.go_on(400.0)
    rates = {line["counts"]["actors"]: set() for line in world.lines()}
    for line in world.lines():
        if line["rate"] is not None:
            rates[line["counts"]["actors"]].add(round(line["rate"], -1))
    true = {1: {700}, 2: {1000}, 3: {700}, 4: {400}}
    assert len(rates) >= 3
    assert rates == {count: true[count] for count in rates}
    assert world.actors_wanted == 2
    world.tuning.close()


def test_a_run_that_goes_on_with_fewer_actors_waits_for_the_others_to_leave(tmp_path) -> None:
    config = tuned_config(tmp_path, counts="[actors]")
    world = World(config, lambda workers, actors: 1000.0 - 300.0 * abs(actors - 2))
    world.members = [member("trainer-0", "t"), *actors_of(4)]  # as many as are configured, say
    world.leaves_within_s = 4.0
    world.go_on(12.0)
    first = world.lines()[0]
    assert (first["counts"], round(first["rate"], -1)) == ({"actors": 2}, 1000)
    world.tuning.close()


def _world_in_a_trial(folder) -> World:
    """Two actors are kept, and a count is tried that only a whole window shows to be better."""
    world = World(tuned_config(folder, counts="[actors]"), _two_is_worst)
    while world.actors_wanted == 2:
        world.go_on(0.25)
    return world


def _two_is_worst(workers, actors) -> float:
    return 1000.0 + 50.0 * (actors != 2)


@pytest.mark.parametrize("heartbeats", [True, False], ids=["later", "before_their_first_heartbeat"])
def test_a_trial_of_which_two_actors_die_is_given_up(tmp_path, heartbeats: bool) -> None:
    world = _world_in_a_trial(tmp_path)
    trial = world.actors_wanted
    # an actor with a last heartbeat has not died
    world.heartbeat(world.members[1], final=True)
    for incarnation in ("b0", "b1", "b2"):
        assert world.actors_wanted == trial
        world.start_again("actor-0", incarnation)
        if not heartbeats:
            world.silent.add(incarnation)
        world.go_on(0.5)
    last = world.lines()[-1]
    assert (last["verdict"], last["counts"]) == ("given up", {"actors": trial})
    assert world.actors_wanted == 2
    world.tuning.close()


def test_a_trial_is_judged_when_no_death_in_its_window_can_be_unknown(tmp_path) -> None:
    world = _world_in_a_trial(tmp_path)
    began, trial = len(world.lines()), world.actors_wanted
    world.go_on(1.0)
    world.silent.add("a0")  # it has died
    world.go_on(10.0)  # windows have 2 s
    assert len(world.lines()) == began
    assert world.actors_wanted == trial
    # its successor says hello, and a new window begins
    world.start_again("actor-0", "b0")
    world.go_on(0.5)
    [line] = world.lines()[began:]
    assert (line["verdict"], line["counts"]) == ("discarded", {"actors": trial})
    world.go_on(4.0)
    judged = world.lines()[began + 1]
    assert (judged["verdict"], judged["counts"]) == ("accepted", {"actors": trial})
    # 0.5 s to settle and its 2 s after the discarded one, which was read with the hello
    assert judged["time_s"] - line["time_s"] == pytest.approx(2.5, abs=0.5)
    assert judged["window_s"] == pytest.approx(2.0, abs=0.5)
    world.tuning.close()


@pytest.mark.parametrize(
    ("heartbeats_every_s", "late_s"),
    # 0.5 s is what is configured, and half as much again is not late yet
    [(0.5, 0.0), (3.0, 2.25)],
)
def test_a_verdict_is_no_later_than_the_heartbeats_are(
    tmp_path, heartbeats_every_s, late_s
) -> None:
    world = _world_in_a_trial(tmp_path)
    began, trial = len(world.lines()), world.actors_wanted
    world.silent |= {"a0", "a1", "a2"}  # the test sends their heartbeats
    begins = world.clock.now
    while len(world.lines()) == began:
        for actor in world.members[1:]:
            world.heartbeat(actor)
        world.go_on(heartbeats_every_s)
    judged = world.lines()[began]
    assert (judged["verdict"], judged["counts"]) == ("accepted", {"actors": trial})
    # a sample, 0.5 s to settle, a window of 2 s, and what the heartbeat is late
    assert judged["time_s"] - 100.0 - begins <= 0.25 + 0.5 + 2.0 + late_s + 0.25


def test_an_actor_that_was_started_by_hand_is_not_the_launcher_s_to_follow(tmp_path) -> None:
    config = tuned_config(tmp_path, counts="[actors]")
    world = World(config, lambda workers, actors: _peak(actors, 4))
    world.by_hand = [member("actor-70", "h")]
    world.members += world.by_hand
    world.go_on(300.0)
    lines = world.lines()
    assert "adopted" not in {line["verdict"] for line in lines}
    # three of the launcher's and the one started by hand
    assert world.actors_wanted == 3
    assert max(line["counts"]["actors"] for line in lines) == 4
    world.tuning.close()


@pytest.mark.parametrize("objective", ["learned_steps", "tps"])
def test_the_objective_is_chosen(tmp_path, objective: str) -> None:
    world = World(tuned_config(tmp_path, objective=objective), lambda workers, actors: 0.0)
    member, counter = world.members[0], 0
    for _ in range(8):
        world.clock.now += 0.5
        counter += 50
        other = "batches" if objective == "learned_steps" else "learned_steps"
        mine = "batches" if objective == "tps" else "learned_steps"
        world.heartbeat(member, counters={mine: counter, other: 7}, gauges={"workers": 1.0})
        world.look()
    assert world.tuning.gauges()["tuner_rate"] == pytest.approx(100.0)
    world.tuning.close()


def test_a_run_that_goes_on_starts_from_what_it_kept(tmp_path) -> None:
    config = tuned_config(tmp_path)
    first = World(config, two_is_best)
    first.go_on(60.0)
    first.tuning.close()
    first.memory.path.unlink()
    with (first.folder.path / TUNER_FILE).open("a") as log:
        log.write('{"time_s": 1')  # the rest of a killed process's line
    again = World(config, two_is_best)
    assert again.tuning.gauges()["tuner_trainers"] == 2.0
    again.go_on(10.0)
    assert len(again.lines()) > 2  # every line is complete
    again.tuning.close()


@pytest.mark.parametrize(
    ("written", "trainers", "temperature"),
    [
        *((f'{{"temperature": {t}}}', 3, t) for t in (0.25, 0, 0.5)),
        # hotter than tuner.temperature, or none
        *((f'{{"temperature": {t}}}', 3, 0.5) for t in ("0.51", "-0.1", "NaN", "Infinity")),
        *((f'{{"temperature": {t}}}', 3, 0.5) for t in ("null", '"0.25"', "[0.25]")),
        ('{"kept": {"trainers": 2}}', 2, 0.5),
        # below 1, above tuner.max_trainers, no count, or of others
        *((f'{{"kept": {{"trainers": {n}}}}}', 3, 0.5) for n in ("0", "-1", "4", "2.0", '"2"')),
        *((f'{{"kept": {{"trainers": {n}}}}}', 3, 0.5) for n in ("null", "true")),
        *((f'{{"kept": {kept}}}', 3, 0.5) for kept in ("null", "3", "[2]", "{}")),
        *((f'{{"kept": {{{n}"actors": 2}}}}', 3, 0.5) for n in ("", '"trainers": 2, ')),
        *((f'{{"decision": {n}}}', 3, 0.5) for n in ('"7"', "-7", "null", "1.5")),
    ],
)
def test_of_a_log_only_what_can_be_is_continued(tmp_path, written, trainers, temperature) -> None:
    config = tuned_config(tmp_path)
    changes = {
        "trainer": config.trainer.model_copy(update={"workers": 3}),
        "tuner": config.tuner.model_copy(update={"temperature": 0.5}),
    }
    config = config.model_copy(update=changes)
    world = World(config, two_is_best)
    world.tuning.close()
    (world.folder.path / TUNER_FILE).write_text(f"{written}\n")
    again = World(config, two_is_best)
    gauges = again.tuning.gauges()
    assert (gauges["tuner_trainers"], gauges["tuner_temperature"]) == (trainers, temperature)
    again.go_on(5.0)
    assert again.lines()[1]["decision"] == 1
    again.tuning.close()


def test_a_run_too_short_for_a_window_remembers_nothing_and_its_plot_says_why(tmp_path) -> None:
    world = World(tuned_config(tmp_path), two_is_best)
    world.go_on(2.5)  # the counter rises at 0.5 s; settle_s 0.5, every_s 2
    world.tuning.close()
    assert world.lines() == []
    assert not world.memory.path.exists()
    with pytest.raises(RunFolderError, match="has no reading yet: no window has ended"):
        plot_tuner(world.folder.path, tmp_path / "tuner.png")


def test_there_is_no_tuner_where_there_is_nothing_to_tune(tmp_path) -> None:
    assert World(tuned_config(tmp_path / "a", enabled="false"), None).tuning is None
    with pytest.raises(ConfigError, match="no predictors to change"):
        tuned_config(tmp_path / "b", counts="[predictors]")
    assert not (tmp_path / "a" / "r" / TUNER_FILE).exists()


def test_an_actor_that_died_and_is_not_started_again_is_no_surplus_for_long(tmp_path) -> None:
    world = World(tuned_config(tmp_path, counts="[actors]"), lambda workers, actors: 1000.0)
    world.go_on(1.0)
    # a member until it was silent for too long
    dead = member("actor-2", "dead")
    world.by_hand, world.silent = [dead], {"dead"}
    world.members.append(dead)
    world.go_on(60.0)
    verdicts = {line["verdict"] for line in world.lines()}
    assert verdicts & {"baseline", "kept"} and "adopted" not in verdicts
    world.tuning.close()
