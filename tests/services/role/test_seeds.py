"""Seeds of the starts of a run's roles."""

from __future__ import annotations

import itertools

import numpy as np

from services.role.seeds import Seeds, Use


def test_no_two_environments_of_a_start_share_a_seed_nor_do_two_starts() -> None:
    # the largest run: 500 actors with 64 groups of 64 environments
    def of_start(run: int, generation: int, start: int) -> range:
        seeds = Seeds(run, generation, start=start)
        firsts = [seeds.environments(first) for first in range(0, 500 * 4096, 4096)]
        # consecutive, whatever the actor's number
        assert firsts == list(range(firsts[0], firsts[0] + 500 * 4096, 4096))
        assert Seeds(run, generation, index=7, start=start).environments(0) == firsts[0]
        return range(firsts[0], firsts[-1] + 4096)

    ranges = [of_start(*place) for place in itertools.product((1, 2), (0, 1, 2), (0, 1, 2))]
    ranges.sort(key=lambda each: each.start)
    assert all(a.stop <= b.start for a, b in itertools.pairwise(ranges))
    assert ranges[0].start >= 0 and ranges[-1].stop <= 2**31


def test_environment_seeds_begin_again_before_31_bits_are_full() -> None:
    most = 2**31 - 2**16
    first = Seeds(1, 0).environments(0)
    assert Seeds(1, 0).environments(most - first) == 0
    assert Seeds(1, 0).environments(most - first - 1) == most - 1


def test_every_use_process_and_start_draws_other_numbers_and_the_same_again() -> None:
    places = list(itertools.product((1, 2), (0, 1), (0, 1), (0, 1, 2**32 - 1)))
    drawn = [
        int(Seeds(*place).generator(use, *which).integers(2**62))
        for place in places
        for use in Use
        for which in ((), (0, 1), (1, 1))
    ]
    assert len(set(drawn)) == len(drawn) == len(places) * len(Use) * 3
    assert Seeds(1, 2, 3, 4).generator(Use.ACTIONS).random() == (
        Seeds(1, 2, 3, 4).generator(Use.ACTIONS).random()
    )
    assert Seeds(1, 0).number(Use.RESIDENT) != Seeds(1, 1).number(Use.RESIDENT)
    assert 0 <= Seeds(1, 0).number(Use.RESIDENT) < 2**31
    assert np.dtype(np.int32).type(Seeds(1, 0).number(Use.RESIDENT)) > 0
