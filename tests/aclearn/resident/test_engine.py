"""Rollouts: draws, resets, time limits, sums, snapshots."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from aclearn.config import Config

resident = pytest.importorskip("aclearn.resident")
from aclearn.resident.environments import cartpole  # noqa: E402
from aclearn.resident.vector_env import read_specs  # noqa: E402


def _pcg(state: np.ndarray) -> np.ndarray:
    """PCG-RXS-M-XS of O'Neill 2014, 32 bits."""
    with np.errstate(over="ignore"):
        b = state * np.uint32(747796405) + np.uint32(2891336453)
        c = ((b >> ((b >> np.uint32(28)) + np.uint32(4))) ^ b) * np.uint32(277803737)
        return (c >> np.uint32(22)) ^ c


def _key(seed: np.ndarray, offset: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return _pcg(seed.astype(np.uint32) + _pcg(offset.astype(np.uint32)))


def _recorded(envs, rollout, steps: int) -> dict[str, torch.Tensor]:
    rollout.run(steps)
    tensors = vars(envs.buffers).items()
    return {name: tensor.clone() for name, tensor in tensors if tensor is not None}


def _made(name: str = "CartPole", **settings):
    env = resident.find_env(name)
    return resident.ResidentEnvs(env, **{"seed": 7, "steps": 60, "device": "cpu"} | settings)


def test_the_draws_depend_on_seed_environment_and_step_only() -> None:
    few, many = _made(envs=5), _made(envs=3001, threads=2)
    assert len(many.slices.all) == 2
    records = []
    for made in (few, many):
        made.reset()
        made.buffers.observations[0].fill_(0)
        records.append(_recorded(made, made.uniform_rollout(), 60))
    for name, tensor in records[0].items():
        torch.testing.assert_close(tensor, records[1][name][:, :5], rtol=0, atol=0)

    # and they are those of the formula: the actions of uniform choices
    environment, step = np.meshgrid(np.arange(3001), np.arange(60))
    stream = _key(np.full_like(environment, 7), environment)
    state = _key(stream, step * 3)  # use 0 of three
    drawn = _pcg(state) % 2
    np.testing.assert_array_equal(records[1]["actions"].numpy(), drawn)
    many.close()


def test_a_long_launch_equals_single_steps_with_its_actions() -> None:
    long, single = _made(envs=40), _made(envs=40)
    long.reset()
    first = single.reset().clone()
    record = _recorded(long, long.uniform_rollout(), 60)
    ends = 0
    previous = first
    for t in range(60):
        seen, rewards, terminated, truncated = single.step(record["actions"][t])
        torch.testing.assert_close(seen, record["observations"][t + 1], rtol=0, atol=0)
        torch.testing.assert_close(rewards, record["rewards"][t], rtol=0, atol=0)
        assert torch.equal(terminated, record["terminated"][t])
        assert not truncated.any()
        begins = ~record["valid"][t]
        if t > 0:
            assert torch.equal(begins, record["terminated"][t - 1])
        # a reset: the reward is 0 and the state a first one, ±0.05
        assert (rewards[begins] == 0.0).all() and (rewards[~begins] == 1.0).all()
        assert (seen[begins].abs() <= 0.05).all()
        assert (previous != seen).any(1).all()
        ends += int(terminated.sum())
        previous = seen.clone()
    assert ends > 40
    for made in (long, single):
        sums = made.take_sums()
        assert sums.episodes == ends
        assert sums.resets == int((~record["valid"]).sum())
        assert made.take_sums().episodes == 0


def test_a_choice_that_there_is_not_is_refused() -> None:
    made = resident.make("CartPole", envs=3, device="cpu")
    made.reset()
    words = "actions: CartPole, environment 2: expected a choice from 0 to 1, got 2"
    with pytest.raises(ValueError, match=words):
        made.step(torch.tensor([0, 1, 2]))


def test_the_time_limit_truncates_and_keeps_terminated_apart() -> None:
    made = resident.make("MountainCar", envs=3, device="cpu", time_limit=20)
    made.reset()
    for at in range(1, 44):
        _, rewards, terminated, truncated = made.step(torch.ones(3, dtype=torch.int64))
        assert not terminated.any()
        assert truncated.tolist() == [at in (20, 41)] * 3
        assert rewards.tolist() == [0.0 if at in (21, 42) else -1.0] * 3
    assert made.take_sums() == resident.EpisodeSums(6, -120.0, 6)


def strong(force: float = 10.0):
    """CartPole of this force, whose parameters have no keys."""

    def make_params(device):
        return cartpole.make_params(device, force=force)

    return replace(resident.find_env("CartPole"), make_params=make_params)


def heavy(force: float = 10.0, cart_mass: float = 1.0):
    """CartPole, whose parameters have one of the keys again: a cart twice as heavy."""

    def make_params(device, cart_mass=3.0):
        return cartpole.make_params(device, force=force, cart_mass=2.0 * cart_mass)

    return replace(resident.find_env("CartPole"), make_params=make_params)


def bare(force: float = 10.0):
    """CartPole, whose parameters are zeros."""
    return replace(resident.find_env("CartPole"), make_params=None)


@pytest.mark.parametrize(
    ("name", "kwargs", "force", "cart_mass"),
    [
        ("strong", {"force": 5.0}, 5.0, 1.0),
        ("heavy", {"force": 5.0, "cart_mass": 4.0}, 5.0, 8.0),
        ("heavy", {"force": 5.0}, 5.0, 6.0),
        ("bare", {"force": 5.0}, 0.0, 0.0),
    ],
)
def test_what_a_function_makes_gets_its_arguments_again_only_where_it_has_keys_for_them(
    name: str, kwargs: dict[str, float], force: float, cart_mass: float
) -> None:
    env = {"id": f"resident:{__name__}:{name}", "kwargs": kwargs}
    config = Config(env=env, resident={"envs": 4})
    read_specs(config)  # before the run
    params = resident.resident_env_of(config).configured("cpu", {})
    assert (params.force, params.cart_mass) == (force, cart_mass)


@pytest.mark.parametrize(
    ("id", "chosen"),
    [
        ("resident:CartPole", {}),
        ("CartPole-v1", {}),
        ("Pendulum-v1", {"env": "CartPole"}),
        (f"resident:{__name__}:strong", {}),
    ],
)
def test_a_time_limit_among_the_arguments_is_that_of_the_environment(id, chosen) -> None:
    config = Config(
        env={"id": id, "kwargs": {"time_limit": 7, "force": 5.0}}, resident={"envs": 4} | chosen
    )
    found = resident.resident_env_of(config)
    assert found.time_limit == 7 and found.configured("cpu", {}).force == 5.0
    if config.env.is_resident:
        read_specs(config)
    assert resident.find_env("CartPole").time_limit == 500


def test_a_restored_snapshot_continues_bit_for_bit() -> None:
    made, other = _made("Pendulum", envs=9), _made("Pendulum", envs=9)
    made.reset()
    rollout = made.uniform_rollout()
    rollout.run(37)
    saved = made.snapshot()
    record = _recorded(made, rollout, 60)
    other.restore(saved)
    continued = _recorded(other, other.uniform_rollout(), 60)
    for name in ("actions", "rewards"):
        assert torch.equal(continued[name], record[name])
    assert torch.equal(continued["observations"][1:], record["observations"][1:])
    with pytest.raises(ValueError, match="envs: expected 4, got 9"):
        _made("Pendulum", envs=4).restore(saved)


def test_the_state_is_readable_and_writable_by_name_without_a_copy_and_can_be_drawn() -> None:
    def draw(state) -> np.ndarray:
        assert {name: value.shape for name, value in state.items()} == dict.fromkeys(names, ())
        return np.full((4, 6, 3), round(100 * float(state["x"])), np.uint8)

    names = ("x", "x_dot", "theta", "theta_dot")
    made = resident.make(replace(resident.find_env("CartPole"), draw=draw), envs=3, device="cpu")
    shown = made.reset()
    assert torch.equal(torch.stack([made.data[name] for name in names], 1), shown)
    made.data["x"][1] = 0.5
    assert made.state()["x"][1] == 0.5 and (made.picture(1) == 50).all()
    seen, *_ = made.step(torch.zeros(3, dtype=torch.int64))
    assert 0.49 < seen[1, 0] < 0.51 and torch.equal(made.data["x"], seen[:, 0])
    made.data["theta"][2] = 1.0  # too far
    assert made.step(torch.zeros(3, dtype=torch.int64))[2].tolist() == [False, False, True]


@pytest.mark.parametrize("restored_after", [None, 2])
def test_cohorts_are_whole_and_hold_every_episode_by_its_first_step(restored_after) -> None:
    # episodes of 8 to 40 steps: more than the ring's 64 cohorts begin in 40 rollouts
    env, envs = replace(resident.find_env("CartPole"), time_limit=40), 2500

    def make():
        return resident.ResidentEnvs(env, envs=envs, threads=2, steps=5, seed=3, device="cpu")

    made = make()
    made.reset()
    rollout = made.uniform_rollout()
    begun, lengths = np.zeros(envs, int), np.zeros(envs, int)
    expected: dict[int, list[int]] = {}
    told = []
    for turn in range(80):
        record = _recorded(made, rollout, 5)
        for t in range(5):
            now, valid = 5 * turn + t, record["valid"][t].numpy()
            lengths = np.where(valid, lengths + 1, 0)
            begun = np.where(lengths == 1, now, begun)
            ends = (record["terminated"][t] | record["truncated"][t]).numpy()
            for first, length in zip(begun[ends], lengths[ends], strict=True):
                expected.setdefault(int(first) // 5, []).append(int(length))
        told += made.take_cohorts()
        oldest = begun[(lengths > 0) & ~ends].min()
        assert told[-1].begun_s + 5 <= oldest if told else oldest < 5  # whole
        if turn == restored_after:
            saved = made.snapshot()
            made.close()
            made = make()
            made.restore(saved)
            rollout = made.uniform_rollout()
    assert len(told) > 64
    assert [each.begun_s for each in told] == [5.0 * number for number in range(len(told))]
    for each in told:
        episodes = expected[int(each.begun_s) // 5]
        assert (each.episodes, each.length_sum) == (len(episodes), sum(episodes))
        assert each.return_sum == each.length_sum  # CartPole: 1 a step
    made.close()


@pytest.mark.parametrize("later", ["a reset", "a restore with longer rollouts"])
def test_cohorts_hold_only_whole_ones_after(later: str) -> None:
    env, envs, limit = replace(resident.find_env("Pendulum"), time_limit=37), 8, 37

    def make(steps: int):
        made = resident.ResidentEnvs(env, envs=envs, steps=steps, seed=3, device="cpu", threads=1)
        return made, made.uniform_rollout()

    made, rollout = make(5)
    made.reset()
    for _ in range(9):  # 45 steps: one episode has ended in each, another runs
        rollout.run(5)
        made.take_cohorts()
    rollout.run(2)  # in the middle of a cohort
    steps = 5
    if later == "a reset":
        made.reset()
        begins = [47.0 + 38 * number for number in range(30)]
    else:
        steps, saved = 7, made.snapshot()
        made.close()
        made, rollout = make(steps)
        made.restore(saved)
        begins = [76.0 + 38 * number for number in range(30)]  # one began at 38
    told = []
    for _ in range(100):
        rollout.run(steps)
        told += made.take_cohorts()
    made.close()
    assert len(told) > 10
    assert [each.begun_s for each in told] == [b // steps * steps for b in begins[: len(told)]]
    assert {(each.episodes, each.length_sum) for each in told} == {(envs, envs * limit)}


def test_groups_draw_and_count_as_environments_of_their_own() -> None:
    together = _made(envs=3000, seed=[7, 9], threads=2, steps=40)
    together.reset()
    record = _recorded(together, together.uniform_rollout(), 40)
    assert len(together.slices.all) == 2
    for group, seed in enumerate((7, 9)):
        alone = _made(envs=1500, seed=seed, threads=1, steps=40)
        alone.reset()
        rows = slice(1500 * group, 1500 * (group + 1))
        for name, tensor in _recorded(alone, alone.uniform_rollout(), 40).items():
            assert torch.equal(record[name][:, rows], tensor), name
        assert together.take_sums(group) == alone.take_sums()
        assert together.take_cohorts(group) == alone.take_cohorts()
        saved, expected = together.snapshot(group), alone.snapshot()
        for name, array in expected.items():
            np.testing.assert_array_equal(saved[name], array, err_msg=name)
    together.close()
