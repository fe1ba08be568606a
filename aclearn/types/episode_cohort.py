"""Episodes that began together, as sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from aclearn.types.array_rules import Count

#: Cohorts in a heartbeat, whose header has a bound; more are joined.
MOST_COHORTS: Final = 64
#: Figures of `env.info_metrics` of a process: one entry may name a mapping of any size.
MOST_INFO_METRICS: Final = 32
#: Bytes of all cohorts in a heartbeat: its header of 64 KiB has 1000 episodes too.
_MOST_BYTES: Final = 24_000
#: Bytes of a cohort without figures, and of one figure without its name, which is there twice.
_COHORT_BYTES, _FIGURE_BYTES = 128, 24


@dataclass(frozen=True, slots=True)
class EpisodeCohort:
    """All episodes that began in one interval, once the last of them has ended.

    Means over whole cohorts are not biased by length: of the episodes that *end* in an interval,
    the short ones are the first.

    Attributes:
        begun_s: when the first of them began, on the clock of the process that played them.
        episodes: their number, without those that an environment's fault cut.
        info_sums: name of a figure of `env.info_metrics` → its sum.
        info_counts: name → number of episodes that have it.
    """

    begun_s: float
    episodes: Count
    return_sum: float
    length_sum: Count
    info_sums: dict[str, float] = field(default_factory=dict)
    info_counts: dict[str, Count] = field(default_factory=dict)

    @classmethod
    def joined(cls, cohorts: Sequence[EpisodeCohort]) -> EpisodeCohort:
        """All of these, at least one, as one cohort with their first `MOST_INFO_METRICS` names."""
        if len(cohorts) == 1 and len(cohorts[0].info_sums) <= MOST_INFO_METRICS:
            return cohorts[0]
        union = dict.fromkeys(name for each in cohorts for name in each.info_sums)
        names = list(union)[:MOST_INFO_METRICS]
        return cls(
            min(each.begun_s for each in cohorts),
            sum(each.episodes for each in cohorts),
            math.fsum(each.return_sum for each in cohorts),
            sum(each.length_sum for each in cohorts),
            {name: math.fsum(each.info_sums.get(name, 0.0) for each in cohorts) for name in names},
            {name: sum(each.info_counts.get(name, 0) for each in cohorts) for name in names},
        )


def bounded_cohorts(cohorts: Sequence[EpisodeCohort], share: float = 1.0) -> list[EpisodeCohort]:
    """At most `MOST_COHORTS` cohorts of the same episodes; neighbours are joined.

    There are fewer where the names of their figures are many or long.

    Args:
        share: of a heartbeat's room for them; the cohorts of other policies have the rest.
    """
    names = {name for each in cohorts for name in each.info_sums}
    longest = sorted((len(name.encode()) for name in names), reverse=True)[:MOST_INFO_METRICS]
    cohort_bytes = _COHORT_BYTES + sum(2 * length + _FIGURE_BYTES for length in longest)
    most = max(1, int(share * min(MOST_COHORTS, _MOST_BYTES // cohort_bytes)))
    size = -(-len(cohorts) // most) or 1
    groups = (cohorts[at : at + size] for at in range(0, len(cohorts), size))
    return [EpisodeCohort.joined(group) for group in groups]
