"""Links of the chain that correct targets of Q by the functions of `action_values`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from correctors._checks import check_fraction
from correctors.action_values import importance_sampling, q_lambda, retrace, tree_backup
from correctors.chain import Correction, CorrectionInput


@dataclass(frozen=True)
class _ActionValueLink:
    """Sets the targets G of Q(x_t, a_t), and the advantages G − Σ_a π(a|x_t) Q(x_t, a)."""

    lambda_: float = 1.0

    needs: ClassVar[frozenset[str]] = frozenset(
        {"values", "rewards", "discounts", "done", "actions", "q_next", "next_target_probs"}
    )
    returns: ClassVar[Callable[..., Tensor]]

    def __post_init__(self) -> None:
        check_fraction("lambda_", self.lambda_)

    def correct(self, batch: CorrectionInput, correction: Correction) -> Correction:
        """`correction` with targets and advantages replaced."""
        ratios = {}
        if "log_rhos" in self.needs:
            ratios["next_log_rhos"] = _next(batch.required("log_rhos"))
        targets = type(self).returns(
            q_next=batch.required("q_next"),
            next_actions=_next(batch.required("actions")),
            next_target_probs=batch.required("next_target_probs"),
            rewards=batch.rewards,
            discounts=batch.discounts,
            done=batch.done,
            lambda_=self.lambda_,
            **ratios,
        )
        return replace(correction, targets=targets, advantages=targets - batch.values.detach())


def _next(steps: Tensor) -> Tensor:
    """The entries of the next step; the last step's entry is not read."""
    return torch.cat([steps[1:], steps[-1:]])


class Retrace(_ActionValueLink):
    """Retrace(λ): c = λ · min(1, ρ)."""

    needs = _ActionValueLink.needs | {"log_rhos"}
    returns = staticmethod(retrace)


class TreeBackup(_ActionValueLink):
    """Tree-backup(λ): c = λ · π(a)."""

    returns = staticmethod(tree_backup)


class QLambda(_ActionValueLink):
    """Q^π(λ): c = λ."""

    returns = staticmethod(q_lambda)


class QImportanceSampling(_ActionValueLink):
    """Per-decision importance sampling: c = λ · ρ."""

    needs = _ActionValueLink.needs | {"log_rhos"}
    returns = staticmethod(importance_sampling)
