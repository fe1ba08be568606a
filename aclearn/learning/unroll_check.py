"""Whether an unroll makes sense: what the codec cannot know without the run's environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from aclearn.errors import WireError
from aclearn.types import ActionSpec, LeafSpec, Unroll, UnrollSpec

#: A log-probability above 0 by rounding in float32.
_LOG_PROB_SLACK = 1e-5


def check_unroll(unroll: Unroll, spec: UnrollSpec) -> None:
    """Raises when the arrays of an unroll do not fit each other or the run.

    Args:
        unroll: a decoded unroll: numbers of dimensions are known to be right.
        spec: what every unroll of the run has.

    Raises:
        WireError: with the reason "bad_unroll" and a detail that names the array.
    """
    T, B = spec.length, unroll.actions.shape[1]
    if unroll.actions.shape[0] != T:
        _refuse(
            f"actions: expected {T} steps (actors.unroll_length), got {unroll.actions.shape[0]}"
        )
    if B < 1:
        _refuse("actions: expected at least one environment")
    if unroll.env_steps_after < unroll.env_steps_before:
        _refuse("env_steps_after: less than env_steps_before")
    for name in ("behaviour_log_prob", "rewards", "terminated", "truncated", "valid"):
        _expect_shape(name, getattr(unroll, name), (T, B))
    _check_observations(unroll, spec, T, B)
    _check_policies(unroll, spec, T, B)
    for name, array in unroll.arrays():
        if array.dtype == np.float32 and not np.isfinite(array).all():
            _refuse(f"{name}: NaN or infinity")
    if unroll.behaviour_log_prob.max() > _LOG_PROB_SLACK:
        _refuse("behaviour_log_prob: a probability above 1")
    _check_actions(unroll, spec.env.action, spec.masked)


def _check_observations(unroll: Unroll, spec: UnrollSpec, T: int, B: int) -> None:
    leaves = dict(spec.env.observation)
    stacks = {name: leaf for name, leaf in leaves.items() if leaf.frame_stack > 1}
    _expect_leaves("observations", unroll.observations, leaves)
    _expect_leaves("history", unroll.history, stacks)
    for name, leaf in leaves.items():
        newest = leaf.shape[0] // leaf.frame_stack
        frames = (T + 1, B, newest, *leaf.shape[1:])
        _expect(f"observations.{name}", unroll.observations[name], frames, leaf.dtype)
    for name, leaf in stacks.items():
        _expect(f"history.{name}", unroll.history[name], _older(B, leaf), leaf.dtype)
    index = unroll.reset_index
    if index is None:
        _expect_leaves("reset_history without reset_index", unroll.reset_history, {})
        return
    if not stacks:
        _refuse("reset_index: expected none without a frame stack")
    _expect_leaves("reset_history", unroll.reset_history, stacks)
    for name, leaf in stacks.items():
        older = _older(index.size, leaf)
        _expect(f"reset_history.{name}", unroll.reset_history[name], older, leaf.dtype)
    if index.size > T * B:
        _refuse("reset_index: more resets than observations")
    if index.size and not (index.min() >= B and index.max() < (T + 1) * B):
        _refuse(f"reset_index: expected indices from {B} to {(T + 1) * B - 1}")
    if np.unique(index).size != index.size:
        _refuse("reset_index: the same observation twice")


def _older(count: int, leaf: LeafSpec) -> tuple[int, ...]:
    """The shape of the older frames of `count` stacks."""
    return (count, leaf.older.stop, *leaf.shape[1:])


def _check_policies(unroll: Unroll, spec: UnrollSpec, T: int, B: int) -> None:
    """What says which policy chose, and what it chose from."""
    _expect_shape("versions", unroll.versions, (T,))
    if unroll.versions.min() < 0:
        _refuse("versions: expected values of at least 0")
    chains, index = unroll.chains, unroll.chain_index
    if not 1 <= len(chains) <= T:
        _refuse(f"chains: expected 1 to {T}, got {len(chains)}")
    if index is None:
        if len(chains) > 1:
            _refuse(f"chain_index: missing, there are {len(chains)} chains")
    else:
        _expect_shape("chain_index", index, (T,))
        if index.min() < 0 or index.max() >= len(chains):
            _refuse(f"chain_index: expected values from 0 to {len(chains) - 1}")
    parameters = (T, B, spec.parameters) if spec.parameters else None
    _expect_optional("behaviour_parameters", unroll.behaviour_parameters, parameters)
    if len(unroll.state) != len(spec.state):
        _refuse(f"state: expected {len(spec.state)} arrays, got {len(unroll.state)}")
    for number, (array, shape) in enumerate(zip(unroll.state, spec.state, strict=True)):
        _expect_shape(f"state.{number}", array, (B, *shape))


def _check_actions(unroll: Unroll, action: ActionSpec, masked: bool) -> None:
    actions, masks = unroll.actions, unroll.masks
    if actions.min() < 0 or actions.max() >= action.count:
        _refuse(f"actions: expected values from 0 to {action.count - 1}")
    _expect_optional("masks", masks, (*actions.shape, action.count) if masked else None)
    if masks is not None:
        allowed = np.take_along_axis(masks, actions[..., None], axis=2)[..., 0]
        if not (allowed | ~unroll.valid).all():
            _refuse("masks: an action that was not allowed")


def _expect_leaves(
    name: str, arrays: Mapping[str, NDArray[Any]], leaves: Mapping[str, LeafSpec]
) -> None:
    if list(arrays) != list(leaves):
        expected = ", ".join(leaves) or "none"
        _refuse(f"{name}: expected the leaves {expected}, in this order, got {len(arrays)}")


def _expect_optional(name: str, array: NDArray[Any] | None, shape: tuple[int, ...] | None) -> None:
    if (array is None) != (shape is None):
        _refuse(f"{name}: {'expected none' if shape is None else 'missing'}")
    if array is not None and shape is not None:
        _expect_shape(name, array, shape)


def _expect(name: str, array: NDArray[Any], shape: tuple[int, ...], dtype: str) -> None:
    if array.dtype != np.dtype(dtype):
        _refuse(f"{name}: expected {dtype}, got {array.dtype}")
    _expect_shape(name, array, shape)


def _expect_shape(name: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        _refuse(f"{name}: expected shape {shape}, got {array.shape}")


def _refuse(detail: str) -> NoReturn:
    raise WireError("bad_unroll", detail)
