"""The check of an unroll against the run's environment, which the codec does not know."""

from __future__ import annotations

import math
from typing import NoReturn

import numpy as np

from aclearn.errors import WireError
from aclearn.types import PolicyVersion, Unroll, UnrollSpec
from aclearn.types.bounds import LARGEST_NUMBER, MOST_CHAIN_BYTES

#: Rounding error of a log-probability in float32.
_LOG_PROB_SLACK = 1e-5
#: Fields whose numbers are bounded; other floats need only be finite.
_BOUNDED = ("observations", "history", "reset_history", "rewards", "state")


def check_unroll(unroll: Unroll, spec: UnrollSpec) -> None:
    """Raise `WireError` unless it fits `spec`: "unknown_policy", or "bad_unroll" with the array.

    `unroll` is decoded: its numbers of dimensions are right.
    """
    if unroll.policy != spec.policy:
        raise WireError(
            "unknown_policy", f"policy: expected {spec.policy!r}, got {unroll.policy!r}"
        )
    T, B = unroll.actions.shape[:2]
    if spec.length != T:
        _refuse(f"actions: expected {spec.length} steps (actors.unroll_length), got {T}")
    if not 1 <= B <= spec.most_rows:
        most = f"1 to {spec.most_rows} environments (actors.envs_per_group)"
        _refuse(f"actions: expected {most}, got {B}")
    if unroll.env_steps_after < unroll.env_steps_before:
        _refuse("env_steps_after: less than env_steps_before")
    if not 1 <= len(unroll.chains) <= T * B:  # each environment may have another in each step
        _refuse(f"chains: expected 1 to {T * B}, got {len(unroll.chains)}")
    if any(len(chain.encode()) > MOST_CHAIN_BYTES for chain in unroll.chains):
        _refuse(f"chains: expected at most {MOST_CHAIN_BYTES} bytes each")
    _check_arrays(unroll, spec)
    _check_values(unroll, spec)


def too_old(unroll: Unroll, newest: PolicyVersion, *, max_lag_versions: int) -> str | None:
    """Why an unroll's actions are too old to be learned, "old_generation" or "lag"; None if not.

    The lag counts from the oldest step. `actors.wait_for_weights` prevents most of these drops.
    """
    if unroll.generation != newest.generation:
        return "old_generation"
    oldest = int(unroll.versions.min())
    return "lag" if newest.version - oldest > max_lag_versions else None


def _check_arrays(unroll: Unroll, spec: UnrollSpec) -> None:
    """Check names, order, dtypes and shapes of the arrays, and the size of floats."""
    found = dict(unroll.arrays())
    expected = _expected_arrays(
        spec,
        unroll.actions.shape[1],
        resets=None if unroll.reset_index is None else unroll.reset_index.size,
        several_chains=len(unroll.chains) > 1,
    )
    for name in expected:
        if name not in found:
            _refuse(f"{name}: missing")
    for name in found:
        if name not in expected:  # a leaf's name comes from the peer and is not repeated
            _refuse(f"{name.partition('.')[0]}: an array that unrolls of this run do not have")
    if list(found) != list(expected):
        _refuse(f"observations: expected the order {', '.join(spec.env.observation)}")
    for name, (shape, dtype) in expected.items():
        array = found[name]
        if array.dtype != np.dtype(dtype):
            _refuse(f"{name}: expected {dtype}, got {array.dtype}")
        if array.shape != shape:
            _refuse(f"{name}: expected shape {shape}, got {array.shape}")
        if dtype == "float32":
            bounded = name.partition(".")[0] in _BOUNDED
            fits = np.abs(array) <= LARGEST_NUMBER if bounded else np.isfinite(array)
            if not fits.all():
                beyond = f"beyond {LARGEST_NUMBER:g}" if bounded else "infinity"
                _refuse(f"{name}: NaN or {beyond}")


def largest_unroll_bytes(spec: UnrollSpec) -> int:
    """Bytes of the arrays of the largest unroll: each environment is reset at every step."""
    arrays = _expected_arrays(
        spec, spec.most_rows, resets=spec.length * spec.most_rows, several_chains=True
    )
    return sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in arrays.values())


def _expected_arrays(
    spec: UnrollSpec, B: int, *, resets: int | None, several_chains: bool
) -> dict[str, tuple[tuple[int, ...], str]]:
    """Name → shape and dtype, in the order of `Unroll.arrays`."""
    T = spec.length
    leaves, action = spec.env.observation, spec.env.action
    stacks = {name: leaf for name, leaf in leaves.items() if leaf.frame_stack > 1}
    arrays: dict[str, tuple[tuple[int, ...], str]] = {}

    def older(field: str, count: int) -> None:
        for name, leaf in stacks.items():
            arrays[f"{field}.{name}"] = (count, leaf.older.stop, *leaf.shape[1:]), leaf.dtype

    for name, leaf in leaves.items():
        frame = leaf.shape[0] // leaf.frame_stack, *leaf.shape[1:]
        arrays[f"observations.{name}"] = (T + 1, B, *frame), leaf.dtype
    older("history", B)
    if resets is not None and stacks:
        arrays["reset_index"] = (resets,), "int32"
        older("reset_history", resets)
    arrays["actions"] = (T, B, *action.shape), action.dtype
    for name in ("behaviour_log_prob", "rewards"):
        arrays[name] = (T, B), "float32"
    for name in ("terminated", "truncated", "valid"):
        arrays[name] = (T, B), "bool"
    arrays["versions"] = (T,), "int64"
    if several_chains:
        arrays["chain_index"] = (T, B), "int32"
    if spec.parameters:
        arrays["behaviour_parameters"] = (T, B, spec.parameters), "float32"
    for index, shape in enumerate(spec.state):
        arrays[f"state.{index}"] = (B, *shape), "float32"
    if spec.env.masked:
        arrays["masks"] = (T + 1, B, action.mask_width), "bool"
    return arrays


def _check_values(unroll: Unroll, spec: UnrollSpec) -> None:
    T, B = unroll.actions.shape[:2]
    action, index = spec.env.action, unroll.reset_index
    if index is not None and index.size:
        if index.size > T * B:
            _refuse("reset_index: more resets than observations")
        if index.min() < B or index.max() >= (T + 1) * B:
            _refuse(f"reset_index: expected indices from {B} to {(T + 1) * B - 1}")
        if np.unique(index).size != index.size:
            _refuse("reset_index: the same observation twice")
    chain = unroll.chain_index
    if chain is not None and (chain.min() < 0 or chain.max() >= len(unroll.chains)):
        _refuse(f"chain_index: expected values from 0 to {len(unroll.chains) - 1}")
    if unroll.versions.min() < 0:
        _refuse("versions: expected values of at least 0")
    if not action.numbers and unroll.behaviour_log_prob.max() > _LOG_PROB_SLACK:
        _refuse("behaviour_log_prob: a probability above 1")
    if not action.contains(unroll.actions).all():
        one = f"values from 0 to {action.counts[0] - 1}" if action.kind == "discrete" else action
        _refuse(f"actions: expected {one}")
    if unroll.masks is not None:
        if not (action.allowed(unroll.actions, unroll.masks[:-1]) | ~unroll.valid).all():
            _refuse("masks: an action that was not allowed")
        if not action.allow_something(unroll.masks).all():
            _refuse("masks: a choice without anything allowed")


def _refuse(detail: str) -> NoReturn:
    raise WireError("bad_unroll", detail)
