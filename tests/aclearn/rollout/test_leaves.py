"""Observations of several leaves: from the builder over the wire and the check to a batch."""

from __future__ import annotations

from collections import Counter, deque

import numpy as np
import torch

from aclearn.learning import RecentObservations, assemble_batch, check_unroll
from aclearn.rollout import UnrollBuilder, UnrollCounter
from aclearn.types import (
    ActionBatch,
    ActionSpec,
    EnvSpec,
    EnvStep,
    LeafSpec,
    ObservationSpec,
    PolicyVersion,
    UnrollSpec,
)
from aclearn.wire import decode, encode

T, B, S, A = 5, 3, 3, 4
LEAVES = {"screen": LeafSpec((S * 2, 4, 5), "uint8", S), "joints": LeafSpec((6,), "float32")}
SPEC = UnrollSpec(
    EnvSpec(ObservationSpec(LEAVES), ActionSpec.discrete(A), masked=True),
    T,
    parameters=A,
    state=((7,),),
)
#: Steps in which an environment begins an episode: one at each edge of an unroll, two in a row.
RESETS = {(1, 0), (4, 1), (5, 1), (6, 2), (10, 0)}


def shown_by_hand(rng: np.random.Generator, steps: int) -> dict[str, np.ndarray]:
    """`[steps + 1, B, *shape]` of both leaves, the stack from one deque an environment."""

    def frame() -> np.ndarray:
        return rng.integers(0, 256, (2, 4, 5), np.uint8)

    stacks = [deque((frame() for _ in range(S)), maxlen=S) for _ in range(B)]
    screen = np.empty((steps + 1, B, *LEAVES["screen"].shape), np.uint8)
    for t in range(steps + 1):
        for b, stack in enumerate(stacks):
            stack.extend(frame() for _ in range(S if (t, b) in RESETS else 1))
            screen[t, b] = np.concatenate(list(stack))
    return {"screen": screen, "joints": rng.normal(size=(steps + 1, B, 6)).astype(np.float32)}


def choice_of(rng: np.random.Generator, step: int, masks: np.ndarray) -> ActionBatch:
    actions = rng.integers(0, A, B, dtype=np.int32)
    masks[np.arange(B), actions] = True
    return ActionBatch(
        actions,
        -rng.random(B, np.float32),
        PolicyVersion(1, 20 + step),
        chains=(("none",), ("int8>onnx",), ("onnx", "int8>onnx"))[step % 3],
        chain_index=rng.integers(0, 2, B, dtype=np.int32) if step % 3 == 2 else None,
        parameters=rng.normal(size=(B, A)).astype(np.float32),
        state=(rng.normal(size=(B, 7)).astype(np.float32),),
    )


def test_leaves_come_bit_equal_through_builder_wire_check_and_batch() -> None:
    rng = np.random.default_rng(5)
    shown = shown_by_hand(rng, 2 * T)
    masks = rng.random((2 * T + 1, B, A)) < 0.5
    masks[-1, :, 0] = True  # where something is allowed, though nothing is chosen yet
    choices = [choice_of(rng, step, masks[step]) for step in range(2 * T)]
    builder = UnrollBuilder(SPEC, num_envs=B, clip_rewards=False, life_loss_ends=False)
    recent, counter, unrolls = RecentObservations(SPEC.env.observation), UnrollCounter(), []
    builder.begin({name: leaf[0] for name, leaf in shown.items()}, masks[0].copy())
    no, rewards = np.zeros(B, np.bool_), rng.normal(size=(2 * T, B)).astype(np.float32)
    for step, choice in enumerate(choices):
        observations = {name: leaf[step + 1].copy() for name, leaf in shown.items()}
        reset = np.array([(step + 1, b) in RESETS for b in range(B)])
        after = masks[step + 1].copy()
        builder.add(choice, EnvStep(observations, rewards[step], no, no, no, reset, no), after)
        if builder.full:
            sent = builder.take(counter)
            frames = encode(sent, run="r", incarnation="a", sequence=counter.sequence)
            unroll = decode([bytes(frame) for frame in frames]).message
            check_unroll(unroll, SPEC)
            assert unroll.nbytes == sent.nbytes
            recent.add(unroll)
            unrolls.append(unroll)
        for array in observations.values():
            array[...] = 7  # unrolls have copies
        after[...] = False
    assert [len(unroll.reset_history["screen"]) for unroll in unrolls] == [3, 2]

    batch = assemble_batch(unrolls, observation=SPEC.env.observation)

    assert list(batch.observations) == ["screen", "joints"]
    for name, leaf in shown.items():
        expected = np.concatenate([leaf[: T + 1], leaf[T:]], axis=1)
        assert batch.observations[name].dtype == {"screen": torch.uint8}.get(name, torch.float32)
        np.testing.assert_array_equal(batch.observations[name], expected)
    parameters = np.stack([choice.parameters for choice in choices])
    expected = np.concatenate([parameters[:T], parameters[T:]], axis=1)
    np.testing.assert_array_equal(batch.behaviour_parameters, expected)
    # the row of the observation that the last step reached is in both unrolls
    expected = np.concatenate([masks[: T + 1], masks[T:]], axis=1)
    np.testing.assert_array_equal(batch.masks, expected)
    np.testing.assert_array_equal(batch.step_masks, expected[:T])
    state = np.concatenate([choices[0].state[0], choices[T].state[0]])
    np.testing.assert_array_equal(batch.state[0], state)
    np.testing.assert_array_equal(batch.versions[:, [0, B]], 20 + np.arange(2 * T).reshape(2, T).T)
    by_chain = [Counter[str](), Counter[str]()]
    for step, choice in enumerate(choices):
        for b in range(B):
            chain = choice.chains[0 if choice.chain_index is None else choice.chain_index[b]]
            by_chain[step // T][chain] += (step + 1, b) not in RESETS
    assert [unroll.steps_by_chain() for unroll in unrolls] == by_chain
    assert all(by_chain[0][chain] for chain in ("none", "int8>onnx", "onnx"))
    part = batch.columns(slice(2, 4))
    np.testing.assert_array_equal(part.observations["screen"], batch.observations["screen"][:, 2:4])
    np.testing.assert_array_equal(part.state[0], batch.state[0][2:4])
    np.testing.assert_array_equal(part.masks, batch.masks[:, 2:4])

    drawn = recent.sample(1000)
    # of a policy with a state whole sequences, one environment of an unroll after another
    places = [(u * T + t, b) for u in range(2) for b in range(B) for t in range(T)]
    np.testing.assert_array_equal(drawn.valid, [(t + 1, b) not in RESETS for t, b in places])
    for name, leaf in shown.items():
        expected = np.stack([leaf[place] for place in places])
        np.testing.assert_array_equal(drawn.observations[name], expected)
    np.testing.assert_array_equal(drawn.masks, [masks[place] for place in places])
