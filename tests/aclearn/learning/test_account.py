"""The account of steps: by hand, against a model of each single step, and false claims."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aclearn.errors import CheckpointError
from aclearn.learning import Accounts, StepAccount
from aclearn.learning.account import AccountError
from aclearn.types import BYTES_OF_AN_ACTOR, pack_seen
from aclearn.wire import Heartbeat, decode, encode


def restored(state: Mapping[str, Any]) -> StepAccount:
    account = StepAccount()
    account.restore(state)
    return account


def _numbers(account: StepAccount) -> tuple[int, int, dict[str, int], int]:
    account.check()
    return (
        account.env_steps,
        account.learned_steps,
        account.dropped_steps,
        account.in_flight_steps,
    )


def test_the_fates_of_steps_by_hand() -> None:
    account = StepAccount()
    # 0..10 went missing before the first unroll
    assert account.admit("a", 1, 10, 40, {"env_fault": 2}, 28) is None
    # 40..80 went missing with 9 dropped steps in it; 80..120 has 3 more
    assert account.admit("a", 3, 80, 120, {"env_fault": 13, "reset": 1}, 37) is None
    dropped = {"env_fault": 13, "reset": 1, "lost": 10 + 31}
    assert _numbers(account) == (120, 0, dropped, 65)
    account.learned(25)
    account.dropped("lag", 15)
    assert _numbers(account) == (120, 25, {**dropped, "lag": 15}, 25)


@pytest.mark.parametrize(
    ("before", "after", "dropped", "steps"),
    [
        (39, 80, {"env_fault": 5}, 41),  # begins before what was seen
        (40, 80, {"env_fault": 5}, 41),  # more valid steps than steps
        (40, 80, {"env_fault": 5}, 39),  # one step is nowhere
        (40, 80, {"env_fault": 6}, 40),  # one step is counted twice
        (40, 80, {"env_fault": 4}, 40),  # a cumulative count went back
        (40, 80, {}, 40),  # a cumulative count disappeared
        (40, 30, {"env_fault": 5}, 0),  # steps went back within the unroll
        (40, 80, {"env_fault": 5}, -1),
        (50, 90, {"env_fault": 16}, 40),  # more dropped than the gap has steps
        (40, 2**53 + 41, {"env_fault": 5}, 2**53 + 1),  # beyond what JSON carries exactly
        (2**53 - 1000, 2**53 - 960, {"env_fault": 5}, 40),  # leaves no room for other actors
        (40, 2**41, {"env_fault": 5 + 2**41 - 80}, 40),
    ],
)
def test_counters_that_do_not_add_up_are_refused_and_not_counted(
    before: int, after: int, dropped: dict[str, int], steps: int
) -> None:
    account = StepAccount()
    account.admit("a", 0, 0, 40, {"env_fault": 5}, 35)
    state = account.state()
    assert account.admit("a", 1, before, after, dropped, steps) == "inconsistent_counter"
    assert account.state() == state


def test_a_refused_unroll_shows_as_a_gap_before_the_next_good_one() -> None:
    account = StepAccount()
    account.admit("a", 0, 0, 40, {}, 40)
    assert account.admit("a", 1, 40, 80, {}, 39) == "inconsistent_counter"
    assert account.admit("a", 2, 80, 120, {}, 40) is None
    assert _numbers(account) == (120, 0, {"lost": 40}, 80)


def test_a_closed_incarnation_is_fenced_whether_it_was_seen_or_not() -> None:
    account = StepAccount()
    account.admit("a", 0, 0, 40, {}, 40)
    for name in "aab":
        account.close(name)
    assert {account.admit(name, 9, 40, 80, {}, 40) for name in "ab"} == {"closed_incarnation"}
    assert _numbers(account) == (40, 0, {}, 40) and account.opened == {}


@pytest.mark.parametrize(
    "damage",
    [
        {"env_steps": 41},
        {"in_flight_steps": "many"},
        {"opened": []},
        {"opened": {"a": {"sequence": 0, "env_steps": 40}}},
        {"closed": [["x", 1]]},
        {"dropped_steps": {"lag": -5}, "learned_steps": 5},
    ],
)
def test_a_saved_account_that_does_not_balance_is_refused(damage: dict[str, object]) -> None:
    account = StepAccount()
    account.admit("a", 0, 0, 40, {}, 40)
    with pytest.raises(CheckpointError, match="step account in the checkpoint"):
        restored({**account.state(), **damage})
    with pytest.raises(CheckpointError, match="KeyError"):
        restored({})
    with pytest.raises(CheckpointError, match="policy: expected 'default', got 'other'"):
        restored(StepAccount(policy="other").state())


def test_newer_counts_of_accounts_that_cannot_be_asked_drop_what_nobody_knows() -> None:
    older = [StepAccount(), StepAccount()]
    for number, account in enumerate(older):
        account.admit(f"actor-{number}", 1, 0, 50, {}, 50)
        account.learned(20)
        account.dropped("policy_lag", 10)  # 20 stay in flight
    # given 130 of 160 later steps, then 160 - 130 - 20 have no fate that is known
    later = restored(StepAccount.reckoned([a.state() for a in older], 160, 130))
    assert _numbers(later) == (160, 130, {"policy_lag": 20, "lost": 10}, 0)


def test_learning_more_than_is_in_flight_is_a_bug_told_with_the_numbers() -> None:
    account = StepAccount()
    account.admit("a", 0, 0, 40, {}, 40)
    with pytest.raises(AccountError, match=r"41 steps cannot be learned: 40 are in flight"):
        account.learned(41)
    with pytest.raises(AccountError, match=r"-1 steps cannot be dropped as 'lag'"):
        account.dropped("lag", -1)
    assert _numbers(account) == (40, 0, {}, 40)


def test_the_heartbeat_counters_name_every_open_and_the_latest_closed_incarnations() -> None:
    account = StepAccount()
    account.admit("a", 0, 0, 40, {}, 40)
    for number in range(300):
        account.admit(f"c{number}", 0, 0, 2, {}, 2)
        account.close(f"c{number}")
    counters, _, seen = account.counters()
    assert counters["env_steps"] == 640
    assert counters["in_flight_steps"] == 640
    assert (seen["a"], seen["c299"]) == (40, 2)
    assert "c0" not in seen
    assert len(seen) == 1 + 256


def test_memory_is_bounded_and_the_account_exact_with_many_incarnations_and_reasons() -> None:
    account = StepAccount()
    for number in range(5000):
        account.admit(f"c{number}", 0, 0, 1, {}, 1)
        account.close(f"c{number}")
    for name in "ab":
        account.admit(name, 0, 0, 50, {f"{name}{n}": 1 for n in range(50)}, 0)
    assert len(account.state()["closed"]) == 4096
    assert len(account.dropped_steps) <= 65
    assert account.env_steps == 5100
    account.check()


def test_actors_that_come_and_go_for_ever_leave_the_account_exact_and_the_heartbeat_small() -> None:
    account = StepAccount(most_open=512)
    account.admit("stays", 0, 0, 1, {}, 1)
    for number in range(2000):
        assert account.admit(f"{number:032x}", 0, 5, 25, {}, 20) is None
        assert account.admit("stays", number + 1, number + 1, number + 2, {}, 1) is None
    assert len(account.opened) == 512
    assert "stays" in account.opened
    # the one silent longest is closed: the newest 511 and the one that continued are open
    assert account.admit(f"{1489:032x}", 1, 25, 45, {}, 20) is None
    assert account.admit(f"{1488:032x}", 1, 25, 45, {}, 20) == "closed_incarnation"
    account.check()
    assert account.env_steps == 2000 * 25 + 2001 + 20
    assert account.dropped_steps == {"lost": 2000 * 5}
    assert len(account.counters()[2]) == 512 + 256
    again = restored(account.state())
    assert again.counters()[2]["stays"] == 2001


@pytest.mark.parametrize(
    ("incarnation", "dropped"),
    [("x" * 49, {}), ("x", {"r" * 65: 1}), ("x", {str(n): 0 for n in range(65)})],
)
def test_names_that_no_heartbeat_could_carry_are_refused(incarnation, dropped) -> None:
    account = StepAccount()
    assert account.admit(incarnation, 0, 0, 6, dropped, 5) == "long_names"
    assert _numbers(account) == (0, 0, {}, 0)


def test_the_longest_names_that_are_allowed_fit_into_a_heartbeat() -> None:
    account = StepAccount()
    for actor in range(5000):
        reason = f"{'r' * 60}{actor % 64:03}"
        assert account.admit(f"{'x' * 44}{actor:04}", 1, 0, 6, {reason: 1}, 5) is None
    counters, dropped, seen = account.counters()
    assert len(dropped) == 64
    names, steps = pack_seen(seen)
    beat = Heartbeat(counters, dropped=dropped, actors={"a": names}, actor_steps={"a": steps})
    told = decode(encode(beat, run="r", incarnation="x", sequence=1)).message
    assert told.seen() == seen and names.nbytes + steps.nbytes == 5000 * BYTES_OF_AN_ACTOR


def test_a_reason_drops_what_is_admitted_and_a_bound_comes_before_it() -> None:
    account = StepAccount()
    assert account.admit("a", 0, 0, 40, {}, 40, "lag") == "lag"
    assert account.admit("a", 0, 0, 40, {}, 40, "lag") == "duplicate"
    account.reached = "max_updates"
    assert account.admit("a", 1, 40, 80, {}, 40, "lag") == "max_updates"
    assert _numbers(account) == (80, 0, {"lag": 40, "max_updates": 40}, 0)


@pytest.mark.parametrize("reason", ["quota", "bad_unroll", "unknown_policy"])
@pytest.mark.parametrize(
    ("before", "after", "dropped"),
    [(900_000_000, 900_000_040, {}), (40, 900_000_040, {"env_fault": 900_000_000 - 40})],
)
def test_the_counts_of_a_refused_unroll_cannot_end_the_run(reason, before, after, dropped) -> None:
    account = StepAccount(max_env_steps=1000)
    account.admit("a", 0, 0, 40, {}, 40)
    state = account.state()
    assert account.admit("a", 1, before, after, dropped, 40, reason) == "inconsistent_counter"
    assert account.state() == state and account.reached is None and not account.coming > 1000
    # an honest one that follows is counted; what was lost shows before the next good one
    assert account.admit("a", 1, 40, 80, {}, 40, reason) == reason
    assert account.admit("a", 3, 120, 160, {}, 40, reason) == "inconsistent_counter"
    assert account.admit("a", 4, 160, 200, {}, 40) is None
    assert _numbers(account) == (200, 0, {reason: 40, "lost": 80}, 80)


def test_from_the_unroll_on_that_reaches_the_run_s_length_the_others_are_dropped() -> None:
    account, told = StepAccount(max_env_steps=7), []
    for n in range(4):
        if n == 3:  # a later trainer, with this account
            state, account = account.state(), StepAccount(max_env_steps=7)
            account.restore(state)
        reason = account.admit("a", n, 6 * n, 6 * n + 6, {}, 6)
        told.append((reason, account.reached))
        # from the first one on: the actor may have filled another meanwhile
        assert Accounts({"default": account}).last
    bound = "max_env_steps"
    assert told == [(None, None), (None, bound), (bound, bound), (bound, bound)]
    assert _numbers(account) == (24, 0, {bound: 12, "trainer_restart": 12}, 0)


def test_a_trainer_s_own_steps_are_in_flight_also_in_the_batch_that_reaches_the_bound() -> None:
    account = StepAccount(max_env_steps=70)
    for number in range(2):
        account.produced("me", 40)
        assert account.reached == (None, "max_env_steps")[number]
    assert _numbers(account) == (80, 0, {}, 80)
    account.close_all()
    assert account.admit("me", 2, 80, 120, {}, 40) == "closed_incarnation"


@pytest.mark.parametrize("reached", ["max_updates", "max_env_steps", None])
def test_what_a_batch_has_neither_learned_nor_dropped_at_its_end_is_dropped(reached) -> None:
    account = StepAccount()
    account.admit("a", 0, 0, 100, {}, 100)
    with account.batch(40) as batch:
        batch.learned(25)
        batch.dropped("nonfinite_gradient", 5)
        account.reached = reached
    reason = "max_updates" if reached == "max_updates" else "shutdown"
    dropped = {"nonfinite_gradient": 5, reason: 10}
    assert _numbers(account) == (100, 25, dropped, 60)
    with pytest.raises(ZeroDivisionError), account.batch(60) as batch:
        batch.learned(20)
        raise ZeroDivisionError
    assert _numbers(account) == (100, 45, {**dropped, "worker_failed": 40}, 0)


_small = st.integers(-3, 60)
_messages = st.tuples(
    st.sampled_from("ab"),
    _small,
    _small,
    _small,
    st.dictionaries(st.sampled_from(["x", "lost"]), _small, max_size=2),
    _small,
)


@given(st.lists(st.one_of(_messages, st.tuples(st.sampled_from("ab"))), max_size=30))
@settings(max_examples=120, deadline=None)
def test_no_sequence_of_lies_unbalances_the_account(messages: list[tuple]) -> None:  # type: ignore[type-arg]
    account = StepAccount()
    for message in messages:
        before = account.state()
        if len(message) == 1:
            account.close(*message)
        elif account.admit(*message) is not None:
            assert account.state() == before
        account.check()
        assert account.env_steps >= before["env_steps"]
    restored(account.state()).check()


# The model below knows the fate of each single step, and checks all of them each time.


@dataclass
class _Actor:
    """A correct actor: the drop reason of each of its steps, if any."""

    steps: list[str | None] = field(default_factory=list)
    sequence: int = 0


@dataclass(frozen=True)
class _Sent:
    incarnation: str
    sequence: int
    before: int
    after: int
    dropped: dict[str, int]
    valid: int


@dataclass
class _Model:
    fates: dict[tuple[str, int], str] = field(default_factory=dict)
    sequences: dict[str, int] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)

    def count(self, fate: str) -> int:
        return sum(1 for each in self.fates.values() if each == fate)

    def move(self, count: int, fate: str) -> None:
        flying = [step for step, each in self.fates.items() if each == "in_flight"]
        for step in flying[:count]:
            self.fates[step] = fate


class AccountAgainstModel(RuleBasedStateMachine):
    """Actors step, lose, send twice and are fenced; a trainer learns, saves and restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.account = StepAccount()
        self.model = _Model()
        self.actors: dict[str, _Actor] = {}
        self.sent: list[_Sent] = []
        self.saved: tuple[str, _Model] | None = None

    @rule(name=st.sampled_from("abc"), steps=st.lists(st.sampled_from([None, None, "x", "y"])))
    def step(self, name: str, steps: list[str | None]) -> None:
        actor = self.actors.setdefault(name, _Actor())
        before = len(actor.steps)
        actor.steps += steps
        dropped = Counter(reason for reason in actor.steps if reason)
        valid = sum(1 for reason in steps if reason is None)
        self.sent.append(
            _Sent(name, actor.sequence, before, len(actor.steps), dict(dropped), valid)
        )
        actor.sequence += 1

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        """Any message, new or old: in order, late, again."""
        at = data.draw(st.integers(0, len(self.sent) - 1) | st.just(len(self.sent) - 1))
        message = self.sent[at]
        name = message.incarnation
        answer = self.account.admit(
            name, message.sequence, message.before, message.after, message.dropped, message.valid
        )
        if name in self.model.closed:
            assert answer == "closed_incarnation"
        elif message.sequence <= self.model.sequences.get(name, -1):
            assert answer == "duplicate"
        else:
            assert answer is None
            self.model.sequences[name] = message.sequence
            for index in range(message.after):
                reason = self.actors[name].steps[index]
                fate = reason or ("lost" if index < message.before else "in_flight")
                self.model.fates.setdefault((name, index), fate)

    @rule(name=st.sampled_from("abc"))
    def close(self, name: str) -> None:
        self.account.close(name)
        self.model.closed.add(name)

    @rule(share=st.floats(0, 1))
    def learn(self, share: float) -> None:
        steps = int(share * self.model.count("in_flight"))
        self.account.learned(steps)
        self.model.move(steps, "learned")

    @rule(share=st.floats(0, 1))
    def drop(self, share: float) -> None:
        steps = int(share * self.model.count("in_flight"))
        self.account.dropped("lag", steps)
        self.model.move(steps, "lag")

    @rule()
    def save(self) -> None:
        self.saved = json.dumps(self.account.state()), copy.deepcopy(self.model)

    @precondition(lambda self: self.saved)
    @rule()
    def restart(self) -> None:
        assert self.saved is not None
        text, model = self.saved
        self.account = restored(json.loads(text))
        self.model = copy.deepcopy(model)
        self.model.move(len(self.model.fates), "trainer_restart")

    @invariant()
    def both_count_the_same(self) -> None:
        self.account.check()
        fates = Counter(self.model.fates.values())
        assert self.account.env_steps == len(self.model.fates)
        assert self.account.learned_steps == fates.pop("learned", 0)
        assert self.account.in_flight_steps == fates.pop("in_flight", 0)
        assert self.account.dropped_steps == dict(fates)


TestAccountAgainstModel = AccountAgainstModel.TestCase
TestAccountAgainstModel.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
