"""One of A discrete actions, by A logits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.distributions.distribution import Floats
from aclearn.types import ActionSpec

#: Logit of a masked action: its probability is exactly 0 beside any logit of a network, and its
#: log-probability is finite, so that 0 · log 0 is 0.
MASKED = float(np.finfo(np.float32).min) / 2
#: Largest amount subtracted from a logit when sampling: no possible action falls below a masked
#: one.
_MOST = np.float32(-MASKED / 2)


class Categorical:
    """Distributions of one of A actions; their parameters are logits `[B, A]`."""

    def __init__(self, spec: ActionSpec) -> None:
        (self.parameter_count,) = spec.counts

    def mask(self, parameters: Floats, mask: NDArray[np.bool_] | None) -> Floats:
        """Logits with `MASKED` where `mask` `[B, A]` is False; unchanged without a mask."""
        if mask is None:
            return parameters
        if mask.shape != parameters.shape or not mask.any(axis=1).all():
            raise ValueError(
                f"mask: expected {list(parameters.shape)}, with a possible action in each row; got "
                f"{list(mask.shape)}"
            )
        return np.where(mask, parameters, np.float32(MASKED))

    def with_min_action_prob(self, parameters: Floats, min_action_prob: float) -> Floats:
        """Logits of p' = (1 − k·min_action_prob) p + min_action_prob of the k allowed actions.

        A·min_action_prob must be below 1, which is not checked here.
        """
        if min_action_prob <= 0.0:
            return parameters
        allowed = parameters != np.float32(MASKED)
        probabilities = np.exp(log_softmax(parameters))
        share = 1.0 - allowed.sum(axis=1, keepdims=True) * min_action_prob
        mixed: Floats = np.log(share * probabilities + min_action_prob).astype(np.float32)
        return np.where(allowed, mixed, np.float32(MASKED))

    def sample(
        self, parameters: Floats, rng: np.random.Generator
    ) -> tuple[NDArray[np.int32], Floats]:
        """Actions `[B]` int32, drawn by the Gumbel-max trick, and log μ(a) `[B]` float32."""
        # log(−log(u)) of u in [0, 1), the negative of a Gumbel number; ∞ where u = 0
        u = rng.random(parameters.shape, dtype=np.float32)
        with np.errstate(divide="ignore"):
            np.log(u, out=u)
        np.log(np.negative(u, out=u), out=u)
        actions = (parameters - np.minimum(u, _MOST, out=u)).argmax(axis=1)
        return actions.astype(np.int32), self.log_prob(parameters, actions)

    def mode(self, parameters: Floats) -> NDArray[np.int32]:
        """The most probable action of each row, `[B]` int32."""
        actions: NDArray[np.int32] = parameters.argmax(axis=1).astype(np.int32)
        return actions

    def named(self, parameters: Floats) -> dict[str, Any]:
        """The probabilities `[B, A]`."""
        return {"probabilities": np.exp(log_softmax(parameters))}

    def same_mode(self, parameters: Floats, other: Floats) -> NDArray[np.bool_]:
        """Whether both prefer the same action, `[B]`."""
        result: NDArray[np.bool_] = parameters.argmax(axis=1) == other.argmax(axis=1)
        return result

    def log_prob(self, parameters: Floats, actions: NDArray[np.integer]) -> Floats:
        """Log softmax(logits)[actions], `[B]` float32; never above 0, since each term is not."""
        shifted, log_total = _shifted(parameters)
        taken = shifted[np.arange(len(actions)), actions]
        result: Floats = taken - log_total
        return result

    def entropy(self, parameters: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Entropy of each row `[B]`, in nats."""
        log_p = log_softmax(parameters.astype(np.float64))
        result: NDArray[np.float64] = -(np.exp(log_p) * log_p).sum(axis=1)
        return result

    def kl(
        self, parameters: NDArray[np.floating[Any]], other: NDArray[np.floating[Any]]
    ) -> NDArray[np.float64]:
        """KL(p ‖ q) `[B]` in nats, from logits `[B, A]` of p and of q; never below 0."""
        log_p, log_q = (log_softmax(logits.astype(np.float64)) for logits in (parameters, other))
        result: NDArray[np.float64] = (np.exp(log_p) * (log_p - log_q)).sum(axis=1)
        return result.clip(min=0.0)


def epsilon_greedy(parameters: Floats, epsilon: Floats) -> Floats:
    """Masked logits `[B, A]` of the best action with 1 − ε, and of any allowed one with ε `[B]`."""
    allowed = parameters != np.float32(MASKED)
    probabilities = allowed * (epsilon / allowed.sum(axis=1))[:, None]
    probabilities[np.arange(len(parameters)), parameters.argmax(axis=1)] += 1.0 - epsilon
    logits = np.full(parameters.shape, MASKED, np.float32)
    np.log(probabilities, out=logits, where=probabilities > 0.0, casting="same_kind")
    return logits


def log_softmax(logits: NDArray[Any]) -> NDArray[Any]:
    """Log-probabilities `[B, A]` of logits `[B, A]`, in their dtype."""
    shifted, log_total = _shifted(logits)
    result: NDArray[Any] = shifted - log_total[:, None]
    return result


def _shifted(logits: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Logits `[B, A]` with 0 as each row's largest, and log Σ exp `[B]` of those."""
    # ufuncs directly: for a few rows the array's methods take twice the time
    shifted = logits - np.maximum.reduce(logits, axis=1, keepdims=True)
    return shifted, np.log(np.add.reduce(np.exp(shifted), axis=1))
