"""Who is there: membership, generations and silence."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from aclearn.monitoring import Member, Registry
from aclearn.wire import Peer, Peers, decode, encode


def _member(name: str, incarnation: str, heard_at: float = 0.0, **changes: object) -> Member:
    fields = {
        "role": name.split("-")[0],
        "name": name,
        "incarnation": incarnation,
        "address": incarnation.encode(),
        "endpoints": {},
        "heard_at": heard_at,
    }
    return Member(**{**fields, **changes})  # type: ignore[arg-type]


def _names(registry: Registry) -> list[tuple[str, str]]:
    return [(member.name, member.incarnation) for member in registry.members]


def test_members_are_listed_by_role_and_name() -> None:
    registry = Registry(silent_after_s=10)
    for name in ("trainer-0", "actor-1", "predictor-0", "actor-0"):
        assert registry.hello(_member(name, f"i-{name}")) == []
    assert [name for name, _ in _names(registry)] == [
        "actor-0",
        "actor-1",
        "predictor-0",
        "trainer-0",
    ]
    assert registry.generation == 4


def test_a_second_process_of_one_name_replaces_the_first() -> None:
    registry = Registry(silent_after_s=10)
    first = _member("actor-0", "a")
    registry.hello(first)
    registry.hello(_member("actor-1", "b"))
    assert registry.hello(_member("actor-0", "c")) == [first]
    assert _names(registry) == [("actor-0", "c"), ("actor-1", "b")]
    assert registry.get("a") is None
    assert not registry.heard("a", 1.0)
    assert registry.generation == 3


def test_a_replaced_process_that_lives_is_told_who_took_its_place() -> None:
    registry = Registry(silent_after_s=10)
    registry.hello(_member("actor-0", "a"))
    assert registry.refusal("a", "actor-0") is None
    registry.hello(_member("actor-0", "c"))
    refusal = registry.refusal("a", "actor-0")
    assert refusal is not None
    assert "under the name actor-0" in refusal
    assert "--name" in refusal
    assert registry.refusal("c", "actor-0") is None


def test_a_run_is_full_with_512_processes_but_takes_one_that_was_started_again() -> None:
    registry = Registry(silent_after_s=10)
    for number in range(512):
        assert registry.refusal(f"i{number}", f"actor-{number}") is None
        registry.hello(_member(f"actor-{number}", f"i{number}"))
    refusal = registry.refusal("late", "actor-512")
    assert refusal is not None
    assert "512 processes" in refusal
    assert registry.refusal("again", "actor-7") is None
    assert registry.refusal("i7", "actor-7") is None
    registry.leave("i3")
    assert registry.refusal("late", "actor-512") is None


def test_the_longest_list_of_peers_can_be_sent() -> None:
    endpoints = {"actions": "tcp://node-123.cluster.example.org:54321"}
    peers = [Peer("actor", f"actor-{i}", f"{i:032x}", {}) for i in range(256)]
    peers += [Peer("predictor", f"predictor-{i}", f"{i:032x}", endpoints) for i in range(256)]
    decode(encode(Peers(1, peers), run="r" * 100, sender="s" * 32, sequence=1))


def test_saying_hello_again_changes_the_generation_only_with_other_endpoints() -> None:
    registry = Registry(silent_after_s=10)
    registry.hello(_member("trainer-0", "t", endpoints={"weights": "ipc:///a"}))
    assert registry.generation == 1
    registry.hello(_member("trainer-0", "t", 5.0, endpoints={"weights": "ipc:///a"}))
    assert registry.generation == 1
    member = registry.get("t")
    assert member is not None
    assert member.heard_at == 5.0
    registry.hello(_member("trainer-0", "t", 6.0, endpoints={"weights": "ipc:///b"}))
    assert registry.generation == 2


def test_beats_keep_everything_of_a_member_but_the_time() -> None:
    registry = Registry(silent_after_s=10)
    member = _member("trainer-0", "t", 1.0, endpoints={"weights": "ipc:///a"})
    registry.hello(member)
    assert registry.heard("t", 7.5)
    expected = _member("trainer-0", "t", 7.5, endpoints={"weights": "ipc:///a"})
    assert registry.get("t") == expected
    assert registry.generation == 1


def test_the_unknown_are_not_heard() -> None:
    registry = Registry(silent_after_s=10)
    assert not registry.heard("nobody", 1.0)
    assert registry.members == []
    assert registry.generation == 0


def test_who_leaves_is_gone_and_leaving_twice_is_nothing() -> None:
    registry = Registry(silent_after_s=10)
    member = _member("actor-0", "a")
    registry.hello(member)
    assert registry.leave("a") == member
    assert registry.members == []
    assert registry.generation == 2
    assert registry.leave("a") is None
    assert registry.generation == 2


def test_the_silent_are_taken_out_after_the_bound_and_not_at_it() -> None:
    registry = Registry(silent_after_s=10)
    registry.hello(_member("actor-0", "a", 0.0))
    registry.hello(_member("actor-1", "b", 0.0))
    registry.heard("b", 4.0)
    assert registry.take_out_silent(10.0) == []
    assert [member.name for member in registry.take_out_silent(10.5)] == ["actor-0"]
    assert _names(registry) == [("actor-1", "b")]
    assert registry.generation == 3
    assert registry.take_out_silent(10.5) == []
    assert registry.generation == 3


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["hello", "beat", "leave", "look"]),
            st.integers(0, 2),
            st.integers(0, 5),
        ),
        max_size=30,
    )
)
def test_the_generation_grows_exactly_when_the_membership_changes(events) -> None:
    registry, now = Registry(silent_after_s=3), 0.0
    for what, number, incarnation in events:
        now += 1.0
        before, generation = set(_names(registry)), registry.generation
        if what == "hello":
            registry.hello(_member(f"actor-{number}", f"{number}-{incarnation}", now))
        elif what == "beat":
            registry.heard(f"{number}-{incarnation}", now)
        elif what == "leave":
            registry.leave(f"{number}-{incarnation}")
        else:
            registry.take_out_silent(now)
        after = set(_names(registry))
        assert (registry.generation > generation) == (after != before)
        names = [name for name, _ in after]
        assert len(names) == len(set(names))
