"""The unroll builder, step by step: an unroll's contents and masks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aclearn.rollout import UnrollBuilder, UnrollCounter
from aclearn.types import (
    OBSERVATION,
    ActionBatch,
    ActionSpec,
    EnvStep,
    PolicyVersion,
    UnrollSpec,
)
from aclearn.types.action_spec import ActionPart
from tests.support.env_specs import plain_spec

_NEWEST = PolicyVersion(2, 30)


def make_builder(envs, length, **options):
    options = {"clip_rewards": False, "life_loss_ends": False, **options}
    return UnrollBuilder(UnrollSpec(envs.spec, length), num_envs=envs.num_envs, **options)


def take(builder):
    """The full unroll, the first of its actor, with the number of steps to learn from."""
    unroll = builder.take(UnrollCounter())
    return unroll, unroll.env_steps_after - sum(unroll.dropped.values())


def given(unroll):
    """Its arrays by name; those of the one leaf without the leaf's name."""
    return {name.removesuffix(f".{OBSERVATION}"): array for name, array in unroll.arrays()}


def play(builder, envs, script, *, at=_NEWEST):
    """Feed the script, one list of events a step; returns the environments' steps."""
    steps = []
    for number, events in enumerate(script):
        B = envs.num_envs
        step = envs.step(events)
        actions = (np.arange(B, dtype=np.int32) + number) % envs.spec.action.mask_width
        log_prob = -0.5 - np.arange(B, dtype=np.float32)
        builder.add(ActionBatch(actions, log_prob, at), step)
        steps.append(step)
    return steps


def test_an_unroll_holds_every_step_in_its_place(scripted_envs) -> None:
    T, B = 3, 2
    envs = scripted_envs(B, stack=2, channels=1)
    builder = make_builder(envs, T)
    first = envs.reset()
    builder.begin(first)
    steps = play(
        builder,
        envs,
        [["go on", "terminated"], ["truncated", "go on"], ["go on", "go on"]],
    )
    unroll, learnable = take(builder)
    fields = given(unroll)

    assert fields["observations"].shape == (T + 1, B, 1, 2, 3)
    np.testing.assert_array_equal(fields["observations"][0], first[OBSERVATION][:, 1:])
    for t, step in enumerate(steps):
        np.testing.assert_array_equal(
            fields["observations"][t + 1], step.observations[OBSERVATION][:, 1:]
        )
        np.testing.assert_array_equal(fields["rewards"][t], step.rewards)
    np.testing.assert_array_equal(fields["history"], first[OBSERVATION][:, :1])
    # the script's second entry for environment 1 meets a reset step, as does the third for 0
    np.testing.assert_array_equal(fields["actions"], [[0, 1], [1, 2], [2, 3]])
    np.testing.assert_array_equal(fields["behaviour_log_prob"], [[-0.5, -1.5]] * 3)
    np.testing.assert_array_equal(fields["terminated"], [[0, 1], [0, 0], [0, 0]])
    np.testing.assert_array_equal(fields["truncated"], [[0, 0], [1, 0], [0, 0]])
    np.testing.assert_array_equal(fields["valid"], [[1, 1], [1, 0], [0, 1]])
    assert fields["versions"].tolist() == [30] * 3
    # flat t·B + b of the observations that begin an episode: (2, 1) and (3, 0)
    assert fields["reset_index"].tolist() == [2 * B + 1, 3 * B + 0]
    np.testing.assert_array_equal(
        fields["reset_history"][0], steps[1].observations[OBSERVATION][1, :1]
    )
    np.testing.assert_array_equal(
        fields["reset_history"][1], steps[2].observations[OBSERVATION][0, :1]
    )
    assert (unroll.generation, learnable, unroll.dropped) == (2, 4, {})
    dtypes = {name: array.dtype for name, array in fields.items()}
    assert dtypes == {
        "observations": np.uint8,
        "history": np.uint8,
        "reset_index": np.int32,
        "reset_history": np.uint8,
        "actions": np.int32,
        "behaviour_log_prob": np.float32,
        "rewards": np.float32,
        "terminated": np.bool_,
        "truncated": np.bool_,
        "valid": np.bool_,
        "versions": np.int64,
    }


@pytest.mark.parametrize("stack", [0, 1])
def test_without_a_frame_stack_no_history_travels(scripted_envs, stack: int) -> None:
    envs = scripted_envs(2, stack=stack)
    builder = make_builder(envs, 3)
    builder.begin(envs.reset())
    play(builder, envs, [["terminated", "go on"]] + [["go on"] * 2] * 2)
    fields = given(take(builder)[0])
    assert not {"history", "reset_index", "reset_history"} & fields.keys()
    assert fields["valid"].tolist() == [[True, True], [False, True], [True, True]]


def test_a_fault_masks_its_episode_back_to_its_start_and_counts_it(scripted_envs) -> None:
    envs = scripted_envs(2, stack=1)
    builder = make_builder(envs, 7)
    builder.begin(envs.reset())
    script = ["go on", "terminated", "go on", "go on", "go on", "fault", "go on"]
    #          valid    valid         reset    masked   masked   fault    valid
    play(builder, envs, [[event, "go on"] for event in script])
    unroll, learnable = take(builder)
    assert unroll.valid[:, 0].tolist() == [True, True] + [False] * 4 + [True]
    assert unroll.valid[:, 1].all()
    assert unroll.dropped == {"env_fault": 2}
    assert learnable == 3 + 7
    # nothing before the fault may bootstrap from the episode after it
    assert unroll.truncated[:, 0].tolist() == [False] * 5 + [True, False]


