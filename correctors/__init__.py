"""Off-policy correction: pure functions on tensors, and the chain that the trainer applies.

The behaviour policy μ that chose an action is older than the target policy π that learns from it,
and may be compressed. V-trace corrects value targets and advantages, importance sampling the policy
gradient.
"""

from __future__ import annotations

from correctors.chain import Correction, CorrectionInput, Corrector, CorrectorChain
from correctors.importance import ImportanceSampling, importance_weights
from correctors.vtrace import VTrace, VTraceReturns, vtrace

__all__ = [
    "Correction",
    "CorrectionInput",
    "Corrector",
    "CorrectorChain",
    "ImportanceSampling",
    "VTrace",
    "VTraceReturns",
    "importance_weights",
    "vtrace",
]
