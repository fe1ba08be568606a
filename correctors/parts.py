"""The parts of an importance ratio: π/μ = π_v/μ · π/π_v.

π_v is the uncompressed policy of the version that acted. Its first part, the implementation gap, is
what compression changed; the second, the drift, what was learned since. Corrected one by one they
make the decoupled objective: a policy to be near to apart from the one that acted (Hilton et al.
2022, "Batch size-invariance for policy optimization").
"""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor

from correctors.chain import CorrectionInput

#: The whole ratio π/μ, its implementation gap π_v/μ, or its drift π/π_v.
Part = Literal["ratio", "gap", "drift"]


def check_part(part: str) -> None:
    """Raise `ValueError` unless `part` is a `Part`."""
    if part not in get_args(Part):
        raise ValueError(f"part: expected {', '.join(get_args(Part))}, got {part!r}")


def needs_of(part: Part) -> frozenset[str]:
    """The fields that `log_ratios` reads."""
    names = {"ratio": {"log_rhos"}, "gap": {"log_gaps"}, "drift": {"log_rhos", "log_gaps"}}
    return frozenset(names[part])


def log_ratios(batch: CorrectionInput, part: Part) -> Tensor:
    """The logarithm of this part, [T, B]."""
    if part == "gap":
        return batch.required("log_gaps")
    log_rhos = batch.required("log_rhos")
    return log_rhos if part == "ratio" else log_rhos - batch.required("log_gaps")


def part_of(log_rhos: Tensor, log_gaps: Tensor, part: Part) -> Tensor:
    """The logarithm of this part of an update's steps, [N]; NaN of those that do not count."""
    return {
        "ratio": log_rhos,
        "gap": log_gaps.where(~log_rhos.isnan(), log_rhos),
        "drift": log_rhos - log_gaps,
    }[part]
