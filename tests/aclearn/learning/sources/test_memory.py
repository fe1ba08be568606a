"""The replay memory against slow lists of steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
import torch

from aclearn.config import ReplayConfig
from aclearn.errors import ConfigError
from aclearn.learning import Batch
from aclearn.learning.sources.memory import ReplayMemory
from aclearn.types import ActionSpec, EnvSpec, LeafSpec, ObservationSpec, UnrollSpec, origins_of

T, B, ACTIONS, STACK, DISCOUNT = 6, 3, 4, 4, 0.9
LEAVES = {
    "pixels": LeafSpec((STACK * 2, 4, 3), "uint8", STACK),
    "numbers": LeafSpec((2,), "float32"),
}
ENV = EnvSpec(ObservationSpec(LEAVES), ActionSpec.discrete(ACTIONS), masked=True)
SPEC = UnrollSpec(ENV, T, parameters=ACTIONS)
CPU = torch.device("cpu")


class Games:
    """B environments whose episodes end in every way, and all their columns as plain lists."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._seen = [self._reset() for _ in range(B)]
        self._ended = [False] * B
        self.columns: list[tuple[list[dict], list[dict]]] = []  # rows, steps

    def _frame(self) -> np.ndarray:
        return self._rng.integers(0, 256, (2, 4, 3), np.uint8)

    def _row(self, pixels: np.ndarray) -> dict:
        numbers = self._rng.normal(size=2).astype(np.float32)
        return {"pixels": pixels, "numbers": numbers, "masks": self._rng.random(ACTIONS) < 0.7}

    def _reset(self) -> dict:
        return self._row(np.concatenate([self._frame() for _ in range(STACK)]))

    def _step(self, b: int) -> dict:
        rng, reset = self._rng, self._ended[b]
        end = 0.0 if reset else rng.random()
        pixels = np.concatenate([self._seen[b]["pixels"][2:], self._frame()])
        self._seen[b] = self._reset() if reset else self._row(pixels)
        self._ended[b] = 0.0 < end < 0.4
        return {
            "actions": rng.integers(ACTIONS),
            "behaviour_log_prob": rng.normal(),
            "behaviour_parameters": rng.normal(size=ACTIONS),
            "rewards": np.nan if reset else rng.normal(),
            "terminated": 0.0 < end < 0.2,
            "truncated": 0.2 <= end < 0.4,
            "valid": not reset,
        }

    def play(self) -> Batch:
        """T steps of each, as a batch; two of the last environment are not valid."""
        rows: list[list[dict]] = [[seen] for seen in self._seen]
        steps: list[list[dict]] = [[] for _ in range(B)]
        for _, b in product(range(T), range(B)):
            steps[b].append(self._step(b))
            rows[b].append(self._seen[b])
        fault = self._rng.integers(T)
        for step in steps[-1][fault : fault + 2]:
            step["valid"] = False
        self.columns += zip(rows, steps, strict=True)

        def tensor(of: list[list[dict]], name: str, dtype: torch.dtype) -> torch.Tensor:
            return (
                torch.tensor(np.array([[x[name] for x in c] for c in of])).to(dtype).transpose(0, 1)
            )

        valid = tensor(steps, "valid", torch.bool)
        number = len(self.columns)
        return Batch(
            observations={
                "pixels": in_channels_last(tensor(rows, "pixels", torch.uint8)),
                "numbers": tensor(rows, "numbers", torch.float32),
            },
            actions=tensor(steps, "actions", torch.int64),
            behaviour_log_prob=tensor(steps, "behaviour_log_prob", torch.float32),
            behaviour_parameters=tensor(steps, "behaviour_parameters", torch.float32),
            rewards=tensor(steps, "rewards", torch.float32),
            terminated=tensor(steps, "terminated", torch.bool),
            truncated=tensor(steps, "truncated", torch.bool),
            valid=valid,
            masks=tensor(rows, "masks", torch.bool),
            versions=np.full((T, B), number),
        )


def in_channels_last(pixels: torch.Tensor) -> torch.Tensor:
    return pixels.permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3)


@dataclass
class Expected:
    """A transition by a loop over its column."""

    start: dict
    reached: dict
    step: dict
    rewards: float
    discount: float


