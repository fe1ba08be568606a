from __future__ import annotations

import inspect

import ale_py
import numpy as np
import psutil
import pytest
from ale_py import roms

from aclearn.config import EnvConfig
from aclearn.envs import read_spec
from aclearn.errors import EnvironmentFailure
from aclearn.rollout import EpisodeTracker
from aclearn.types import OBSERVATION
from tests.support.env_specs import plain_spec
from tests.support.waiting import wait_for


class SlowAtari:
    """The obvious Atari loop over one emulator: 4 frames a step, maximum of the last two, grey."""

    def __init__(self, rom, seed, stack):
        self.ale = ale_py.ALEInterface()
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self.ale.setInt("random_seed", seed)
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.loadROM(roms.get_rom_path(rom))
        self.actions = self.ale.getMinimalActionSet()
        self.stack = stack

    def reset(self):
        self.ale.reset_game()
        grey = self.ale.getScreenGrayscale()
        self.frames = [np.zeros_like(grey)] * (self.stack - 1) + [grey]
        return np.stack(self.frames)

    def step(self, action):
        reward, screens, lives = 0, [], self.ale.lives()
        for _ in range(4):
            reward += self.ale.act(self.actions[action])
            screens.append(self.ale.getScreenGrayscale())
            if self.ale.game_over():
                break
        self.frames = [*self.frames[1:], np.max(screens[-2:], axis=0)]
        life_lost = self.ale.lives() < lives and not self.ale.game_over()
        return np.stack(self.frames), reward, self.ale.game_over(), life_lost


def test_breakout_goes_as_in_a_slow_loop_over_the_emulator(make_group):
    # Given full-size grey screens, so that no resizing is compared, and no random idle steps
    B, T, seed = 2, 330, 17
    group = make_group(
        "ALE/Breakout-v5",
        num_envs=B,
        seed=seed,
        threads=2,
        atari={"noop_max": 0, "fire_reset": False, "frame_stack": 3},
        img_height=210,
        img_width=160,
    )
    slow = [SlowAtari("breakout", seed + b, 3) for b in range(B)]
    assert group.spec.observation["observation"].shape == (3, 210, 160)
    first = np.stack([game.reset() for game in slow])
    np.testing.assert_array_equal(group.reset()[OBSERVATION], first)
    actions = np.random.default_rng(4).choice(4, (T, B), p=[0.1, 0.5, 0.2, 0.2])
    ended = [False] * B
    seen = {"reward": 0, "terminated": 0, "life_lost": 0, "reset": 0}
    for t in range(T):
        group.send(actions[t])
        step = group.recv()
        for b, game in enumerate(slow):
            if ended[b]:
                shown, reward, terminated, life_lost = game.reset(), 0, False, False
            else:
                shown, reward, terminated, life_lost = game.step(actions[t, b])
            assert step.reset[b] == ended[b]
            if not terminated:  # an end within the 4 frames leaves old pixels in ale-py's maximum
                np.testing.assert_array_equal(step.observations[OBSERVATION][b], shown)
            assert (step.rewards[b], step.terminated[b]) == (reward, terminated)
            assert (step.life_lost[b], step.truncated[b]) == (life_lost, False)
            seen["reset"] += ended[b]
            seen["reward"] += reward
            seen["terminated"] += terminated
            seen["life_lost"] += life_lost
            ended[b] = terminated
        assert not step.faulted.any()
    # Then everything has been compared at least once; 5 lives are 4 losses and an end
    assert min(seen.values()) > 0
    assert seen["life_lost"] >= 4 * seen["terminated"]


