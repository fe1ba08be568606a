"""Worlds as groups of environments for actors, split by policy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aclearn.config import EnvConfig
from aclearn.envs.factory import make_policy_envs, make_vector_env, read_spec
from aclearn.errors import ConfigError

resident = pytest.importorskip("aclearn.resident")
from tests.support.herd import HERD, SHEEP  # noqa: E402

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