def test_a_lost_life_terminates_for_the_learner_only_when_asked(scripted_envs) -> None:
    for asked in (False, True):
        envs = scripted_envs(2, stack=2)
        builder = make_builder(envs, 2, life_loss_ends=asked)
        builder.begin(envs.reset())
        [lost, _] = play(builder, envs, [["life lost", "go on"], ["go on", "terminated"]])
        fields = given(take(builder)[0])
        assert fields["terminated"].tolist() == [[asked, False], [False, True]]
        assert fields["valid"].all()  # the game continues: the next step is valid
        assert "reset_index" not in fields
        assert not lost.terminated.any()  # the environments' own array is unchanged


def test_rewards_are_clipped_to_one_only_when_asked() -> None:
    spec = plain_spec((1,), "float32", 2, 1)
    rewards = np.array([-3.5, -0.25, 0.5, 7.0], np.float32)
    no = np.zeros(4, np.bool_)
    for clip, expected in [(False, [-3.5, -0.25, 0.5, 7.0]), (True, [-1.0, -0.25, 0.5, 1.0])]:
        builder = UnrollBuilder(
            UnrollSpec(spec, 1), num_envs=4, clip_rewards=clip, life_loss_ends=False
        )
        observations = {OBSERVATION: np.zeros((4, 1), np.float32)}
        builder.begin(observations)
        step = EnvStep(observations, rewards, no, no, no, no, no)
        choice = ActionBatch(np.zeros(4, np.int32), np.zeros(4, np.float32), _NEWEST)
        builder.add(choice, step)
        assert given(take(builder)[0])["rewards"].tolist() == [expected]
    assert rewards.tolist() == [-3.5, -0.25, 0.5, 7.0]


def test_ignored_numbers_are_zero() -> None:
    box = ActionPart(shape=(2,), dtype="float32", low=(-1.0,) * 2, high=(1.0,) * 2)
    spec = replace(plain_spec((1,), "float32", 2, 1), action=ActionSpec.of((box,)))
    builder = UnrollBuilder(
        UnrollSpec(spec, 1, parameters=4), num_envs=3, clip_rewards=False, life_loss_ends=False
    )
    observations = {OBSERVATION: np.zeros((3, 1), np.float32)}
    builder.begin(observations)
    no, reset = np.zeros(3, np.bool_), np.array([False, True, True])
    faulted = np.array([False, False, True])
    # environment 1 begins an episode, 2 has failed; a broken policy gave both NaN
    nan = np.float32(np.nan)
    actions = np.array([[0.5, -2.0], [nan, 1.0], [nan, nan]], np.float32)
    parameters = np.array([[0.1, 0.2, 0.3, 0.4], [nan] * 4, [nan] * 4], np.float32)
    choice = ActionBatch(
        actions, np.array([-1.5, nan, nan], np.float32), _NEWEST, parameters=parameters
    )
    builder.add(choice, EnvStep(observations, np.zeros(3, np.float32), no, no, no, reset, faulted))
    unroll, _ = take(builder)

    assert unroll.actions.tolist() == [[[0.5, -2.0], [0.0, 0.0], [0.0, 0.0]]]
    assert unroll.behaviour_log_prob.tolist() == [[-1.5, 0.0, 0.0]]
    assert unroll.behaviour_parameters is not None
    np.testing.assert_array_equal(unroll.behaviour_parameters[0, 0], parameters[0])
    assert not unroll.behaviour_parameters[0, 1:].any()


def test_arrays_that_were_given_away_are_never_written_again(scripted_envs) -> None:
    envs = scripted_envs(2, stack=2)
    builder = make_builder(envs, 2)
    builder.begin(envs.reset())
    play(builder, envs, [["terminated", "go on"], ["go on", "go on"]])
    handed = {name: array for name, array in given(take(builder)[0]).items()}
    before = {name: array.copy() for name, array in handed.items()}
    play(builder, envs, [["go on", "fault"], ["terminated", "go on"]])
    take(builder)
    for name, array in handed.items():
        np.testing.assert_array_equal(array, before[name])


def test_an_unroll_over_a_change_of_generation_belongs_to_the_older_one(scripted_envs) -> None:
    envs = scripted_envs(1, stack=1)
    builder = make_builder(envs, 3)
    builder.begin(envs.reset())
    for at in (PolicyVersion(4, 100), PolicyVersion(5, 90), PolicyVersion(5, 91)):
        play(builder, envs, [["go on"]], at=at)
    unroll, _ = take(builder)
    assert unroll.generation == 4
    assert unroll.versions.tolist() == [100, 90, 91]
    play(builder, envs, [["go on"]] * 3, at=PolicyVersion(5, 92))
    assert take(builder)[0].generation == 5


def test_taking_before_it_is_full_is_an_error(scripted_envs) -> None:
    envs = scripted_envs(1)
    builder = make_builder(envs, 2)
    builder.begin(envs.reset())
    play(builder, envs, [["go on"]])
    assert not builder.full
    with pytest.raises(RuntimeError, match="1 of 2 steps"):
        take(builder)
    play(builder, envs, [["go on"]])
    assert builder.full
