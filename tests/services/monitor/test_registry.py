"""Members of a run: joining, revisions and silence."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aclearn.config import MAX_PROCESSES
from aclearn.wire import AllowedKey, Peer, Peers, decode, encode
from services.monitor.registry import Member, Registry


def _member(name: str, incarnation: str, **changes: object) -> Member:
    fields = {
        "role": name.split("-")[0],
        "number": int(name.split("-")[1]),
        "incarnation": incarnation,
        "routing_id": incarnation.encode(),
        "endpoints": {},
    }
    return Member(**{**fields, **changes})  # type: ignore[arg-type]


def _names(registry: Registry) -> list[tuple[str, str]]:
    return [(member.name, member.incarnation) for member in registry.members]


def test_members_are_listed_by_role_and_number() -> None:
    registry = Registry(silent_after_s=10)
    for name in ("trainer-0", "actor-10", "predictor-0", "actor-9"):
        assert registry.hello(_member(name, f"i-{name}"), 0.0) is None
    assert [name for name, _ in _names(registry)] == [
        "actor-9",
        "actor-10",
        "predictor-0",
        "trainer-0",
    ]


def test_a_name_stays_with_a_process_that_lives_and_goes_to_the_next_when_it_is_not_heard() -> None:
    registry = Registry(silent_after_s=60)
    first = _member("trainer-0", "a", pid=17, host="box")
    registry.hello(first, 0.0)
    second = _member("trainer-0", "b")
    assert registry.taken_by(second, 1.9) == (
        "trainer-0 is process 17 on box, which lives; this one waits until that has left. Give "
        "each process a --name of its own"
    )
    registry.heard("a", 2.0)
    assert registry.taken_by(_member("trainer-0", "b"), 3.9) is not None
    assert registry.taken_by(_member("trainer-0", "a"), 3.9) is None
    assert registry.taken_by(_member("actor-0", "b"), 3.9) is None
    assert registry.taken_by(second, 4.1) is None
    assert registry.hello(second, 4.1) == first
    assert _names(registry) == [("trainer-0", "b")]
    # the first one was only stopped, and must wait when it is back
    assert "which lives" in str(registry.taken_by(_member("trainer-0", "a"), 5.0))
    registry.leave("b")
    assert registry.taken_by(_member("trainer-0", "a"), 5.0) is None


def test_numbers_are_the_lowest_free_ones_of_a_role_and_stay_with_their_process() -> None:
    registry = Registry(silent_after_s=60)
    registry.hello(_member("actor-1", "named"), 0.0)
    given = [registry.hand_out(incarnation, "actor", 0.0) for incarnation in "abca"]
    assert given == [0, 2, 3, 0]
    assert registry.hand_out("p", "predictor", 0.0) == 0
    for incarnation, number in zip("abc", given, strict=False):
        registry.hello(_member(f"actor-{number}", incarnation), 0.0)
        assert registry.hand_out(incarnation, "actor", 1.0) == number
    registry.leave("b")
    assert registry.hand_out("d", "actor", 1.0) == 2
    assert registry.hand_out("e", "actor", 1.0) == 4
    # a named process cannot have a number that was given to one which is still starting
    assert "actor-2 was given to a process that is starting" in str(
        registry.taken_by(_member("actor-2", "other"), 1.0)
    )
    assert registry.taken_by(_member("actor-2", "d"), 1.0) is None
    # it may be dead: a process with --name takes the number, and it gets another one
    other = _member("actor-2", "other")
    assert registry.taken_by(other, 6.1) is None
    assert registry.hand_out("f", "actor", 6.1) == 5
    registry.hello(other, 6.1)
    assert "actor-2 is process" in str(registry.taken_by(_member("actor-2", "d"), 6.2))
    assert registry.hand_out("d", "actor", 6.2) == 6


def test_numbers_that_aclearn_train_gives_itself_are_not_handed_out() -> None:
    registry = Registry(silent_after_s=60, first_numbers={"actor": 4})
    assert [registry.hand_out(i, "actor", 0.0) for i in "ab"] == [4, 5]
    assert registry.hand_out("c", "compressor", 0.0) == 0


def test_numbers_for_processes_that_never_come_cost_no_memory() -> None:
    registry = Registry(silent_after_s=60)
    for i in range(MAX_PROCESSES + 3000):
        registry.hand_out(f"ghost-{i}", "actor", float(i) / 10_000)
    assert registry.hand_out("good", "actor", 3.0) < MAX_PROCESSES + 2


def test_a_run_is_full_at_its_bound_but_takes_one_that_was_started_again() -> None:
    registry = Registry(silent_after_s=10, most=(512, "monitor.max_processes"))
    for number in range(512):
        newcomer = _member(f"actor-{number}", f"i{number}")
        assert registry.refusal(newcomer) is None
        registry.hello(newcomer, 0.0)
    late = _member("actor-512", "late")
    words = "the run has 512 processes, the most by monitor.max_processes; raise that"
    assert words in str(registry.refusal(late))
    assert registry.refusal(_member("actor-7", "again")) is None
    assert registry.refusal(_member("actor-7", "i7")) is None
    registry.leave("i3")
    assert registry.refusal(late) is None


@pytest.mark.parametrize(
    ("endpoints", "least"),
    [
        ({"e" * 200 + str(i): "t" * 250 for i in range(8)}, 10),
        ({"predictions": "tcp://node-123.cluster.example.org:54321"}, 150),
    ],
)
def test_a_process_that_the_list_of_all_has_no_room_for_is_refused(endpoints, least) -> None:
    registry = Registry(silent_after_s=10)
    admitted = []
    for number in range(400):
        newcomer = _member(
            f"predictor-{number}", f"{number:064}", endpoints=endpoints, server_key="k" * 40
        )
        if registry.refusal(newcomer) is None:
            registry.hello(newcomer, 0.0)
            admitted.append(newcomer)
    assert "does not fit one message" in str(registry.refusal(newcomer))
    assert registry.refusal(_member("actor-0", "a")) is None
    assert registry.refusal(admitted[0]) is None
    peers = [
        Peer(m.role, m.name, m.incarnation, m.endpoints, m.generation, m.server_key)
        for m in registry.members
    ]
    assert len(peers) == len(admitted) > least
    told = Peers(1, peers, [f"{number:064}" for number in range(64)])
    decode(encode(told, run="r" * 1024, incarnation="s" * 1024, sequence=2**63 - 1))


def test_the_revision_counts_changes_of_roles_that_serve_only() -> None:
    registry = Registry(silent_after_s=10)
    registry.hello(_member("actor-0", "a"), 0.0)
    registry.leave("a")
    assert registry.revision == 0
    registry.hello(_member("trainer-0", "t", endpoints={"weights": "ipc:///a"}), 0.0)
    assert registry.revision == 1
    registry.leave("t")
    assert registry.revision == 2


def test_saying_hello_again_changes_the_revision_only_with_other_endpoints() -> None:
    registry = Registry(silent_after_s=10)
    registry.hello(_member("trainer-0", "t", endpoints={"weights": "ipc:///a"}), 0.0)
    assert registry.revision == 1
    registry.hello(_member("trainer-0", "t", endpoints={"weights": "ipc:///a"}), 5.0)
    assert registry.revision == 1
    assert registry.take_out_silent(14.0) == []
    registry.hello(_member("trainer-0", "t", endpoints={"weights": "ipc:///b"}), 6.0)
    assert registry.revision == 2


def test_heartbeats_keep_everything_of_a_member_but_the_time() -> None:
    registry = Registry(silent_after_s=10)
    member = _member("trainer-0", "t", endpoints={"weights": "ipc:///a"})
    registry.hello(member, 1.0)
    revision = registry.revision
    assert registry.heard("t", 7.5) == registry.get("t") == member
    assert registry.take_out_silent(17.0) == []
    assert registry.revision == revision


def test_the_unknown_are_not_heard() -> None:
    registry = Registry(silent_after_s=10)
    assert not registry.heard("nobody", 1.0)
    assert registry.members == ()
    assert registry.revision == 0


def test_a_member_that_leaves_is_gone_and_leaving_twice_is_nothing() -> None:
    registry = Registry(silent_after_s=10)
    member = _member("actor-0", "a")
    registry.hello(member, 1.0)
    assert registry.leave("a") == member
    assert registry.members == ()
    assert registry.leave("a") is None


def test_one_that_joined_first_and_is_heard_hides_no_silent_one() -> None:
    registry = Registry(silent_after_s=10)
    for number, name in enumerate("abc"):
        registry.hello(_member(f"actor-{number}", name), float(number))
    registry.heard("b", 8.0)
    registry.heard("a", 9.0)
    assert [member.incarnation for member in registry.take_out_silent(12.5)] == ["c"]
    assert [member.incarnation for member in registry.take_out_silent(18.5)] == ["b"]


def test_the_silent_are_taken_out_after_the_bound_and_not_at_it() -> None:
    registry = Registry(silent_after_s=10)
    registry.hello(_member("actor-0", "a"), 0.0)
    registry.hello(_member("actor-1", "b"), 0.0)
    registry.heard("b", 4.0)
    assert registry.take_out_silent(10.0) == []
    assert [member.name for member in registry.take_out_silent(10.5)] == ["actor-0"]
    assert _names(registry) == [("actor-1", "b")]
    assert registry.take_out_silent(10.5) == []


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["hello", "heartbeat", "leave", "look"]),
            st.integers(0, 2),
            st.integers(0, 5),
        ),
        max_size=30,
    )
)
def test_the_revision_grows_exactly_when_the_membership_changes(events) -> None:
    registry, now = Registry(silent_after_s=3), 0.0
    for what, number, incarnation in events:
        now += 1.0
        before, revision = set(_names(registry)), registry.revision
        if what == "hello":
            endpoints = {"predictions": "ipc:///p"}
            name = f"predictor-{number}"
            registry.hello(_member(name, f"{number}-{incarnation}", endpoints=endpoints), now)
        elif what == "heartbeat":
            registry.heard(f"{number}-{incarnation}", now)
        elif what == "leave":
            registry.leave(f"{number}-{incarnation}")
        else:
            registry.take_out_silent(now)
        after = set(_names(registry))
        assert (registry.revision > revision) == (after != before)
        names = [name for name, _ in after]
        assert len(names) == len(set(names))


def test_a_role_with_an_exact_number_of_processes_gets_the_place_of_one_that_is_gone() -> None:
    registry = Registry(silent_after_s=60)
    give = partial(registry.hand_out, role="trainer", most=2)
    assert [give(each, now=0.0) for each in "abc"] == [0, 1, None]
    for number, incarnation in enumerate("ab"):
        registry.hello(Member("trainer", number, incarnation, b"", {}), 0.0)
    registry.heard("a", 5.0)
    assert give("c", now=1.9) is None
    assert give("c", now=5.0) == 1  # b has been silent
    # a process that dies before its hello keeps its number for a while only
    assert give("d", now=6.0) is None
    assert give("d", now=36.0) == 0


def test_heartbeats_of_many_are_rarer_and_those_of_servers_and_the_wait_for_a_name_follow() -> None:
    registry = Registry(silent_after_s=60, heartbeats_per_s=100)
    trainer = _member("trainer-0", "t", endpoints={"weights": "ipc:///a"})
    registry.hello(trainer, 0.0)
    for number in range(49):
        registry.hello(_member(f"actor-{number}", f"a{number}"), 0.0)
    assert registry.every_s() == 0.5
    for number in range(49, 300):
        registry.hello(_member(f"actor-{number}", f"a{number}"), 0.0)
    [actor] = [each for each in registry.members if each.name == "actor-7"]
    assert (registry.every_s(), registry.every_s(actor), registry.every_s(trainer)) == (3, 3, 0.5)
    # four heartbeats, and two seconds at least
    assert registry.taken_by(_member("actor-7", "new"), 11.9) is not None
    assert registry.taken_by(_member("actor-7", "new"), 12.1) is None
    assert registry.taken_by(_member("trainer-0", "new"), 2.1) is None
    for number in range(300, 2000):
        registry.hello(_member(f"actor-{number}", f"a{number}"), 0.0)
    assert registry.every_s() == 15.0  # four are within the silence of a dead process


def test_a_member_keeps_its_name_for_the_interval_that_it_was_told_when_the_run_shrinks() -> None:
    registry = Registry(silent_after_s=60, heartbeats_per_s=1)
    for number in range(8):
        registry.hello(_member(f"actor-{number}", f"a{number}"), 0.0)
        registry.heard(f"a{number}", 1.0)
    for number in range(7):
        registry.leave(f"a{number}")
    assert registry.every_s() == 1.0  # until now it was told 8
    assert registry.taken_by(_member("actor-7", "new"), 32.9) is not None
    assert registry.taken_by(_member("actor-7", "new"), 33.1) is None
    registry.heard("a7", 40.0)
    assert registry.taken_by(_member("actor-7", "new"), 44.1) is None


class Plain:
    """Members as a list of name, incarnation, key and the time that they were heard."""

    def __init__(self) -> None:
        self.there: list[tuple[str, int, str, str, float]] = []

    def without(self, incarnation: str) -> None:
        self.there = [each for each in self.there if each[2] != incarnation]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["hello", "heard", "leave", "number", "silent"]),
            st.sampled_from(["actor", "predictor"]),
            st.integers(0, 4),
            st.integers(0, 5),
        ),
        max_size=50,
    )
)
def test_what_is_known_of_the_members_is_that_of_a_plain_list_of_them(events) -> None:
    registry, plain, now, given = Registry(silent_after_s=4), Plain(), 0.0, dict[str, tuple]()
    for what, role, number, who in events:
        now += 1.0
        incarnation, key = f"i{who}", f"key-{who % 2}"
        if what == "hello":
            registry.hello(_member(f"{role}-{number}", incarnation, key=key), now)
            plain.without(incarnation)
            kept = [each for each in plain.there if each[:2] != (role, number)]
            plain.there = [*kept, (role, number, incarnation, key, now)]
            given = {i: n for i, n in given.items() if i != incarnation and n != (role, number)}
        elif what == "heard":
            known = registry.heard(incarnation, now) is not None
            assert known == any(each[2] == incarnation for each in plain.there)
            plain.there = [(*e[:4], now) if e[2] == incarnation else e for e in plain.there]
        elif what == "leave":
            registry.leave(incarnation)
            plain.without(incarnation)
        elif what == "number":
            own = [e[1] for e in plain.there if (e[2], e[0]) == (incarnation, role)]
            before = given.get(incarnation)
            taken = {e[1] for e in plain.there if e[0] == role}
            taken |= {n for i, (r, n) in given.items() if r == role and i != incarnation}
            lowest = next(n for n in range(99) if n not in taken)
            if before is not None and before[0] == role:
                lowest = before[1]
            expected = own[0] if own else lowest
            assert registry.hand_out(incarnation, role, now) == expected
            if not own:
                given[incarnation] = role, expected
        else:
            silent = {e[2] for e in plain.there if now - e[4] > 4}
            assert {m.incarnation for m in registry.take_out_silent(now)} == silent
            plain.there = [e for e in plain.there if e[2] not in silent]
        assert [(m.role, m.number, m.incarnation) for m in registry.members] == sorted(
            each[:3] for each in plain.there
        )
        assert set(registry.roles) == {each[0] for each in plain.there}
        allowed = AllowedKey("p" * 40, key, ["actor"], processes=9)
        others = [e for e in plain.there if e[3] == key and e[2] != incarnation]
        others = [e for e in others if e[:2] != (role, number)]
        assert registry.with_key(allowed, incarnation, role, number) == len(others)
