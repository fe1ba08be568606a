"""Groups of ranks: what they exchange, and how they end."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from aclearn.errors import RankLost
from aclearn.learning.moments import Moments
from aclearn.learning.ranks import (
    ALONE,
    Group,
    LockstepRanks,
    add_up,
    average,
    gather_bytes,
    joined_moments,
    least,
)
from tests.support.ranks import run_ranks
from tests.support.waiting import patience

_CPU = torch.device("cpu")


def _exchanged(group: Group) -> list[object]:
    rank = group.rank
    tensors = [torch.full((2, 3), 1.0 + rank), torch.tensor([rank]), torch.tensor(0.5)]
    add_up(group, tensors)
    means = [torch.tensor([1.0 + rank, 4.0]), torch.tensor(rank)]
    average(group, means)
    samples = torch.arange(8.0)[: 2 + 3 * rank].unsqueeze(-1)
    [moments, none] = joined_moments(
        group, [Moments.of(samples + rank), Moments.none((1,)) if rank else Moments.of(samples)]
    )
    return [
        [tensor.tolist() for tensor in tensors],
        [tensor.tolist() for tensor in means],
        least(group, torch.tensor(7 - rank)) if group.size > 1 else 7,
        gather_bytes(group, b"x" * rank, _CPU),
        [float(moments.count), float(moments.mean), float(moments.variance)],
        float(none.count),
    ]


@pytest.mark.parametrize("kind", ["lockstep", "gloo"])
def test_ranks_exchange_sums_means_moments_and_bytes(kind: str) -> None:
    made = run_ranks(kind, 3, _exchanged)
    joined = torch.cat([torch.arange(8.0)[: 2 + 3 * rank] + rank for rank in range(3)]).double()
    for sums, means, smallest, texts, moments, count in made:
        assert sums == [[[6.0] * 3] * 2, [3], 1.5]
        assert means[0] == [2.0, 4.0]
        assert smallest == 5 and texts == [b"", b"x", b"xx"] and count == 2.0
        expected = [len(joined), float(joined.mean()), float(joined.var(correction=0))]
        assert moments == pytest.approx(expected)
    assert [means[1] for _, means, *_ in made] == [0, 1, 2]  # no floats


def test_a_rank_alone_keeps_what_it_has() -> None:
    sums, means, *_ = _exchanged(ALONE)
    assert sums == [[[1.0] * 3] * 2, [0], 0.5] and means == [[1.0, 4.0], 0]


def test_a_rank_notices_at_once_that_another_one_has_ended() -> None:
    ended = threading.Event()

    def run(group: Group) -> str:
        group.gather(torch.zeros(2))
        if group.rank == 1:
            ended.set()
            return ""
        ended.wait(10.0)
        began = time.monotonic()
        with pytest.raises(RankLost, match="rank 0 of 2 has lost another rank") as raised:
            group.gather(torch.zeros(2))
        assert time.monotonic() - began < 5.0 * patience()
        return str(raised.value)

    assert run_ranks("gloo", 2, run)[0]


def test_a_rank_that_hangs_is_given_up_after_a_while_and_for_good() -> None:
    over = threading.Event()

    def run(group: Group) -> int:
        group.gather(torch.zeros(2))
        if group.rank == 1:
            over.wait(20.0)
            return 0
        looks: list[int] = []
        group.watch(lambda: looks.append(len(looks)) or (len(looks) > 3 and group.hurry(0.01)))
        for words in ("no answer within 0.01 s", "no answer within 0.01 s"):
            with pytest.raises(RankLost, match=words):
                group.gather(torch.zeros(2))
        over.set()
        return len(looks)

    assert 3 < run_ranks("gloo", 2, run)[0] < 10  # the second time at once


def test_ranks_in_lockstep_run_in_order_and_lose_one_that_does_not_exchange() -> None:
    ranks, order = LockstepRanks(2), []

    def run(rank: int) -> str:
        for name in "ab":
            order.append(f"{name}{rank}")
            ranks.group(rank).gather(torch.zeros(1))
        if rank == 1:
            ranks.group(rank).gather(torch.zeros(1))
        return f"end {rank}"

    try:
        with pytest.raises(RankLost, match="rank 1 exchanged"):
            ranks.run({0: lambda: run(0), 1: lambda: run(1)})
        assert order == ["a0", "a1", "b0", "b1"]
        with pytest.raises(ValueError, match="on purpose"):
            ranks.run({0: lambda: run(0), 1: lambda: int("on purpose")})
        assert ranks.run({0: lambda: 3, 1: lambda: 4}) == {0: 3, 1: 4}
    finally:
        ranks.close()


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="NCCL needs two GPUs")
def test_two_gpus_exchange_over_nccl() -> None:
    def run(group: Group) -> list[float]:
        given = torch.tensor([1.0 + group.rank, 5.0], device=torch.device("cuda", group.rank))
        add_up(group, [given])
        return given.tolist()

    assert run_ranks("nccl", 2, run) == [[3.0, 10.0]] * 2
