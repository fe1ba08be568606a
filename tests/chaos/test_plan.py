"""The plan of a chaos run."""

from itertools import islice

from tests.chaos.plan import KINDS, Cast, plan

_CAST = Cast(roles=("monitor-0", "trainer-0", "actor-0"), links=("unrolls", "weights"))


def _text(seed: int, rounds: int) -> str:
    return "\n".join(map(repr, islice(plan(seed, _CAST), rounds)))


def test_a_plan_is_decided_by_its_seed_and_is_the_same_on_every_machine():
    assert _text(1, 60) == _text(1, 60) != _text(2, 60)
    # a longer run begins as a shorter one
    assert _text(1, 60).startswith(_text(1, 20))
    # text that a person can compare with what another machine printed
    told = [", ".join(map(str, faults)) for faults in islice(plan(1, _CAST), 3)]
    assert told == [
        "cut_down unrolls for 3.9 s",
        "stop trainer-0 for 6.1 s",
        "mix weights for 4 s, cut_down weights for 1.5 s",
    ]


def test_every_kind_comes_before_one_comes_again_and_meets_every_role_and_connection():
    rounds = list(islice(plan(3, _CAST), 4 * len(KINDS)))
    first = [faults[0].kind for faults in rounds]
    for turn in range(4):
        assert sorted(first[turn * len(KINDS) : (turn + 1) * len(KINDS)]) == sorted(KINDS)
    every = [fault for faults in rounds for fault in faults]
    assert {fault.target for fault in every} == {*_CAST.roles, *_CAST.links, "disk"}
    assert all(KINDS[f.kind][0] <= f.for_s <= KINDS[f.kind][1] for f in every)
    # a full disk is full for 20 s, and something else happens meanwhile
    assert all(f.for_s == 20.0 for f in every if f.kind == "full_disk")
    assert all(len(faults) == 2 for faults in rounds if faults[0].kind == "full_disk")


def test_no_heartbeat_is_changed_on_its_way():
    cast = Cast(roles=("trainer-0",), links=("unrolls", "monitor"))
    rounds = islice(plan(3, cast), 8 * len(KINDS))
    kinds = {(fault.kind, fault.target) for faults in rounds for fault in faults}
    assert ("mix", "unrolls") in kinds and ("mix", "monitor") not in kinds
