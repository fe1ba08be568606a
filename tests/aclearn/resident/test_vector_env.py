"""Worlds as groups of environments for actors, split by policy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from aclearn.config import Config, EnvConfig
from aclearn.distributions import distribution_of
from aclearn.envs.factory import make_policy_envs, make_vector_env, read_spec
from aclearn.errors import ConfigError, EnvironmentFailure

resident = pytest.importorskip("aclearn.resident")
from aclearn.resident import wp  # noqa: E402
from aclearn.resident.vector_env import read_specs  # noqa: E402
from tests.support.herd import HERD, SHEEP, Agent, Params, World  # noqa: E402

_HERD = EnvConfig(id="resident:tests.support.herd:HERD")
_PATTERNS = {"flock": ("sheep_0", "sheep_2"), "lone": ("sheep_1",), "dog": ("rex",)}
_LIMITS = {"seed": 4, "step_timeout_s": 60.0, "max_faults": 0}


def test_each_policy_has_the_rows_of_its_agents_and_all_step_together() -> None:
    parts = make_policy_envs(_HERD, _PATTERNS, num_envs=6, **_LIMITS)
    assert {name: (part.num_envs, part.spec.agents) for name, part in parts.items()} == {
        "flock": (12, 2),
        "lone": (6, 1),
        "dog": (6, 1),
    }
    whole = resident.ResidentWorlds(HERD, envs=6, device="cpu", seed=4)
    shown, rng = whole.reset(), np.random.default_rng(1)

    def expected(by_agent: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
        sheep, dog = by_agent["sheep"].numpy(), by_agent["dog"].numpy()
        return {
            "flock": sheep[:, [0, 2]].reshape(12, *sheep.shape[2:]),
            "lone": sheep[:, 1],
            "dog": dog[:, 0],
        }

    def recorded(name: str) -> dict[str, np.ndarray]:
        results = {rows.name: getattr(rows.buffers, name)[0] for rows in whole.kinds}
        return expected({rows.name: rows.by_agent(results[rows.name]) for rows in whole.kinds})

    first = expected(shown)
    for name, part in parts.items():
        np.testing.assert_array_equal(part.reset(seed=4)["observation"], first[name])
    for _ in range(25):
        actions = {
            "sheep": torch.from_numpy(rng.integers(3, size=(6, SHEEP))),
            "dog": torch.from_numpy(rng.uniform(-1, 1, (6, 1, 2)).astype(np.float32)),
        }
        step, sent = whole.step(actions), expected(actions)
        for name, part in parts.items():
            part.send(sent[name].astype(part.spec.action.dtype))
        seen = expected(step.observations)
        terminated, valid = recorded("terminated"), recorded("valid")
        rewards, masks = recorded("rewards"), expected(whole.masks())
        for name, part in parts.items():
            found = part.recv()
            np.testing.assert_array_equal(found.observations["observation"], seen[name])
            np.testing.assert_array_equal(found.rewards, rewards[name])
            np.testing.assert_array_equal(found.terminated, terminated[name])
            np.testing.assert_array_equal(found.reset, ~valid[name])
            assert (part.masks is None) == (name == "dog")
            if name != "dog":
                np.testing.assert_array_equal(part.masks, masks[name])
    next(iter(parts.values())).close()


@pytest.mark.parametrize(
    ("env", "patterns", "words"),
    [
        (_HERD, {"all": ("*",)}, "rex"),
        (_HERD, {"sheep": ("sheep_*",)}, "rex"),
        (EnvConfig(id="resident:CartPole"), {"a": ("x",)}, "resident:CartPole has one agent"),
    ],
    ids=("other spaces", "an agent without a policy", "one agent"),
)
def test_policies_that_do_not_fit(env: EnvConfig, patterns: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_policy_envs(env, patterns, num_envs=1, **_LIMITS)


def test_one_policy_for_agents_of_other_spaces_is_refused_and_the_spec_has_all_policies() -> None:
    with pytest.raises(ConfigError, match="rex"):
        make_vector_env(_HERD, num_envs=1, **_LIMITS)
    spec = read_spec(_HERD, patterns=_PATTERNS)
    assert spec.by_policy(_PATTERNS)["flock"].agent_names == ("sheep_0", "sheep_2")


@wp.func
def _mask(
    world: World,
    agents: wp.array(dtype=Agent),
    in_game: wp.array(dtype=wp.bool),
    a: wp.int32,
    p: Params,
    row: wp.array(dtype=wp.bool),
):
    """All while a sheep has energy, but of sheep_1 nothing at time 3 where dogs are heavy."""
    forgotten = a == 1 and world.time == 3 and p.mass[world.number] >= 10.0
    for choice in range(3):
        row[choice] = in_game[a] and agents[a].energy > 0 and not forgotten


_SHEEP_KIND, _DOG_KIND = HERD.kinds
MASKED = replace(HERD, name="Masked", kinds=(replace(_SHEEP_KIND, mask=_mask), _DOG_KIND))


def _play_masked(steps: int, **kwargs: float) -> tuple[int, int]:
    """Rows of sheep in all, and those to which their own mask has allowed nothing."""
    config = EnvConfig(id=f"resident:{__name__}:MASKED", kwargs=kwargs)
    parts = make_policy_envs(
        config, {"flock": ("sheep_*",), "dog": ("rex",)}, num_envs=8, **_LIMITS
    )
    worlds, rng = parts["flock"]._group.envs, np.random.default_rng(1)
    rows = nothing = 0
    try:
        for part in parts.values():
            part.reset()
        for _ in range(steps):
            for part in parts.values():
                distribution = distribution_of(part.spec.action)
                logits = np.zeros((part.num_envs, distribution.parameter_count), np.float32)
                part.send(distribution.sample(distribution.mask(logits, part.masks), rng)[0])
            for part in parts.values():
                part.recv()
            assert parts["flock"].masks.all()
            rows += parts["flock"].num_envs
            nothing += int((~worlds.masks()["sheep"].any(-1)).sum())
    finally:
        parts["flock"].close()
    return rows, nothing


def test_an_agent_out_of_the_game_needs_no_allowed_action_and_one_that_plays_does() -> None:
    rows, nothing = _play_masked(30)
    assert rows == 30 * 8 * SHEEP and 50 < nothing < rows - 50
    words = r"Masked: environment \d, agent sheep_1: its mask allows nothing"
    with pytest.raises(EnvironmentFailure, match=words):
        _play_masked(4, heavier=10.0)


_FRONT = replace(_SHEEP_KIND, name="front", agents=("sheep_0",))
_REAR = replace(_SHEEP_KIND, name="rear", agents=("sheep_1", "sheep_2"))
TWO_KINDS = replace(HERD, kinds=(_FRONT, _REAR))
THREE_KINDS = replace(HERD, kinds=(_FRONT, _REAR, _DOG_KIND))


@pytest.mark.parametrize(
    ("world", "policies", "policy"),
    [
        ("TWO_KINDS", {}, "default"),
        ("THREE_KINDS", {"all": {"agents": "sheep_*"}, "d": {"agents": "rex"}}, "all"),
    ],
    ids=("one policy", "several"),
)
def test_agents_of_two_kinds_with_equal_spaces_have_policies_of_their_own(
    world: str, policies: dict, policy: str
) -> None:
    env = {"id": f"resident:{__name__}:{world}"}
    words = rf"policies\.{policy}\.agents: its agents are of the kinds front, rear, and a policy"
    with pytest.raises(ConfigError, match=words):
        read_specs(Config(env=env, resident={"envs": 4}, policies=policies))


@pytest.mark.parametrize(
    ("env", "patterns"),
    [(EnvConfig(id="resident:CartPole"), {}), (_HERD, _PATTERNS)],
    ids=("one agent", "several"),
)
def test_each_reset_begins_other_episodes_also_without_a_step_between(env, patterns) -> None:
    parts = make_policy_envs(env, patterns, num_envs=4, **_LIMITS)

    def begin(seed: int | None = None) -> np.ndarray:
        shown = [part.reset(seed)["observation"] for part in parts.values()]
        return np.concatenate([each.ravel() for each in shown])

    first, second, third = begin(), begin(), begin()
    seeded, after_it, again = begin(_LIMITS["seed"]), begin(), begin(_LIMITS["seed"])
    next(iter(parts.values())).close()
    np.testing.assert_array_equal(seeded, first)
    np.testing.assert_array_equal(again, first)
    np.testing.assert_array_equal(after_it, second)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, third) and not np.array_equal(second, third)


def test_a_seed_begins_the_same_episodes_again_whenever_it_is_given() -> None:
    env = make_vector_env(EnvConfig(id="resident:CartPole"), num_envs=4, **_LIMITS)

    def play(seed: int) -> list[np.ndarray]:
        seen = [env.reset(seed=seed)["observation"].copy()]
        for _ in range(60):  # beyond some ends
            env.send(np.ones(4, np.int32))
            seen.append(env.recv().observations["observation"].copy())
        return seen

    first, other, again = play(4), play(5), play(4)
    env.close()
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first[0], other[0])
