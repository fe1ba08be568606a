"""Which of two policies plays: whole episodes, and whole unrolls of the others."""

from __future__ import annotations

import numpy as np
import pytest

from services.actor.policy_mix import PolicyMix

B, T = 3, 4


def mix_of(original_share: float, compressed_share: float, seed: int = 1) -> PolicyMix:
    mix = PolicyMix(B, T, original_share, np.random.default_rng(seed))
    mix.compressed_share = compressed_share
    return mix


def play(mix: PolicyMix, resets: np.ndarray) -> np.ndarray:
    """`[steps + 1, B]`: who chooses, where `resets[t]` follows step t."""
    return np.array([mix.begin(), *(mix.advance(reset) for reset in resets)])


def test_alone_the_current_rung_s_policy_plays_everything() -> None:
    assert not play(mix_of(0.0, 1.0), np.ones((40, B), np.bool_)).any()
    assert not mix_of(0.0, 1.0).needs_original
    assert mix_of(0.1, 1.0).needs_original and mix_of(0.0, 0.9).needs_original


@pytest.mark.parametrize("compressed_share", [0.0, 0.25, 1.0])
def test_an_unroll_has_one_policy_in_all_environments(compressed_share: float) -> None:
    unrolls = 4000
    mix = mix_of(0.0, compressed_share)
    played = play(mix, np.zeros((unrolls * T - 1, B), np.bool_)).reshape(unrolls, T, B)
    assert (played == played[:, :1, :1]).all()
    share = 1 - played[:, 0, 0].mean()
    error = 5 * np.sqrt(compressed_share * (1 - compressed_share) / unrolls)
    assert abs(share - compressed_share) <= error


def test_an_episode_of_the_original_policy_is_its_own_from_reset_to_reset() -> None:
    rng = np.random.default_rng(3)
    resets = rng.random((3000, B)) < 0.2
    mix = mix_of(0.3, 1.0)
    played = play(mix, resets)
    changes = played[1:] != played[:-1]
    assert changes.any() and not (changes & ~resets).any()
    first = played[1:][resets]  # of each episode
    assert abs(first.mean() - 0.3) < 5 * np.sqrt(0.3 * 0.7 / len(first))
    # an environment's episode says nothing of another's
    both = resets[:, 0] & resets[:, 1]
    assert {(a, b) for a, b in played[1:][both][:, :2].tolist()} == {
        (a, b) for a in (False, True) for b in (False, True)
    }


@pytest.mark.parametrize("original_share", [0.0, 0.2])
def test_a_share_of_episodes_is_drawn_for_each_at_its_reset(original_share: float) -> None:
    resets = np.random.default_rng(5).random((3000, B)) < 0.2
    mix = mix_of(original_share, 0.4)
    before = mix.begin()
    played = np.array([before, *(mix.advance(reset, by_episode=True) for reset in resets)])
    changes = played[1:] != played[:-1]
    assert changes.any() and not (changes & ~resets).any()
    first = played[1:][resets]
    original = 1 - (1 - original_share) * 0.4
    assert abs(first.mean() - original) < 5 * np.sqrt(original * (1 - original) / len(first))


def test_a_new_share_holds_from_the_next_unroll_and_the_seed_decides() -> None:
    mix, no = mix_of(0.0, 1.0), np.zeros(B, np.bool_)
    mix.begin()
    mix.compressed_share = 0.0
    assert [bool(mix.advance(no).any()) for _ in range(T)] == [False] * (T - 1) + [True]
    resets = np.random.default_rng(4).random((200, B)) < 0.1
    one, same, other = (play(mix_of(0.3, 0.5, seed), resets) for seed in (7, 7, 8))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()
