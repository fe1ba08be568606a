"""Worlds of several agents against the same rules in NumPy; draws, sums, views, bad input."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
import torch

from aclearn.errors import ConfigError, EnvironmentFailure

resident = pytest.importorskip("aclearn.resident")
from aclearn.resident import worlds  # noqa: E402
from aclearn.resident.world_kernels import WorldKernels  # noqa: E402
from tests.support.herd import HERD, SHEEP, NumpyHerd  # noqa: E402


def _made(envs: int = 40, **settings):
    return resident.ResidentWorlds(HERD, **{"envs": envs, "device": "cpu", "seed": 4} | settings)


def _actions(envs: int, rng: np.random.Generator) -> dict[str, torch.Tensor]:
    return {
        "sheep": torch.from_numpy(rng.integers(3, size=(envs, SHEEP))),
        "dog": torch.from_numpy(rng.uniform(-1, 1, (envs, 1, 2)).astype(np.float32)),
    }


def _by_agent(made, name: str) -> np.ndarray:
    """A recorded row of results `[N, A]` of all agents."""
    parts = [rows.by_agent(getattr(rows.buffers, name)[0]) for rows in made.kinds]
    return torch.cat(parts, 1).numpy()


def test_whole_episodes_are_those_of_the_rules_in_numpy() -> None:
    envs, rng = 40, np.random.default_rng(3)
    made = _made(envs)
    made.reset()

    def begun(e: int) -> NumpyHerd:
        return NumpyHerd(e, *(made.data[name][e].numpy() for name in ("x", "energy")))

    worlds: list[NumpyHerd | None] = [begun(e) for e in range(envs)]
    ends = {"terminated": 0, "truncated": 0}
    returns, finished, resets = np.zeros((envs, SHEEP + 1)), [], 0
    for _ in range(70):
        actions = _actions(envs, rng)
        step, masks = made.step(actions), made.masks()
        shown, rewarded = step.observations, torch.cat(list(step.rewards.values()), 1).numpy()
        valid, done, cut = (_by_agent(made, name) for name in ("valid", "terminated", "truncated"))
        assert not (step.terminated & step.truncated).any() and masks["dog"].all()
        for e, world in enumerate(worlds):
            if world is None:  # this step begins its episode and ignores the actions
                world = worlds[e] = begun(e)
                expected = world.shown() | {
                    "rewards": np.zeros(SHEEP + 1),
                    "took_part": np.zeros(SHEEP + 1, bool),
                    "left": np.zeros(SHEEP + 1, bool),
                    "terminated": False,
                    "truncated": False,
                }
                assert (world.energy >= 2).all() and made.data["time"][e] == 0
            else:
                pulls = actions["dog"][e, 0].numpy()
                expected = world.step(actions["sheep"][e].numpy(), pulls)
            np.testing.assert_allclose(rewarded[e], expected["rewards"], rtol=0, atol=1e-6)
            np.testing.assert_allclose(shown["sheep"][e].numpy(), expected["sheep"], atol=1e-6)
            np.testing.assert_allclose(shown["dog"][e, 0].numpy(), expected["dog"], atol=1e-6)
            np.testing.assert_array_equal(masks["sheep"][e].numpy(), expected["masks"])
            np.testing.assert_array_equal(step.in_game[e].numpy(), world.in_game)
            took_part = expected["took_part"]
            np.testing.assert_array_equal(valid[e], took_part)
            terminal = took_part & (expected["left"] | expected["terminated"])
            np.testing.assert_array_equal(done[e], terminal)
            np.testing.assert_array_equal(cut[e], took_part & ~terminal & expected["truncated"])
            returns[e] += expected["rewards"]
            ended = done[e] | cut[e]
            finished += returns[e][ended].tolist()
            returns[e][ended] = 0.0
            resets += int((~took_part).sum())
            for name in ends:
                assert bool(getattr(step, name)[e]) == expected[name], (e, name)
                ends[name] += expected[name]
            if expected["terminated"] or expected["truncated"]:
                worlds[e] = None
    assert min(ends.values()) > 20 and resets > 1000
    sums = made.take_sums()
    assert (sums.episodes, sums.resets) == (len(finished), resets)
    assert sums.returns == pytest.approx(sum(finished), abs=1e-3)


def test_draws_and_sums_do_not_depend_on_threads_and_number_of_environments() -> None:
    few, many = _made(8, steps=30), _made(2000, steps=30, threads=2)
    assert (len(few.slices.all), len(many.slices.all)) == (1, 2)
    for made in (few, many):
        made.reset()
        made.uniform_rollout().run(30)
    for one, other in zip(few.kinds, many.kinds, strict=True):
        rows = 8 * one.agents
        for name, tensor in vars(one.buffers).items():
            if tensor is not None:
                found = getattr(other.buffers, name)
                assert torch.equal(tensor[1:], found[1 : len(tensor), :rows]), name
    sheep = many.kinds[0].buffers
    allowed = sheep.masks[:-1].gather(2, sheep.actions.unsqueeze(-1)).squeeze(-1)
    assert allowed.all() and not sheep.masks[1:-1].all()
    shares = sheep.actions[sheep.masks[:-1].all(2)].bincount() / sheep.masks[:-1].all(2).sum()
    assert (shares - 1 / 3).abs().max() < 0.02
    # an unrecorded rollout takes the same steps
    short = _made(8, steps=1)
    short.reset()
    short.uniform_rollout(recorded=False).run(30)
    for one, other in zip(few.kinds, short.kinds, strict=True):
        assert torch.equal(one.buffers.observations[-1], other.buffers.observations[-1])
    many.close()


def test_a_thread_for_each_agent_takes_the_steps_of_one_for_all(monkeypatch) -> None:
    def played():
        made = _made(30, steps=12)
        made.reset()
        made.uniform_rollout().run(12)
        return made

    together = played()
    monkeypatch.setattr(WorldKernels, "threads", lambda self, agents: agents)  # as on a GPU
    apart = played()
    for one, other in zip(together.kinds, apart.kinds, strict=True):
        for name, tensor in vars(one.buffers).items():
            assert tensor is None or torch.equal(tensor, getattr(other.buffers, name)), name
    assert together.take_sums() == apart.take_sums()


def test_a_restored_snapshot_continues_bit_for_bit() -> None:
    made, other = _made(9, steps=5), _made(9, steps=5)
    made.reset()
    rollout = made.uniform_rollout()
    rollout.run(5)
    saved = made.snapshot()
    rollout.run(5)
    other.restore(saved)
    other.uniform_rollout().run(5)
    for one, two in zip(made.kinds, other.kinds, strict=True):
        for name, tensor in vars(one.buffers).items():
            assert tensor is None or torch.equal(tensor, getattr(two.buffers, name)), name
    with pytest.raises(ValueError, match="envs: expected 4, got 9"):
        _made(4).restore(saved)


def test_the_state_is_readable_and_writable_by_name_without_a_copy() -> None:
    made = _made(6)
    made.reset()
    x, heading, energy = (made.data[name] for name in ("x", "heading", "energy"))
    assert (x.shape, heading.shape, made.data["total"].shape) == ((6, 4), (6, 4, 2), (6,))
    assert (x.dtype, energy.dtype, made.data["in_game"].dtype) == (
        torch.float32,
        torch.int32,
        torch.bool,
    )
    x[2, 1] = 0.5
    energy.fill_(9)
    still = {"sheep": torch.ones(6, SHEEP, dtype=torch.int64), "dog": torch.zeros(6, 1, 2)}
    step = made.step(still)
    assert step.observations["sheep"][2, 1, 0] == 0.5  # what was written acts
    assert (energy[:, :SHEEP] == 8).all()  # what a kernel wrote is seen
    assert heading[2, 1].tolist() == [0.5, 1.0]
    made.data["in_game"][:, 0] = False
    assert not made.step(still).rewards["sheep"][:, 0].any()


def test_sums_of_episodes_are_kept_apart_by_account() -> None:
    made = _made(50, accounts=[0, 1, 1, 2], steps=20)
    made.reset()
    rollout = made.uniform_rollout()
    rollout.run(20)
    sheep, dog = (rows.buffers for rows in made.kinds)
    ended = (sheep.terminated | sheep.truncated).view(20, 50, SHEEP).sum((0, 1))
    counts = [made.take_sums(account).episodes for account in range(3)]
    dogs = int((dog.terminated | dog.truncated).sum())
    assert counts == [int(ended[0]), int(ended[1:].sum()), dogs] and min(counts) > 50
    rollout.run(20)
    steps = [sum(c.length_sum for c in made.take_cohorts(account)) for account in range(3)]
    assert 1.6 < steps[1] / steps[0] < 2.4 and steps[2] > steps[0] > 50
    assert made.take_cohorts(0) == []


def test_a_number_out_of_range_is_named_with_environment_step_and_agent() -> None:
    made = _made(5, config={"broken": 1})
    made.reset()
    made.data["energy"].fill_(9)
    for _ in range(3):
        made.step({"sheep": torch.ones(5, SHEEP, dtype=torch.int64), "dog": torch.zeros(5, 1, 2)})
    words = (
        r"Herd: a reward or an observation is NaN or beyond 1e\+12 \(5 steps, such as step 2 of "
        r"environment 4, agent sheep_1: observation nan\)"
    )
    with pytest.raises(EnvironmentFailure, match=words):
        made.take_sums()
    assert made.take_sums().episodes == 0


_SHEEP, _REX = HERD.kinds


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kinds": ()}, "expected at least 1 agent, got 0"),
        (
            {"kinds": (dataclasses.replace(_SHEEP, agents=()), _REX)},
            "expected at least 1 agent of kind sheep, got 0",
        ),
        (
            {"kinds": (_SHEEP, dataclasses.replace(_REX, agents=("sheep_1",)))},
            "agent 'sheep_1' is there twice",
        ),
        ({"kinds": (_SHEEP, dataclasses.replace(_REX, name="sheep"))}, "kind 'sheep' is there"),
        ({"time_limit": 0}, "time_limit: expected at least 1 agent step, got 0"),
        ({"agent": HERD.world}, "field 'number' is used twice"),
    ],
    ids=("no kind", "no agent", "an agent twice", "a kind twice", "no steps", "a field twice"),
)
def test_a_definition_that_cannot_work(changes: dict, words: str) -> None:
    with pytest.raises(EnvironmentFailure, match=re.escape(words)):
        dataclasses.replace(HERD, **changes)


def test_the_estimate_of_the_memory_counts_every_tensor(monkeypatch) -> None:
    estimates = []
    monkeypatch.setattr(worlds, "check_memory", lambda terms, **_: estimates.append(terms))
    made = _made(6, steps=4)
    held = [made._worlds.bytes, made._agents.bytes, *made._flags.values(), *made._given]
    for rows in made.kinds:
        held += [tensor for tensor in vars(rows.buffers).values() if tensor is not None]
    per_env = sum(tensor.nbytes for tensor in held) / 6 + (SHEEP + 1) * worlds.BYTES
    assert sum(estimates[0].values()) == per_env


def test_settings_and_actions_that_cannot_work() -> None:
    many = dataclasses.replace(_SHEEP, agents=tuple(f"sheep_{i}" for i in range(20_000)))
    crowd = dataclasses.replace(HERD, kinds=(many, _REX))
    words = r"1000000 environments need .* GiB of cpu \(.*steps.*\), which .*; at most \d+ fit"
    with pytest.raises(ConfigError, match=words):
        resident.make(crowd, envs=1_000_000, device="cpu")
    with pytest.raises(ConfigError, match=r"Herd: .*its keys are broken"):
        resident.make(HERD, envs=2, device="cpu", weight=3)
    with pytest.raises(ConfigError, match="expected at least 1 environment, got 0"):
        resident.make(HERD, envs=0, device="cpu")
    made = _made(2)
    made.reset()
    with pytest.raises(ValueError, match=r"actions: expected shape \[2, 3\], got \[3, 2\]"):
        made.step({"sheep": torch.zeros(3, 2), "dog": torch.zeros(2, 1, 2)})
    there = torch.zeros(2, SHEEP, dtype=torch.int64)
    for choice in (-1, 3, 2**31 - 1):
        there[1, 2] = choice
        words = "actions: Herd, environment 1, agent sheep_2: expected a choice from 0 to 2, got "
        with pytest.raises(ValueError, match=words):
            made.step({"sheep": there, "dog": torch.zeros(2, 1, 2)})
    with pytest.raises(EnvironmentFailure, match="Herd: it has no pictures; give it a `draw`"):
        made.picture()