def expected(games: Games, place: int, n_steps: int) -> Expected:
    rows, steps = games.columns[place // T]
    t = at = place % T
    rewards, discount = 0.0, 1.0
    while True:
        rewards += discount * steps[at]["rewards"]
        discount *= DISCOUNT
        ended = steps[at]["terminated"] or steps[at]["truncated"]
        at += 1
        if ended or at == T or at - t == n_steps or not steps[at]["valid"]:
            break
    discount *= not steps[at - 1]["terminated"]
    return Expected(rows[t], rows[at], steps[t], rewards, discount)


def memory(columns: int = 7, *, at_once: int = 1, seed: int = 3, **keys) -> ReplayMemory:
    config = ReplayConfig(size=columns * T).model_copy(update=keys)
    return ReplayMemory(SPEC, CPU, config, discount=DISCOUNT, at_once=at_once, seed=seed)


@pytest.mark.parametrize("n_steps", [1, 3, 20])
def test_each_transition_is_that_of_the_lists(n_steps: int) -> None:
    games, kept = Games(n_steps), memory(n_steps=n_steps)
    produced = learned = lost = 0
    for _ in range(12):
        batch = games.play()
        produced += int(batch.steps)
        lost += kept.add(batch)
        drawn = kept.sample(9)
        learned += drawn.new_steps
        there = range(max(0, len(games.columns) - kept.columns), len(games.columns))
        valid = {c * T + t for c in there for t in range(T) if games.columns[c][1][t]["valid"]}
        assert kept.steps == len(valid)
        assert set(drawn.places.flatten().tolist()) <= valid, "neither invalid nor forgotten"
        for i, place in enumerate(drawn.places[0].tolist()):
            one = expected(games, place, n_steps)
            assert drawn.rewards[0, i] == pytest.approx(one.rewards, rel=1e-5, abs=1e-6)
            assert drawn.discounts[0, i] == pytest.approx(one.discount, rel=1e-5)
            assert drawn.versions[0, i] == (place // T // B + 1) * B
            for row, seen in enumerate((one.start, one.reached)):
                for name in LEAVES:
                    np.testing.assert_array_equal(drawn.observations[name][row, i], seen[name])
                np.testing.assert_array_equal(drawn.masks[row, i], seen["masks"])
            for name in ("actions", "behaviour_log_prob", "behaviour_parameters"):
                np.testing.assert_allclose(getattr(drawn, name)[0, i], one.step[name], rtol=1e-6)
    pixels = drawn.observations["pixels"]
    assert pixels.flatten(0, 1).is_contiguous(memory_format=torch.channels_last)
    assert drawn.weights is None
    valid = kept._kept["valid"]
    begun = int((valid[:, 1:] & ~valid[:, :-1]).sum())
    assert len(kept._observations["pixels"]._older) == begun, "those of forgotten columns are gone"
    # every step is learned once, lost once, or was never drawn
    assert lost > 0 < kept.never_drawn
    assert learned + lost + kept.never_drawn == produced
    learned += kept.sample(9000).new_steps
    assert kept.never_drawn == 0
    assert learned + lost == produced


@pytest.mark.parametrize("own", [False, True])
def test_a_drawn_step_says_who_played_it(own: bool) -> None:
    games, kept = Games(2), memory()
    for number in range(4):
        batch = games.play()
        kept.add(batch if own else replace(batch, origins=origins_of(number, B, 8)))
    drawn = kept.sample(50)
    for place, origin in zip(drawn.places[0].tolist(), drawn.origins, strict=True):
        column = place // T
        expected = (-1, column % B) if own else (column // B, 8 + column % B)
        assert divmod(int(origin), 2**32) == expected


def test_steps_are_drawn_in_proportion_to_their_errors() -> None:
    games, kept = Games(5), memory(prioritised=True)
    for _ in range(3):
        kept.add(games.play())
    everything = kept.sample(4000)
    places = everything.places.unique()
    assert len(places) == kept.steps
    assert (everything.weights == 1.0).all(), "as likely as each other"
    errors = torch.arange(1.0, len(places) + 1)
    errors[::2] *= -1
    kept.learned(places, errors)
    drawn = kept.sample(20_000)
    likely = errors.abs() ** 0.6
    likely /= likely.sum()
    counts = torch.stack([(drawn.places == place).sum() for place in places])
    torch.testing.assert_close(counts / 20_000, likely, atol=2 / 20_000, rtol=0.0)
    weights = (len(places) * likely) ** -0.4
    weights /= weights.max()
    first = torch.searchsorted(places, drawn.places[0])
    torch.testing.assert_close(drawn.weights[0], weights[first], rtol=1e-4, atol=0.0)
    # new steps are as likely as the likeliest; forgotten ones and broken errors change nothing
    total = kept._tree.total.clone()
    kept.learned(places[:1], torch.tensor([np.nan]))
    assert kept._tree.total == total
    for _ in range(3):
        batch = games.play()
        kept.add(batch)
    valid = kept._kept["valid"].flatten()
    torch.testing.assert_close(
        kept._tree.weights[valid],
        torch.full((kept.steps,), len(places) ** 0.6, dtype=torch.float64),
    )
    before = kept._tree.weights.clone()
    kept.learned(places, errors)
    assert torch.equal(kept._tree.weights, before)


def test_a_saved_memory_continues() -> None:
    games, kept, other = Games(7), memory(prioritised=True), memory(prioritised=True, seed=4)
    for _ in range(4):
        kept.add(games.play())
        drawn = kept.sample(20)
        kept.learned(drawn.places, drawn.rewards)
    other.load_state(kept.state())
    batch = games.play()
    kept.add(batch)
    assert other.add(batch) == 0, "what a checkpoint had is accounted for"
    mine, its = kept.sample(30), other.sample(30)
    for name in ("rewards", "discounts", "places", "weights", "masks"):
        assert torch.equal(getattr(mine, name), getattr(its, name)), name
    for name in LEAVES:
        assert torch.equal(mine.observations[name], its.observations[name])
    with pytest.raises(ValueError, match=r"replay\.size"):
        memory(columns=6).load_state(kept.state())


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"prioritised": True, "priority_exponent": 0.5}, [10.0, 1.0, 10.0]),
        ({"prioritised": False}, [1.0, 1.0, 1.0]),
    ],
)
def test_priorities_that_were_saved_follow_another_exponent(keys, expected) -> None:
    games, kept = Games(9), memory(prioritised=True, priority_exponent=1.0)
    kept.add(games.play())
    places = kept.sample(4000).places.unique()
    kept.learned(places, torch.tensor([100.0] + [1.0] * (len(places) - 1)))
    other = memory(**keys)
    other.load_state(kept.state())
    batch = games.play()
    other.add(batch)  # as likely as the likeliest
    weights = other._tree.weights
    new = int(batch.valid[:, 0].nonzero()[0])
    found = torch.stack([weights[places[0]], weights[places[1]], weights[B * T + new]])
    torch.testing.assert_close(found.float(), torch.tensor(expected))
    assert (weights[: 2 * B * T] > 0).sum() == other.steps, "faults are never drawn"


