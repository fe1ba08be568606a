"""What the tuner draws: which neighbour is tried first, and whether a loss is accepted."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from aclearn.control.tuner.setting_stats import Setting

#: How much more likely a neighbour is tried first that the waits suggest, or that goes on in the
#: direction that has just paid.
_FAVOUR = 4.0


def choose_trial(
    kept: Setting,
    fresh: Sequence[Setting],
    favoured: int | None,
    paid: tuple[int, int] | None,
    rng: random.Random,
) -> Setting:
    """One of the neighbours that have not been tried.

    Args:
        kept: what they are neighbours of.
        fresh: at least one; each differs in one count, by one.
        favoured: index of the count of which more might help.
        paid: index and direction of the step that has just paid.
        rng: draws; every neighbour stays possible.
    """
    weights = []
    for setting in fresh:
        [(i, step)] = [
            (i, b - a) for i, (a, b) in enumerate(zip(kept, setting, strict=True)) if b - a
        ]
        weight = _FAVOUR if i == favoured and step > 0 else 1.0
        weights.append(weight * (_FAVOUR if paid == (i, step) else 1.0))
    return rng.choices(fresh, weights)[0]


def metropolis(gain: float, temperature: float) -> float:
    """Probability with which a relative gain is accepted (Metropolis et al. 1953)."""
    if gain >= 0.0:
        return 1.0
    return math.exp(gain / temperature) if temperature > 0.0 else 0.0
