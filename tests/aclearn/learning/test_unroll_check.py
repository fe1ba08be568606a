"""check_unroll refuses an unroll that does not fit itself or the run's environment."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from aclearn.errors import WireError
from aclearn.learning import check_unroll
from aclearn.types import ActionSpec, ObservationSpec, array_bytes
from tests.support.messages import small_unroll

# The sample: T = 3 steps, B = 2 environments, 2 stacked frames of 1x2x2, a reset at t=2, b=1.
SPEC = {
    "observation": ObservationSpec.plain((2, 2, 2), "uint8", 2),
    "action": ActionSpec(3),
}
FLAT = {"observation": ObservationSpec.plain((4,), "float32"), "action": ActionSpec(3)}


@pytest.fixture
def unroll():
    return small_unroll()


@pytest.fixture
def flat_unroll(unroll):
    return dataclasses.replace(
        unroll,
        frames=np.linspace(-1, 1, 4 * 2 * 4, dtype=np.float32).reshape(4, 2, 4),
        history=None,
        reset_index=None,
        reset_history=None,
    )


def refusal(unroll, spec):
    with pytest.raises(WireError) as caught:
        check_unroll(unroll, **spec)
    assert caught.value.reason == "bad_unroll"
    return caught.value.detail


def changed(array, index, value):
    copy = array.copy()
    copy[index] = value
    return copy


def test_the_bytes_of_an_unroll_are_those_of_all_its_arrays(unroll, flat_unroll):
    sizes = {name: value.nbytes for name, value in vars_of(unroll) if hasattr(value, "nbytes")}
    assert {"frames", "history", "reset_history", "valid"} < sizes.keys()
    assert array_bytes(unroll) == sum(sizes.values())
    images = sizes["frames"] + sizes["history"] + sizes["reset_history"] + sizes["reset_index"]
    assert array_bytes(flat_unroll) == array_bytes(unroll) - images + 4 * 2 * 4 * 4


def vars_of(message):
    return [(field.name, getattr(message, field.name)) for field in dataclasses.fields(message)]


def test_a_good_unroll_passes_with_stacked_images_and_with_flat_floats(unroll, flat_unroll):
    assert check_unroll(unroll, **SPEC) is None
    assert check_unroll(flat_unroll, **FLAT) is None


def test_an_unroll_without_resets_passes(unroll):
    no_resets = dataclasses.replace(unroll, reset_index=None, reset_history=None)

    assert check_unroll(no_resets, **SPEC) is None


@pytest.mark.parametrize(
    "name", ["behaviour_log_probs", "rewards", "terminated", "truncated", "valid"]
)
def test_every_matrix_must_have_the_shape_of_the_actions(unroll, name):
    shorter = dataclasses.replace(unroll, **{name: getattr(unroll, name)[:-1]})

    assert refusal(shorter, SPEC) == f"{name}: expected shape (3, 2), got (2, 2)"


def test_no_steps_and_no_environments_are_refused(unroll):
    no_steps = dataclasses.replace(unroll, actions=np.zeros((0, 2), np.int32))
    no_environments = dataclasses.replace(unroll, actions=np.zeros((3, 0), np.int32))

    assert "got (0, 2)" in refusal(no_steps, SPEC)
    assert "got (3, 0)" in refusal(no_environments, SPEC)


@pytest.mark.parametrize(
    ("name", "array", "words"),
    [
        ("versions", np.zeros(2, np.int64), "versions: expected shape (3,), got (2,)"),
        ("versions", np.array([7, -1, 8]), "versions: expected values of at least 0"),
        ("frames", np.zeros((3, 2, 1, 2, 2), np.uint8), "frames: expected shape (4, 2, 1, 2, 2)"),
        ("frames", np.zeros((4, 2, 2, 2, 2), np.uint8), "frames: expected shape (4, 2, 1, 2, 2)"),
        ("frames", np.zeros((4, 2, 1, 2, 2), np.float32), "frames: expected uint8, got float32"),
        ("history", None, "history: missing"),
        ("history", np.zeros((2, 2, 2, 2), np.uint8), "history: expected shape (2, 1, 2, 2)"),
        ("reset_index", None, "reset_index and reset_history: expected both or none"),
        ("reset_history", None, "reset_index and reset_history: expected both or none"),
        ("reset_index", np.array([1], np.int32), "reset_index: expected indices from 2 to 7"),
        ("reset_index", np.array([8], np.int32), "reset_index: expected indices from 2 to 7"),
        ("reset_index", np.array([-3], np.int32), "reset_index: expected indices from 2 to 7"),
        ("reset_index", np.array([4, 5], np.int32), "reset_history: expected shape (2, 1, 2, 2)"),
    ],
)
def test_an_array_that_does_not_fit_is_named(unroll, name, array, words):
    assert words in refusal(dataclasses.replace(unroll, **{name: array}), SPEC)


def test_the_same_reset_twice_and_more_resets_than_observations_are_refused(unroll):
    twice = dataclasses.replace(
        unroll,
        reset_index=np.array([5, 5], np.int32),
        reset_history=np.zeros((2, 1, 2, 2), np.uint8),
    )
    many = dataclasses.replace(
        unroll,
        reset_index=np.full(7, 5, np.int32),
        reset_history=np.zeros((7, 1, 2, 2), np.uint8),
    )

    assert refusal(twice, SPEC) == "reset_index: the same observation twice"
    assert refusal(many, SPEC) == "reset_index: more resets than observations"


def test_an_unroll_without_a_frame_stack_has_no_history(flat_unroll):
    with_history = dataclasses.replace(flat_unroll, history=np.zeros((2, 4), np.float32))

    assert "expected none without a frame stack" in refusal(with_history, FLAT)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("actions", 3, "actions: expected values from 0 to 2"),
        ("actions", -1, "actions: expected values from 0 to 2"),
        ("behaviour_log_probs", np.nan, "behaviour_log_probs: NaN or infinity"),
        ("behaviour_log_probs", -np.inf, "behaviour_log_probs: NaN or infinity"),
        ("behaviour_log_probs", 2e-5, "behaviour_log_probs: a probability above 1"),
        ("rewards", np.nan, "rewards: NaN or infinity"),
        ("rewards", np.inf, "rewards: NaN or infinity"),
    ],
)
def test_one_impossible_value_is_enough_to_refuse(unroll, name, value, words):
    spoiled = changed(getattr(unroll, name), (1, 1), value)

    assert refusal(dataclasses.replace(unroll, **{name: spoiled}), SPEC) == words


def test_a_log_probability_that_rounding_put_above_zero_passes(unroll):
    rounded = changed(unroll.behaviour_log_probs, (1, 1), 1e-6)

    assert check_unroll(dataclasses.replace(unroll, behaviour_log_probs=rounded), **SPEC) is None


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_float_observation_that_is_not_finite_is_refused(flat_unroll, value):
    spoiled = changed(flat_unroll.frames, (3, 1, 2), value)

    assert refusal(dataclasses.replace(flat_unroll, frames=spoiled), FLAT) == (
        "frames: NaN or infinity"
    )


def test_steps_that_run_backwards_are_refused(unroll):
    backwards = dataclasses.replace(unroll, env_steps_before=67)

    assert refusal(backwards, SPEC) == "env_steps_after: less than env_steps_before"