@pytest.mark.parametrize("broken", ["behaviour_parameters", "rewards", "numbers/frames", "highest"])
@pytest.mark.parametrize("missing", [True, False])
def test_a_state_that_does_not_fit_loads_nothing(broken: str, missing: bool) -> None:
    games, kept, other = Games(8), memory(), memory()
    kept.add(games.play())
    saved = kept.state()
    array = saved.pop(broken)
    if not missing:
        saved[broken] = array[None]
    with pytest.raises((KeyError, ValueError)):
        other.load_state(saved)
    assert other.steps == other.nbytes_there == other.never_drawn == 0
    batch = games.play()
    assert other.add(batch) == 0 and other.steps == other.never_drawn == batch.steps
    assert other.sample(500).places.max() < B * T, "nothing of the saved steps"


def test_random_numbers_of_another_device_are_left_out() -> None:
    kept, other = memory(), memory()
    kept.add(Games(8).play())
    other.load_state(kept.state() | {"random": np.zeros(16, np.uint8)})
    assert other.steps == kept.steps
    assert torch.equal(other.sample(30).places, kept.sample(30).places)


def test_both_bounds_hold() -> None:
    column_bytes = memory(columns=1).nbytes
    assert memory(columns=9, max_bytes=4 * column_bytes + 1).columns == 4
    assert memory(columns=5, at_once=5).columns == 5
    with pytest.raises(ConfigError, match=r"replay\.size: .* 5 unrolls.* set it to 30 or more"):
        memory(columns=4, at_once=5)
    needed = 5 * column_bytes
    with pytest.raises(ConfigError, match=rf"replay\.max_bytes: .* set it to {needed} or more"):
        memory(columns=9, max_bytes=needed - 1, at_once=5)
