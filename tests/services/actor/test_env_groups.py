"""The actor's seeds."""

from __future__ import annotations

from services.actor.env_groups import environment_seed


def test_no_two_environments_of_a_run_nor_of_its_restarts_share_a_seed() -> None:
    # the largest run: 500 actors with 64 groups of 64 environments, each seeded with its place
    actors = [range(n * 4096, (n + 1) * 4096) for n in (0, 1, 250, 499)]
    seeds = [
        environment_seed(run_seed, first, restarts) + b
        for run_seed in (1, 2)
        for restarts in range(4)
        for actor in actors
        for first in actor[::64]
        for b in range(64)
    ]
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert environment_seed(3, 5) == 300_014  # the first start has the plain seed
    by_run = [set(seeds[i * len(seeds) // 2 : (i + 1) * len(seeds) // 2]) for i in range(2)]
    assert [len(run) for run in by_run] == [len(seeds) // 2] * 2
