"""The rounds of a population as data."""

from __future__ import annotations

from aclearn.population import DEAD, Lineage, Origin, Round


def played(round_: Round, fitness: list[float], error: float = 0.5) -> Round:
    """The round after all that wait have been judged."""
    for member in round_.waiting:
        mean = fitness[member.number]
        if mean == DEAD:
            member = member.died("diverged", "20 updates", member.until, 0)
        else:
            member = member.judged(mean, error, member.until + 3, f"{round_.number:06}-9", 0)
        round_ = round_.with_member(member)
    return round_


def begun(*fitness: float) -> Lineage:
    """A population after its first round; 100 steps a round, and three more."""
    lineage = Lineage.begin([{"a": float(n)} for n in range(len(fitness))], round_steps=100)
    return lineage.with_now(played(lineage.now, list(fitness)))


def stay(round_: Round) -> list[Origin]:
    return [Origin.stays(each) for each in round_.standings]


def following(round_: Round, origins: list[Origin], stop_after: int | None = None) -> Round:
    return round_.next(origins, round_steps=100, stop_after=stop_after)


def test_a_round_ends_so_many_steps_after_the_last_one() -> None:
    now = following(begun(1.0, 2.0).now, stay(begun(1.0, 2.0).now))
    assert [(each.until, each.status) for each in now.members] == [(203, "waiting")] * 2
    assert now.number == 2 and not now.begun


def test_a_copied_member_goes_on_with_the_peak_of_its_new_weights() -> None:
    first = begun(1.0, 8.0).now
    origins = stay(first)
    origins[0] = Origin(1, 1, {"a": 7.0})
    child = following(first, origins).members[0]
    assert (child.weights_from, child.values, child.peak.fitness) == (1, {"a": 7.0}, 8.0)
    assert following(first, origins).copies == 1
    # a parent that falls gives its line's best, and the rounds below it
    second = played(following(first, stay(first)), [5.0, 6.0])
    peak = following(second, origins).members[0].peak
    assert (peak.fitness, peak.rounds_below) == (8.0, 1)


def test_a_member_whose_fitness_has_collapsed_is_stopped_and_one_within_the_noise_is_not() -> None:
    round_ = begun(10.0, 10.0).now
    statuses = []
    for _ in range(3):  # clearly below 10: by more than 0.71
        round_ = played(following(round_, stay(round_), stop_after=2), [5.0, 9.5])
        statuses.append([each.status for each in round_.members])
    assert statuses == [["trained"] * 2, ["trained"] * 2, ["stopped", "trained"]]
    assert round_.members[0].fitness == 5.0 and round_.waiting == []
    # a selector's values are not those that it was trained with
    after = following(round_, [Origin(n, 1, {"a": 7.0}) for n in range(2)], stop_after=2).members
    assert [(each.values["a"], each.values_from) for each in after] == [(0.0, 0), (7.0, 1)]


def test_a_stopped_member_is_trained_again_with_other_weights() -> None:
    round_ = begun(10.0, 10.0).now
    for _ in range(3):
        round_ = played(following(round_, stay(round_), stop_after=2), [5.0, 9.5])
    origins = stay(round_)
    origins[0] = Origin(1, 1, {"a": 1.0})
    assert following(round_, origins, stop_after=2).members[0].status == "waiting"


def test_a_stopped_member_goes_on_with_a_larger_stop_after() -> None:
    round_ = begun(10.0, 10.0).now
    for _ in range(3):
        round_ = played(following(round_, stay(round_), stop_after=2), [5.0, 9.5])
    for stop_after, status in ((2, "stopped"), (3, "waiting"), (None, "waiting")):
        assert following(round_, stay(round_), stop_after).members[0].status == status
    resumed = played(following(round_, stay(round_), stop_after=3), [5.0, 9.5])
    assert resumed.members[0].peak.rounds_below == 3
    assert following(resumed, stay(resumed), stop_after=3).members[0].status == "stopped"


def test_a_dead_member_stays_dead_without_other_weights_and_is_counted_once() -> None:
    lineage = begun(DEAD, 1.0)
    for _ in range(2):
        lineage = lineage.with_next(following(lineage.now, stay(lineage.now)))
        lineage = lineage.with_now(played(lineage.now, [DEAD, 1.0]))
    assert [each.members[0].status for each in lineage.rounds] == ["diverged"] * 3
    assert lineage.deaths == 1
    origins = stay(lineage.now)
    origins[0] = Origin(1, 1, {"a": 1.0})
    lineage = lineage.with_next(following(lineage.now, origins))
    lineage = lineage.with_now(played(lineage.now, [DEAD, 1.0]))
    assert lineage.deaths == 2


def test_the_best_is_kept_until_a_better_one_comes() -> None:
    lineage = begun(1.0, 8.0)
    best = lineage.new_best()
    assert (best.member, best.round, best.fitness, best.checkpoint) == (1, 1, 8.0, "000001-9")
    lineage = lineage.model_copy(update={"best": best})
    for fitness, expected in (([2.0, 7.0], None), ([9.0, 0.0], 0)):
        after = lineage.with_next(following(lineage.now, stay(lineage.now)))
        after = after.with_now(played(after.now, fitness))
        new = after.new_best()
        assert (new and new.member) == expected


def test_a_file_holds_it() -> None:
    lineage = begun(DEAD, 8.0)
    text = lineage.model_dump_json()
    assert Lineage.model_validate_json(text) == lineage
    assert lineage.now.standings[0].is_dead and [m.number for m in lineage.now.ranked] == [1]
