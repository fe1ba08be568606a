"""Choosing actions from logits, with the log-probability of what was chosen."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Log-probabilities `[B, A]` of logits `[B, A]`; adding a constant to a row changes nothing."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    result: NDArray[np.float32] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result


def sample_actions(
    logits: NDArray[np.float32], rng: np.random.Generator
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """One action a row, drawn by the Gumbel-max trick, and its behaviour log-probability.

    Args:
        logits: `[B, A]` float32, of the policy that acts.
        rng: consumed by B·A uniform numbers.

    Returns:
        Actions `[B]` int32 and log μ(a) `[B]` float32.
    """
    # -log(-log(u)) of u in [0, 1): u = 0 gives -inf, which never wins against a finite logit.
    with np.errstate(divide="ignore"):
        gumbel = -np.log(-np.log(rng.random(logits.shape, dtype=np.float32)))
    actions = (logits + gumbel).argmax(axis=1)
    return actions.astype(np.int32), log_probs_of(logits, actions)


def greedy_actions(
    logits: NDArray[np.float32],
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The most probable action of each row `[B]` int32, and its log-probability `[B]` float32."""
    actions = logits.argmax(axis=1)
    return actions.astype(np.int32), log_probs_of(logits, actions)


def log_probs_of(logits: NDArray[np.float32], actions: NDArray[np.integer]) -> NDArray[np.float32]:
    """Log softmax(logits)[actions], `[B]` float32, of logits `[B, A]` and actions `[B]`.

    At most 0: what rounding takes above it is cut off, since a trainer refuses it.
    """
    result: NDArray[np.float32] = log_softmax(logits)[np.arange(len(actions)), actions]
    return np.minimum(result, 0.0)
