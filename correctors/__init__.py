"""Off-policy correction: pure functions on tensors, and the chain that the trainer applies.

The behaviour policy μ that chose an action is older than the target policy π that learns from it,
and may be compressed. V-trace corrects targets of V and advantages; Retrace, tree-backup, Q(λ) and
importance sampling correct targets of Q; importance weights correct the policy gradient.
"""

from __future__ import annotations

from correctors.action_value_links import QImportanceSampling, QLambda, Retrace, TreeBackup
from correctors.action_values import importance_sampling, q_lambda, retrace, tree_backup
from correctors.adaptive import Adaptive
from correctors.auto import Auto
from correctors.chain import Correction, CorrectionInput, Corrector, CorrectorChain, Measuring
from correctors.corrector_check import check_corrector
from correctors.epsilon import EpsilonCorrection
from correctors.importance import ImportanceSampling, importance_weights
from correctors.kl_filter import KLFilter
from correctors.n_step import NStep
from correctors.no_correction import NoCorrection
from correctors.parts import Part, log_ratios, part_of
from correctors.ratio_mask import RatioMask
from correctors.scale_by_ess import ScaleByESS
from correctors.second_moment import SecondMoment
from correctors.tv_mask import TVMask
from correctors.unroll_mask import UnrollMask
from correctors.vtrace import VTrace, VTraceReturns, vtrace

__all__ = [
    "Adaptive",
    "Auto",
    "Correction",
    "CorrectionInput",
    "Corrector",
    "CorrectorChain",
    "EpsilonCorrection",
    "ImportanceSampling",
    "KLFilter",
    "Measuring",
    "NStep",
    "NoCorrection",
    "Part",
    "QImportanceSampling",
    "QLambda",
    "RatioMask",
    "Retrace",
    "ScaleByESS",
    "SecondMoment",
    "TVMask",
    "TreeBackup",
    "UnrollMask",
    "VTrace",
    "VTraceReturns",
    "check_corrector",
    "importance_sampling",
    "importance_weights",
    "log_ratios",
    "part_of",
    "q_lambda",
    "retrace",
    "tree_backup",
    "vtrace",
]
