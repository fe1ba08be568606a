"""The unroll builder, step by step: what stands in an unroll and what is masked."""

from __future__ import annotations

import numpy as np
import pytest

from aclearn.rollout import UnrollBuilder, UnrollCounter
from aclearn.types import EnvStep, PolicyVersion
from tests.support.env_specs import plain_spec

_NEWEST = PolicyVersion(2, 30)


def make_builder(envs, length, **options):
    options = {"clip_rewards": False, "life_loss_ends": False, **options}
    return UnrollBuilder(envs.spec, num_envs=envs.num_envs, length=length, **options)


def play(builder, envs, script, *, at=_NEWEST):
    """Feed the script, one list of events a step; returns what the environments answered."""
    steps = []
    for number, events in enumerate(script):
        B = envs.num_envs
        step = envs.step(events)
        actions = (np.arange(B, dtype=np.int32) + number) % envs.spec.action.count
        builder.add(actions, -0.5 - np.arange(B, dtype=np.float32), at, step)
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
    collected = builder.take()
    fields = collected.fields

    assert fields["frames"].shape == (T + 1, B, 1, 2, 3)
    np.testing.assert_array_equal(fields["frames"][0], first[:, 1:])
    for t, step in enumerate(steps):
        np.testing.assert_array_equal(fields["frames"][t + 1], step.observations[:, 1:])
        np.testing.assert_array_equal(fields["rewards"][t], step.rewards)
    np.testing.assert_array_equal(fields["history"], first[:, :1])
    # the script's second entry for environment 1 meets a reset step, as does the third for 0
    np.testing.assert_array_equal(fields["actions"], [[0, 1], [1, 2], [2, 3]])
    np.testing.assert_array_equal(fields["behaviour_log_probs"], [[-0.5, -1.5]] * 3)
    np.testing.assert_array_equal(fields["terminated"], [[0, 1], [0, 0], [0, 0]])
    np.testing.assert_array_equal(fields["truncated"], [[0, 0], [1, 0], [0, 0]])
    np.testing.assert_array_equal(fields["valid"], [[1, 1], [1, 0], [0, 1]])
    assert fields["versions"].tolist() == [30] * 3
    # flat t·B + b of the observations that begin an episode: (2, 1) and (3, 0)
    assert fields["reset_index"].tolist() == [2 * B + 1, 3 * B + 0]
    np.testing.assert_array_equal(fields["reset_history"][0], steps[1].observations[1, :1])
    np.testing.assert_array_equal(fields["reset_history"][1], steps[2].observations[0, :1])
    assert (collected.generation, collected.steps, collected.dropped) == (2, 4, {})
    dtypes = {name: array.dtype for name, array in fields.items() if array is not None}
    assert dtypes == {
        "frames": np.uint8,
        "history": np.uint8,
        "reset_index": np.int32,
        "reset_history": np.uint8,
        "actions": np.int32,
        "behaviour_log_probs": np.float32,
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
    fields = builder.take().fields
    assert fields["history"] is fields["reset_index"] is fields["reset_history"] is None
    assert fields["valid"].tolist() == [[True, True], [False, True], [True, True]]


def test_without_a_reset_there_is_no_reset_index(scripted_envs) -> None:
    envs = scripted_envs(2, stack=4)
    builder = make_builder(envs, 2)
    builder.begin(envs.reset())
    play(builder, envs, [["go on"] * 2] * 2)
    fields = builder.take().fields
    assert fields["reset_index"] is fields["reset_history"] is None
    assert fields["history"].shape == (2, 3, 2, 3)


def test_the_next_unroll_starts_where_the_last_one_ended(scripted_envs) -> None:
    envs = scripted_envs(3, stack=3, channels=2)
    builder = make_builder(envs, 2)
    builder.begin(envs.reset())
    play(builder, envs, [["go on"] * 3] * 2)
    first = builder.take().fields
    reached = envs.observations()
    play(builder, envs, [["go on"] * 3] * 2)
    second = builder.take().fields
    np.testing.assert_array_equal(second["frames"][0], first["frames"][-1])
    np.testing.assert_array_equal(second["history"], reached[:, :4])


def test_a_fault_masks_its_episode_back_to_its_start_and_counts_it(scripted_envs) -> None:
    envs = scripted_envs(2, stack=1)
    builder = make_builder(envs, 7)
    builder.begin(envs.reset())
    script = ["go on", "terminated", "go on", "go on", "go on", "fault", "go on"]
    #          valid    valid         reset    masked   masked   fault    valid
    play(builder, envs, [[event, "go on"] for event in script])
    collected = builder.take()
    assert collected.fields["valid"][:, 0].tolist() == [True, True] + [False] * 4 + [True]
    assert collected.fields["valid"][:, 1].all()
    assert collected.dropped == {"env_fault": 2}
    assert collected.steps == 3 + 7
    # nothing before the fault may bootstrap from the episode after it
    assert collected.fields["truncated"][:, 0].tolist() == [False] * 5 + [True, False]


def test_a_fault_masks_up_to_the_start_of_the_unroll_and_not_further(scripted_envs) -> None:
    envs = scripted_envs(1, stack=1)
    builder = make_builder(envs, 2)
    builder.begin(envs.reset())
    play(builder, envs, [["go on"]] * 2)
    assert builder.take().dropped == {}
    play(builder, envs, [["go on"], ["fault"]])
    collected = builder.take()
    assert collected.fields["valid"].tolist() == [[False], [False]]
    assert (collected.steps, collected.dropped) == (0, {"env_fault": 1})


def test_two_faults_in_one_unroll_count_each_step_once(scripted_envs) -> None:
    envs = scripted_envs(1, stack=1)
    builder = make_builder(envs, 6)
    builder.begin(envs.reset())
    play(builder, envs, [[e] for e in ["go on", "fault", "go on", "go on", "fault", "go on"]])
    collected = builder.take()
    assert collected.fields["valid"][:, 0].tolist() == [False] * 5 + [True]
    assert (collected.steps, collected.dropped) == (1, {"env_fault": 3})


def test_a_fault_while_the_next_episode_begins_costs_nothing_of_the_one_that_ended(
    scripted_envs,
) -> None:
    envs = scripted_envs(1, stack=1)
    builder = make_builder(envs, 5)
    builder.begin(envs.reset())
    # the fault strikes in the reset step, in which no episode was running
    play(builder, envs, [[e] for e in ["go on", "go on", "terminated", "fault", "go on"]])
    collected = builder.take()
    assert collected.fields["valid"][:, 0].tolist() == [True, True, True, False, True]
    assert (collected.steps, collected.dropped) == (4, {})


def test_a_lost_life_terminates_for_the_learner_only_when_asked(scripted_envs) -> None:
    for asked in (False, True):
        envs = scripted_envs(2, stack=2)
        builder = make_builder(envs, 2, life_loss_ends=asked)
        builder.begin(envs.reset())
        [lost, _] = play(builder, envs, [["life lost", "go on"], ["go on", "terminated"]])
        fields = builder.take().fields
        assert fields["terminated"].tolist() == [[asked, False], [False, True]]
        assert fields["valid"].all()  # the game goes on: the next step is one to learn from
        assert fields["reset_index"] is None
        assert not lost.terminated.any()  # the environments' own array is left alone


def test_rewards_are_clipped_to_one_only_when_asked() -> None:
    spec = plain_spec((1,), "float32", 2, 1)
    rewards = np.array([-3.5, -0.25, 0.5, 7.0], np.float32)
    no = np.zeros(4, np.bool_)
    for clip, expected in [(False, [-3.5, -0.25, 0.5, 7.0]), (True, [-1.0, -0.25, 0.5, 1.0])]:
        builder = UnrollBuilder(spec, num_envs=4, length=1, clip_rewards=clip, life_loss_ends=False)
        observations = np.zeros((4, 1), np.float32)
        builder.begin(observations)
        step = EnvStep(observations, rewards, no, no, no, no, no)
        builder.add(np.zeros(4, np.int32), np.zeros(4, np.float32), _NEWEST, step)
        assert builder.take().fields["rewards"].tolist() == [expected]
    assert rewards.tolist() == [-3.5, -0.25, 0.5, 7.0]


def test_arrays_that_were_given_away_are_never_written_again(scripted_envs) -> None:
    envs = scripted_envs(2, stack=2)
    builder = make_builder(envs, 2)
    builder.begin(envs.reset())
    play(builder, envs, [["terminated", "go on"], ["go on", "go on"]])
    given = {name: array for name, array in builder.take().fields.items()}
    before = {name: array.copy() for name, array in given.items()}
    play(builder, envs, [["go on", "fault"], ["terminated", "go on"]])
    builder.take()
    for name, array in given.items():
        np.testing.assert_array_equal(array, before[name])


def test_the_unroll_does_not_change_with_the_arrays_of_the_environments(scripted_envs) -> None:
    envs = scripted_envs(2, stack=3)
    builder = make_builder(envs, 2)
    first = envs.reset()
    builder.begin(first)
    kept = first.copy()
    steps = play(builder, envs, [["terminated", "go on"], ["go on", "go on"]])
    frames = [step.observations[:, 2:].copy() for step in steps]
    histories = steps[1].observations[:1, :2].copy()
    fields = builder.take().fields
    for array in (first, *(step.observations for step in steps)):
        array[...] = 7
    np.testing.assert_array_equal(fields["history"], kept[:, :2])
    np.testing.assert_array_equal(fields["frames"][0], kept[:, 2:])
    np.testing.assert_array_equal(fields["frames"][1:], frames)
    np.testing.assert_array_equal(fields["reset_history"], histories)


def test_an_unroll_over_a_change_of_generation_belongs_to_the_older_one(scripted_envs) -> None:
    envs = scripted_envs(1, stack=1)
    builder = make_builder(envs, 3)
    builder.begin(envs.reset())
    for at in (PolicyVersion(4, 100), PolicyVersion(5, 90), PolicyVersion(5, 91)):
        play(builder, envs, [["go on"]], at=at)
    collected = builder.take()
    assert collected.generation == 4
    assert collected.fields["versions"].tolist() == [100, 90, 91]
    play(builder, envs, [["go on"]] * 3, at=PolicyVersion(5, 92))
    assert builder.take().generation == 5


def test_taking_before_it_is_full_is_an_error(scripted_envs) -> None:
    envs = scripted_envs(1)
    builder = make_builder(envs, 2)
    builder.begin(envs.reset())
    play(builder, envs, [["go on"]])
    assert not builder.full
    with pytest.raises(RuntimeError, match="1 of 2 steps"):
        builder.take()
    play(builder, envs, [["go on"]])
    assert builder.full


def test_the_counter_numbers_unrolls_and_adds_up_their_steps(scripted_envs) -> None:
    envs = scripted_envs(2, stack=1)
    builder = make_builder(envs, 3)
    counter = UnrollCounter("actor-4")
    builder.begin(envs.reset())
    unrolls = []
    for script in (
        [["go on", "go on"], ["fault", "go on"], ["go on", "go on"]],  # 4 steps, 1 dropped
        [["go on", "go on"]] * 3,  # 6 steps
        [["fault", "fault"]] + [["go on", "go on"]] * 2,  # 4 steps
    ):
        play(builder, envs, script)
        unrolls.append(counter.ship(builder.take()))
    assert [sequence for sequence, _ in unrolls] == [1, 2, 3]
    counts = [(u.env_steps_before, u.env_steps_after, u.dropped) for _, u in unrolls]
    assert counts == [
        (0, 5, {"env_fault": 1}),
        (5, 11, {"env_fault": 1}),
        (11, 15, {"env_fault": 1}),
    ]
    assert {unroll.actor for _, unroll in unrolls} == {"actor-4"}
    assert (counter.env_steps, counter.dropped) == (15, {"env_fault": 1})
