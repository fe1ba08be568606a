"""check_unroll rejects an unroll that does not fit itself or the run's environment."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from aclearn.errors import WireError
from aclearn.learning import check_unroll, largest_unroll_bytes, too_old
from aclearn.types import (
    ActionSpec,
    EnvSpec,
    LeafSpec,
    ObservationSpec,
    PolicyVersion,
    UnrollSpec,
)
from aclearn.types.action_spec import ActionPart
from tests.support.messages import small_unroll

# The sample: a stack of 2 frames of 1x2x2 and flat joints, a reset at t=2, b=1, two chains.
SPEC = UnrollSpec(
    EnvSpec(
        ObservationSpec(
            {"screen": LeafSpec((2, 2, 2), "uint8", 2), "joints": LeafSpec((3,), "float32")}
        ),
        ActionSpec.discrete(3),
        masked=True,
    ),
    length=3,
    parameters=3,
    state=((4,), (2, 1)),
    policy="red.team-1",
)
# The smallest unroll: no stack, no state, no optional fields.
FLAT = UnrollSpec(
    EnvSpec(ObservationSpec({"joints": LeafSpec((3,), "float32")}), ActionSpec.discrete(3)), 3
)


FOREIGN = ": an array that unrolls of this run do not have"


@pytest.fixture
def unroll():
    return small_unroll()


@pytest.fixture
def flat_unroll(unroll):
    return dataclasses.replace(
        unroll,
        observations={"joints": unroll.observations["joints"]},
        history={},
        reset_index=None,
        reset_history={},
        chains=["none"],
        chain_index=None,
        behaviour_parameters=None,
        state=(),
        masks=None,
        policy="default",
    )


def refusal(unroll, spec):
    with pytest.raises(WireError) as caught:
        check_unroll(unroll, spec)
    assert caught.value.reason == "bad_unroll"
    return caught.value.detail


def changed(array, index, value):
    copy = array.copy()
    copy[index] = value
    return copy


def test_the_bytes_of_an_unroll_are_those_of_all_its_arrays(unroll, flat_unroll):
    # per step of one environment: action, log μ, reward, three flags; 3 parameters
    steps, versions = 3 * 2 * (4 + 4 + 4 + 3), 3 * 8
    joints, screen = 4 * 2 * 3 * 4, 4 * 2 * 4
    assert flat_unroll.nbytes == steps + versions + joints
    masks = 4 * 2 * 3  # of each observation, as many as there are of those
    resets, asked = 2 * 4 + 4 + 4, 3 * 2 * 12 + 2 * 16 + 2 * 8 + masks
    assert unroll.nbytes == flat_unroll.nbytes + screen + resets + asked + 3 * 2 * 4


def test_steps_are_counted_by_the_chain_that_chose_them(unroll, flat_unroll):
    assert unroll.steps_by_chain() == {"none": 2, "int8>onnx": 3}  # one of six is not valid
    assert flat_unroll.steps_by_chain() == {"none": 5}


def test_a_good_unroll_passes_with_stacked_images_and_with_flat_floats(unroll, flat_unroll):
    assert check_unroll(unroll, SPEC) is None
    assert check_unroll(flat_unroll, FLAT) is None
    changes = {
        "no resets": {"reset_index": None, "reset_history": {}},
        "rounded": {"behaviour_log_prob": changed(unroll.behaviour_log_prob, (1, 1), 1e-6)},
        "not allowed, in the one step that is not valid": {
            "masks": changed(unroll.masks, (1, 1), [True, False, True]),
            "actions": changed(unroll.actions, (1, 1), 1),
        },
    }
    for each in changes.values():
        assert check_unroll(dataclasses.replace(unroll, **each), SPEC) is None


def test_an_unroll_for_another_policy_is_refused_for_a_reason_of_its_own(unroll, flat_unroll):
    with pytest.raises(WireError, match=r"expected 'red\.team-1', got 'default'") as caught:
        check_unroll(dataclasses.replace(unroll, policy="default"), SPEC)
    assert caught.value.reason == "unknown_policy"


def test_more_environments_than_in_a_group_are_refused(unroll):
    bounded = dataclasses.replace(SPEC, most_rows=2)
    assert check_unroll(unroll, bounded) is None
    assert refusal(unroll, dataclasses.replace(SPEC, most_rows=1)) == (
        "actions: expected 1 to 1 environments (actors.envs_per_group), got 2"
    )


def test_the_largest_unroll_has_a_reset_at_every_step(unroll):
    T, B, K = 3, 2, 3 * 2
    observations = (T + 1) * B * (1 * 2 * 2 + 3 * 4)  # one frame of uint8, three floats
    older = (B + K) * 1 * 2 * 2
    steps = T * B * (4 + 4 + 4 + 1 + 1 + 1 + 4 + 3 * 4)  # the last two: chain, parameters
    others = 4 * K + 8 * T + B * 4 * (4 + 2 * 1) + (T + 1) * B * 3  # resets, versions, state, masks
    bounded = dataclasses.replace(SPEC, most_rows=B)
    assert largest_unroll_bytes(bounded) == observations + older + steps + others
    assert unroll.nbytes <= largest_unroll_bytes(bounded)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("actions", np.zeros((0, 2), np.int32), "expected 3 steps (actors.unroll_length), got 0"),
        ("actions", np.zeros((3, 0), np.int32), "expected 1 to 65536 environments"),
        ("rewards", np.zeros((2, 2), np.float32), "rewards: expected shape (3, 2), got (2, 2)"),
        ("env_steps_before", 67, "env_steps_after: less than env_steps_before"),
        ("history", {"screen": np.zeros((2, 2, 2, 2), np.uint8)}, "history.screen: expected shape"),
        ("history", {"screen": np.zeros((2, 1, 2, 2))}, "history.screen: expected uint8"),
        (
            "state",
            (np.zeros((2, 4), np.float32), np.full((2, 2, 1), np.inf, np.float32)),
            "state.1: NaN or beyond 1e+12",
        ),
        ("versions", np.zeros(2, np.int64), "versions: expected shape (3,), got (2,)"),
        ("versions", np.array([7, -1, 8]), "versions: expected values of at least 0"),
        ("chains", [], "chains: expected 1 to 6, got 0"),
        ("chains", ["a"] * 7, "chains: expected 1 to 6, got 7"),
        ("chains", ["none", "é" * 501], "chains: expected at most 1000 bytes each"),
        ("chain_index", None, "chain_index: missing"),
        (
            "chain_index",
            np.zeros((3, 1), np.int32),
            "chain_index: expected shape (3, 2), got (3, 1)",
        ),
        ("chain_index", np.full((3, 2), 2, np.int32), "chain_index: expected values from 0 to 1"),
        ("chain_index", np.full((3, 2), -1, np.int32), "chain_index: expected values from 0 to 1"),
        ("observations", {}, "observations.screen: missing"),
        ("history", {}, "history.screen: missing"),
        ("reset_index", None, f"reset_history{FOREIGN}"),
        ("reset_history", {}, "reset_history.screen: missing"),
        ("reset_index", np.array([1], np.int32), "reset_index: expected indices from 2 to 7"),
        ("reset_index", np.array([8], np.int32), "reset_index: expected indices from 2 to 7"),
        ("reset_index", np.array([-3], np.int32), "reset_index: expected indices from 2 to 7"),
        (
            "reset_index",
            np.array([4, 5], np.int32),
            "reset_history.screen: expected shape (2, 1, 2, 2)",
        ),
        ("behaviour_parameters", None, "behaviour_parameters: missing"),
        (
            "behaviour_parameters",
            np.zeros((3, 2, 4), np.float32),
            "behaviour_parameters: expected shape (3, 2, 3), got (3, 2, 4)",
        ),
        ("state", (), "state.0: missing"),
        (
            "state",
            (np.zeros((2, 4), np.float32),) * 3,
            f"state{FOREIGN}",
        ),
        (
            "state",
            (np.zeros((2, 4), np.float32), np.zeros((3, 2, 1), np.float32)),
            "state.1: expected shape (2, 2, 1), got (3, 2, 1)",
        ),
        ("masks", None, "masks: missing"),
        ("masks", np.ones((3, 2, 3), np.bool_), "masks: expected shape (4, 2, 3), got (3, 2, 3)"),
        ("masks", np.ones((4, 2, 2), np.bool_), "masks: expected shape (4, 2, 3), got (4, 2, 2)"),
        ("masks", np.zeros((4, 2, 3), np.bool_), "masks: an action that was not allowed"),
    ],
)
def test_a_field_that_does_not_fit_is_named(unroll, name, value, words):
    assert words in refusal(dataclasses.replace(unroll, **{name: value}), SPEC)


@pytest.mark.parametrize(
    ("leaf", "array", "words"),
    [
        ("screen", np.zeros((3, 2, 1, 2, 2), np.uint8), "screen: expected shape (4, 2, 1, 2, 2)"),
        ("screen", np.zeros((4, 2, 2, 2, 2), np.uint8), "screen: expected shape (4, 2, 1, 2, 2)"),
        ("screen", np.zeros((4, 2, 1, 2, 2), np.float32), "screen: expected uint8, got float32"),
        ("joints", np.zeros((4, 2, 3), np.uint8), "joints: expected float32, got uint8"),
        ("joints", np.zeros((4, 2, 2), np.float32), "joints: expected shape (4, 2, 3)"),
        ("joints", np.full((4, 2, 3), np.nan, np.float32), "joints: NaN or beyond 1e+12"),
        ("joints", np.full((4, 2, 3), -np.inf, np.float32), "joints: NaN or beyond 1e+12"),
        (
            "smell",
            np.zeros((4, 2, 3), np.float32),
            FOREIGN,
        ),
    ],
)
def test_a_leaf_that_does_not_fit_is_named(unroll, leaf, array, words):
    observations = unroll.observations | {leaf: array}
    found = refusal(dataclasses.replace(unroll, observations=observations), SPEC)
    assert found.startswith("observations") and words in found
    assert "smell" not in found  # the sender's text is not repeated


def test_leaves_in_another_order_are_refused(unroll):
    turned = dict(reversed(unroll.observations.items()))
    assert "expected the order screen, joints" in refusal(
        dataclasses.replace(unroll, observations=turned), SPEC
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("behaviour_parameters", np.zeros((3, 2, 3), np.float32)),
        ("state", (np.zeros((2, 4), np.float32),)),
        ("masks", np.ones((3, 2, 3), np.bool_)),
        ("reset_index", np.array([5], np.int32)),
        ("history", {"joints": np.zeros((2, 3), np.float32)}),
    ],
)
def test_an_array_that_was_not_asked_for_is_refused(flat_unroll, name, value):
    found = refusal(dataclasses.replace(flat_unroll, **{name: value}), FLAT)
    assert found == f"{name}{FOREIGN}"


def test_the_same_reset_twice_and_more_resets_than_observations_are_refused(unroll):
    twice = dataclasses.replace(
        unroll,
        reset_index=np.array([5, 5], np.int32),
        reset_history={"screen": np.zeros((2, 1, 2, 2), np.uint8)},
    )
    many = dataclasses.replace(
        unroll,
        reset_index=np.full(7, 5, np.int32),
        reset_history={"screen": np.zeros((7, 1, 2, 2), np.uint8)},
    )

    assert refusal(twice, SPEC) == "reset_index: the same observation twice"
    assert refusal(many, SPEC) == "reset_index: more resets than observations"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("actions", 3, "actions: expected values from 0 to 2"),
        ("actions", -1, "actions: expected values from 0 to 2"),
        ("behaviour_log_prob", np.nan, "behaviour_log_prob: NaN or infinity"),
        ("behaviour_log_prob", -np.inf, "behaviour_log_prob: NaN or infinity"),
        ("behaviour_log_prob", 2e-5, "behaviour_log_prob: a probability above 1"),
        ("rewards", np.nan, "rewards: NaN or beyond 1e+12"),
        ("rewards", np.inf, "rewards: NaN or beyond 1e+12"),
        ("rewards", -2e12, "rewards: NaN or beyond 1e+12"),
        ("behaviour_parameters", np.inf, "behaviour_parameters: NaN or infinity"),
    ],
)
def test_one_impossible_value_is_enough_to_refuse(unroll, name, value, words):
    spoiled = changed(getattr(unroll, name), (1, 1), value)

    assert refusal(dataclasses.replace(unroll, **{name: spoiled}), SPEC) == words


_ARM = ActionPart(("arm",), (2,), "float32", low=(-1.0,) * 2, high=(1.0,) * 2)
_DIAL = ActionPart(("dial",), (1,), counts=(3,), starts=(0,))


def _with_actions(unroll, *parts):
    action = ActionSpec.of(parts)
    actions = np.zeros((3, 2, *action.shape), action.dtype)
    spec = dataclasses.replace(FLAT, env=dataclasses.replace(FLAT.env, action=action))
    return dataclasses.replace(unroll, actions=actions), spec


def test_densities_above_one_pass_and_probabilities_do_not(flat_unroll):
    dense = np.full((3, 2), 2.5, np.float32)
    unroll, spec = _with_actions(flat_unroll, _ARM, _DIAL)
    assert check_unroll(dataclasses.replace(unroll, behaviour_log_prob=dense), spec) is None
    unroll, spec = _with_actions(flat_unroll, _DIAL)
    unroll = dataclasses.replace(unroll, behaviour_log_prob=dense)
    assert refusal(unroll, spec) == "behaviour_log_prob: a probability above 1"


@pytest.mark.parametrize(
    ("index", "value", "said"),
    [
        ((1, 0, 0), 3, "actions: expected choices of 3 and 2 numbers"),
        ((2, 1, 2), np.nan, "actions: NaN or infinity"),
    ],
)
def test_actions_that_do_not_exist_are_refused(flat_unroll, index, value, said):
    unroll, spec = _with_actions(flat_unroll, _ARM, _DIAL)
    assert check_unroll(unroll, spec) is None
    wrong = dataclasses.replace(unroll, actions=changed(unroll.actions, index, value))
    assert refusal(wrong, spec) == said


def test_actions_have_the_dtype_and_the_numbers_of_their_parts(flat_unroll):
    unroll, spec = _with_actions(flat_unroll, _ARM, _DIAL)
    whole = dataclasses.replace(unroll, actions=unroll.actions.astype(np.int32))
    assert refusal(whole, spec) == "actions: expected float32, got int32"
    fewer = dataclasses.replace(unroll, actions=unroll.actions[:, :, :2])
    assert refusal(fewer, spec) == "actions: expected shape (3, 2, 3), got (3, 2, 2)"
    assert refusal(flat_unroll, spec) == "actions: expected float32, got int32"


@pytest.mark.parametrize(("oldest", "reason"), [(20, None), (19, "lag"), (0, "lag"), (30, None)])
def test_lag_counts_from_the_oldest_step_up_to_the_bound(unroll, oldest, reason) -> None:
    unroll = dataclasses.replace(unroll, generation=2, versions=np.array([30, oldest, 30]))
    assert too_old(unroll, PolicyVersion(2, 30), max_lag_versions=10) == reason
    for generation in (1, 3):
        newest = PolicyVersion(generation, 30)
        assert too_old(unroll, newest, max_lag_versions=10) == "old_generation"
