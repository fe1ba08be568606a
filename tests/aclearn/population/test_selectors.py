"""Selectors: who is replaced by whom, and by what."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aclearn.config.population import SelectorConfig
from aclearn.errors import ConfigError
from aclearn.population import (
    DEAD,
    Lineage,
    Origin,
    Parameter,
    SearchSpace,
    Selector,
    Standing,
    best_first,
    checked,
    load_selector,
)
from aclearn.population.file import read_lineage, write_lineage
from aclearn.population.mf_pbt import MultipleFrequencies
from aclearn.population.unselected import NoSelection, RandomSearch

SPACE = SearchSpace.of([Parameter("a", 1e-4, 1e-1), Parameter("b", 0.0, 1.0)])
COPYING = ("genetic", "pbt", "mf_pbt")


def selector(name: str, **arguments: Any) -> Selector:
    return load_selector(SelectorConfig.model_validate({name: arguments}))


def standings(
    fitness: Sequence[float], errors: float = 0.0, values: Mapping[str, float] | None = None
) -> list[Standing]:
    """Members with these means; each has values of its own."""
    return [
        Standing(n, mean, errors, values or {"a": 1e-3 * (n + 1), "b": n / 100})
        for n, mean in enumerate(fitness)
    ]


def select(name: str, members: Sequence[Standing], *, round_: int = 4, seed: int = 0) -> Any:
    made = selector(name).select(round_, members, SPACE, np.random.default_rng(seed))
    return checked(made, members, SPACE, name=name)


def copied(origins: Sequence[Origin]) -> dict[int, int]:
    return {n: each.weights_from for n, each in enumerate(origins) if each.weights_from != n}


# --- the released Podracer code copied the two worst members over the others: argsort ascends


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", COPYING)
def test_better_members_are_copied_over_worse_ones_and_the_best_stays(name: str, seed: int) -> None:
    fitness = list(np.random.default_rng(seed).permutation(12).astype(float))
    origins = select(name, standings(fitness), seed=seed)
    assert copied(origins)
    for child, parent in copied(origins).items():
        assert fitness[parent] > fitness[child]
    best = int(np.argmax(fitness))
    assert origins[best] == Origin.stays(standings(fitness)[best])
    assert int(np.argmin(fitness)) in copied(origins)


def test_the_first_is_the_best() -> None:
    order = [each.member for each in best_first(standings([1.0, 3.0, DEAD, 2.0]))]
    assert order == [1, 3, 0, 2]


# --- noise


@pytest.mark.parametrize("name", COPYING)
def test_a_difference_below_its_standard_error_copies_nothing(name: str) -> None:
    means = [float(n) for n in range(12)]  # at most 11 apart; the error of a difference is 11.3
    assert copied(select(name, standings(means, errors=8.0))) == {}
    assert copied(select(name, standings(means, errors=0.5)))


def test_a_genetic_population_of_equals_goes_on_searching_but_for_the_elite() -> None:
    members = standings([1.0] * 8)
    origins = [select("genetic", members, seed=seed) for seed in range(5)]
    changed = {n for of in origins for n, each in enumerate(of) if each.values != members[n].values}
    assert changed == {2, 3, 4, 5, 6, 7} and not any(map(copied, origins))


# --- dead members


@pytest.mark.parametrize("name", COPYING)
@pytest.mark.parametrize("round_", [1, 4])
def test_a_dead_member_is_replaced_at_once_and_nobody_copies_it(name: str, round_: int) -> None:
    means = [5.0] * 12
    means[3] = means[11] = DEAD  # mf_pbt: one in each sub-population
    origins = select(name, standings(means), round_=round_)
    assert set(copied(origins)) == {3, 11}
    assert not {3, 11} & set(copied(origins).values())


@pytest.mark.parametrize("name", [*COPYING, "random_search", "none"])
def test_nobody_can_be_copied_where_all_are_dead(name: str) -> None:
    members = standings([DEAD] * 8)
    assert select(name, members) == [Origin.stays(each) for each in members]


@pytest.mark.parametrize("name", ["random_search", "none"])
def test_without_selection_everybody_stays(name: str) -> None:
    members = standings([1.0, 9.0, DEAD, 3.0])
    assert select(name, members) == [Origin.stays(each) for each in members]


# --- hyper-parameters


@pytest.mark.parametrize("name", COPYING)
def test_hyper_parameters_of_copies_are_other_ones_within_their_ranges(name: str) -> None:
    members = standings([float(n) for n in range(12)])
    seen = set()
    for seed in range(20):
        for n, origin in enumerate(select(name, members, seed=seed)):
            if origin.weights_from != n:
                seen.add(origin.values["a"])
                assert 1e-4 <= origin.values["a"] <= 1e-1 and 0.0 <= origin.values["b"] <= 1.0
    assert len(seen) >= 4


def test_pbt_multiplies_by_its_two_factors() -> None:
    members = standings([1.0, 2.0, 3.0, 4.0, 5.0], values={"a": 1e-2, "b": 0.5})
    seen = {
        round(select("pbt", members, seed=seed)[0].values[key] / {"a": 1e-2, "b": 0.5}[key], 6)
        for seed in range(20)
        for key in ("a", "b")
    }
    assert seen == {0.8, 1.2}


def test_genetic_children_have_hyper_parameters_of_both_parents() -> None:
    genetic = selector("genetic", mutation=0.0, crossover=0.5, parents=0.25)
    members = standings([float(n) for n in range(8)])
    mixed = set()
    for seed in range(30):
        for n, origin in enumerate(genetic.select(1, members, SPACE, np.random.default_rng(seed))):
            if origin.weights_from != n:
                of = [next(m.member for m in members if m.values[k] == v)
                      for k, v in origin.values.items()]  # fmt: skip
                assert set(of) <= {6, 7}  # the best quarter
                mixed.add(tuple(of))
    assert {(6, 7), (7, 6)} & mixed


@pytest.mark.parametrize("name", COPYING)
def test_a_population_without_hyper_parameters_copies_weights(name: str) -> None:
    members = [Standing(n, float(n), 0.0, {}) for n in range(8)]
    space = SearchSpace.of([])
    origins = selector(name).select(4, members, space, np.random.default_rng(0))
    assert copied(origins) and all(each.values == {} for each in origins)


def test_first_values_are_drawn_but_for_none() -> None:
    rng = np.random.default_rng(0)
    narrow = SearchSpace.of([Parameter("a", 1e-4, 1e-1, first=(1e-4, 1e-3))])
    drawn = [v["a"] for v in selector("pbt").first(50, narrow, rng)]
    assert len(set(drawn)) == 50 and 1e-4 <= min(drawn) < 2e-4 and 9e-4 < max(drawn) <= 1e-3
    assert max(v["a"] for v in RandomSearch().first(50, narrow, rng)) > 1e-2
    assert NoSelection().first(2, SPACE, rng) == [{}, {}]


@pytest.mark.parametrize("name", COPYING)
def test_the_same_generator_gives_the_same_children(name: str) -> None:
    members = standings([float(n) for n in range(12)])
    assert select(name, members, seed=3) == select(name, members, seed=3)


# --- several frequencies


def test_a_slow_sub_population_evolves_in_its_own_rounds_only() -> None:
    members = standings([float(n) for n in range(8)] * 2)  # two equal ones
    for round_ in (1, 2, 3, 4):
        changed = set(copied(select("mf_pbt", members, round_=round_)))
        assert bool(changed & set(range(8, 16))) == (round_ == 4)
        assert changed & set(range(8))


def test_migrants_bring_their_hyper_parameters_from_slower_sub_populations_only() -> None:
    made = MultipleFrequencies(frequencies=(1, 4), factor=1.25)
    fast, slow = [50.0, 40.0, 30.0, 0.0], [100.0, 90.0, 10.0, 0.0]
    members = standings([*fast, *slow])
    origins = made.select(4, members, SPACE, np.random.default_rng(0))
    # the fast one's third takes the slow one's first in full
    assert origins[2] == Origin(4, 4, members[4].values)
    # the slow one's third takes the fast one's first, with the values of its own first
    assert origins[6] == Origin(0, 4, members[4].values)
    # losers copy winners of their own
    assert (origins[3].weights_from, origins[7].weights_from) == (0, 4)
    assert origins[3].values["a"] / members[0].values["a"] in (pytest.approx(0.8), 1.25)
    assert [origins[n] for n in (0, 1, 4, 5)] == [Origin.stays(members[n]) for n in (0, 1, 4, 5)]


# --- a selector of the user's


def test_the_documented_selector_copies_the_best_over_the_worst(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "populations.md").read_text("utf-8")
    [code] = re.findall(r"```python\n# my_selector.py\n(.*?)```", page, re.DOTALL)
    (tmp_path / "my_selector.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    made = load_selector(SelectorConfig.model_validate("my_selector:BestOverWorst"))
    members = standings([3.0, 9.0, 5.0, 1.0])
    origins = made.select(1, members, SPACE, np.random.default_rng(0))
    assert copied(checked(origins, members, SPACE, name="mine")) == {3: 1}
    assert copied(made.select(1, standings([3.0] * 4), SPACE, np.random.default_rng(0))) == {}


def test_members_may_be_named_by_numbers_of_numpy(tmp_path: Path) -> None:
    members = standings([1.0, 2.0])
    named = [Origin(np.int64(1), np.int64(0), members[0].values), Origin.stays(members[1])]
    lineage = Lineage.begin([each.values for each in members], round_steps=5)
    origins = checked(named, members, SPACE, name="mine")
    lineage = lineage.with_next(lineage.now.next(origins, round_steps=5, stop_after=None))
    write_lineage(tmp_path, lineage)
    assert read_lineage(tmp_path).now.members[0].weights_from == 1


@pytest.mark.parametrize(
    ("origins", "words"),
    [
        ([], "an Origin for each of 3 members"),
        (["a", "b", "c"], "an Origin for each of 3 members"),
        ([(2, 0), (1, 1), (2, 2)], "no living member; expected one of [0, 1]"),
        ([(9, 0), (1, 1), (2, 2)], "the weights of 9"),
        ([(0.0, 0), (1, 1), (2, 2)], "the weights of 0.0"),
        ([(0, 9), (1, 1), (2, 2)], "of 9, which is no member; expected one of [0, 1, 2]"),
        ([(0, None), (1, 1), (2, 2)], "the hyper-parameters of None"),
        ([(0, 1.0), (1, 1), (2, 2)], "the hyper-parameters of 1.0"),
        ([(1, 1, {"a": 5.0, "b": 0.0}), (1, 1), (2, 2)], "a: expected a value from 0.0001 to 0.1"),
    ],
)
def test_what_a_selector_of_the_users_may_not_give_is_refused(origins: list, words: str) -> None:
    members = standings([1.0, 2.0, DEAD])
    given = [
        Origin(each[0], each[1], each[2] if len(each) > 2 else members[n].values)
        if isinstance(each, tuple)
        else each
        for n, each in enumerate(origins)
    ]
    with pytest.raises(ConfigError, match="selector 'mine'") as refused:
        checked(given, members, SPACE, name="mine")
    assert words in str(refused.value)