def play(group, steps, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        group.send(rng.integers(0, group.spec.action.mask_width, group.num_envs))
        yield group.recv()


def test_pong_is_84_by_84_and_four_frames_deep():
    for env_id in ("ALE/Pong-v5", "PongNoFrameskip-v4", "ale_py:Pong-v0"):
        assert read_spec(EnvConfig(id=env_id)) == plain_spec((4, 84, 84), "uint8", 6, 4)


def test_the_configuration_reaches_the_emulator():
    env = EnvConfig(
        id="ALE/SpaceInvaders-v5",
        atari={"screen_size": 64, "frame_stack": 2, "full_action_space": True},
    )
    assert read_spec(env) == plain_spec((2, 64, 64), "uint8", 18, 2)


def test_true_scores_are_reported_although_rewards_may_be_large(make_group):
    # A space invader gives 5 to 30 points
    group = make_group("ALE/SpaceInvaders-v5", num_envs=1)
    group.reset()
    rewards = np.concatenate([step.rewards for step in play(group, 200)])
    assert rewards.dtype == np.float32
    assert rewards.max() >= 5
    assert set(rewards.tolist()) <= {0, 5, 10, 15, 20, 25, 30}


def test_a_time_limit_truncates_at_the_step_that_reaches_it_and_a_reset_shows_one_frame(make_group):
    # 90 frames at 4 a step: step 23; idle steps after the reset do not count
    group = make_group("ALE/Pong-v5", threads=2, atari={"max_episode_frames": 90})
    first = group.reset()[OBSERVATION]
    kept, steps, finished, tracker = [(first, first.copy())], [], [], EpisodeTracker(2)
    for step in play(group, 50):
        steps.append(step)
        finished += tracker.update(step)
        arrays = [*step.observations.values(), *list(vars(step).values())[1:-1]]
        kept += [(array, array.copy()) for array in arrays]
        assert not step.terminated.any()
    expected = np.zeros((50, 2), bool)
    expected[[22, 46]] = True  # the reset step lies between
    np.testing.assert_array_equal([step.truncated for step in steps], expected)
    np.testing.assert_array_equal([step.reset for step in steps], np.roll(expected, 1, axis=0))
    assert [episode.length for episode in finished] == [23] * 4
    shown = steps[23].observations[OBSERVATION]
    assert not shown[:, :3].any() and shown[:, 3].any(axis=(1, 2)).all()
    assert steps[23].rewards.tolist() == [0, 0]
    # no step has written into the arrays of an earlier one
    assert all((array == copy).all() for array, copy in kept)


def test_a_group_is_a_function_of_its_seed_whatever_its_threads(make_group):
    def run(seed, threads):
        group = make_group(
            "ALE/Breakout-v5",
            seed=seed,
            threads=threads,
            atari={"repeat_action_probability": 0.25, "max_episode_frames": 100},
        )
        first = group.reset()[OBSERVATION]
        return np.stack([first] + [step.observations[OBSERVATION] for step in play(group, 60)])

    one = run(0, 1)
    np.testing.assert_array_equal(one, run(0, 2))
    assert (one != run(9, 1)).any()


def test_game_b_is_seeded_with_seed_plus_b_and_once(make_group):
    # Seaquest's first screen tells the number of idle steps, which the seed draws
    group = make_group("ALE/Seaquest-v5", seed=2**31 - 1)  # wraps to 0
    together = group.reset()[OBSERVATION]
    assert (together[0] != together[1]).any()
    second = make_group("ALE/Seaquest-v5", num_envs=1, seed=0)
    np.testing.assert_array_equal(together[1], second.reset()[OBSERVATION][0])
    # a second reset begins new episodes without the seed
    assert (group.reset()[OBSERVATION] != together).any()
    (step,) = play(group, 1)
    assert not step.reset.any()


@pytest.mark.parametrize("most", [0, 1])  # ale-py hangs when its own noop_max is 0
def test_idle_steps_at_the_start_are_drawn_up_to_their_bound(make_group, most):
    # Seaquest's first screen differs from frame to frame
    group = make_group(
        "ALE/Seaquest-v5",
        num_envs=4,
        atari={"noop_max": most, "fire_reset": False},
        img_height=210,
        img_width=160,
    )
    game = SlowAtari("seaquest", 0, 1)
    screens = [game.reset()[-1]]
    for _ in range(3):
        game.ale.act(game.actions[0])
        screens.append(game.ale.getScreenGrayscale())
    counts = [
        next(n for n, screen in enumerate(screens) if (screen == first).all())
        for first in group.reset()[OBSERVATION][:, -1]
    ]
    assert set(counts) == set(range(most + 1))


@pytest.mark.parametrize("fire_reset", [True, False])
def test_fire_at_the_start_brings_the_first_ball_into_play(make_group, fire_reset):
    # Breakout's ball waits for the button; no paddle catches the one in play
    atari = {"fire_reset": fire_reset, "noop_max": 0}
    group, lost = make_group("ALE/Breakout-v5", num_envs=1, atari=atari), False
    group.reset()
    for _ in range(100):
        group.send(np.zeros(1, np.int64))
        lost |= bool(group.recv().life_lost)
    assert lost == fire_reset


def _area_weights(size, source):
    """Row i: the overlap of each source pixel with target pixel i; the row's sum is 1."""
    edges = np.linspace(0, source, size + 1)
    pixels = np.arange(source)
    low = np.maximum(edges[:-1, None], pixels)
    high = np.minimum(edges[1:, None], pixels + 1)
    return np.clip(high - low, 0, None) * size / source


def test_a_screen_is_made_smaller_by_the_mean_over_the_area_of_each_pixel(make_group):
    actions = np.random.default_rng(1).integers(0, 6, (25, 2))

    def screens(**size):
        group = make_group("ALE/Pong-v5", seed=3, **size)
        shown = [group.reset()[OBSERVATION][:, -1]]
        for action in actions:
            group.send(action)
            shown.append(group.recv().observations[OBSERVATION][:, -1])
        return np.stack(shown)

    whole = screens(img_height=210, img_width=160).astype(np.float64)
    expected = _area_weights(84, 210) @ whole @ _area_weights(84, 160).T
    # ale-py rounds along the way
    assert np.abs(screens() - expected).max() <= 1.0
    assert expected.std() > 10.0  # there is something to see


def test_close_ends_the_threads_of_the_emulator_even_in_the_middle_of_a_step(make_group):
    before = psutil.Process().num_threads()
    group = make_group("ALE/Pong-v5", num_envs=3, threads=2, step_timeout_s=20.0)
    assert group._watch._timeout_s == 20.0 + 2 * 0.1  # of two games in a thread
    group.reset()
    assert psutil.Process().num_threads() > before  # ale-py makes at most one per core
    # an action beyond the set is refused before the emulator sees it
    with pytest.raises(ValueError, match=r"expected 0 to 5, got \[0, 6, 0\]"):
        group.send(np.array([0, 6, 0]))
    group.send(np.zeros(3, np.int64))
    group.close()
    group.close()
    # an ending thread is still counted
    wait_for(lambda: psutil.Process().num_threads() <= before, "the threads have ended")


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({"reward_clipping": True}, r"env\.kwargs\.reward_clipping cannot.*env\.clip_rewards"),
        ({"episodic_life": True}, r"env\.life_loss_ends"),
        ({"num_envs": 3}, r"actors\.envs_per_group"),
        ({"img_hight": 84}, "no argument of Atari games; did you mean img_height"),
        ({"zzz": 2}, r"no argument of Atari games\. Known are "),
        # bounds of env.atari hold, whoever sets it: ale-py would wait for ever, or end the process
        ({"stack_num": 0}, r"env\.kwargs\.stack_num cannot be set, since env\.atari\.frame_stack"),
        ({"frameskip": 0}, r"env\.atari\.frame_skip"),
        ({"img_width": 0}, r"img_width has the bounds of env\.atari\.screen_size: .*≥ 36"),
        ({"img_height": "84"}, r"img_height has the bounds"),
        ({"thread_affinity_offset": "x"}, "(?s)ale-py cannot make it"),
    ],
)
def test_keyword_arguments_that_do_not_fit_are_explained(kwargs, said):
    with pytest.raises(EnvironmentFailure, match=said):
        read_spec(EnvConfig(id="ALE/Pong-v5", kwargs=kwargs))


def test_every_reserved_argument_is_one_that_ale_py_has():
    from aclearn.envs.atari import _RESERVED

    assert set(_RESERVED) <= set(inspect.signature(ale_py.AtariVectorEnv.__init__).parameters)
