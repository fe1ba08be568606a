"""Acting: choosing actions and collecting what follows into unrolls; free of torch."""

from aclearn.acting.sampling import greedy_actions, log_probs_of, log_softmax, sample_actions
from aclearn.acting.unroll import CollectedUnroll, UnrollBuilder, UnrollCounter

__all__ = [
    "CollectedUnroll",
    "UnrollBuilder",
    "UnrollCounter",
    "greedy_actions",
    "log_probs_of",
    "log_softmax",
    "sample_actions",
]
