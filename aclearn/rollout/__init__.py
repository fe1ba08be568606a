"""Acting, building unrolls, and the actor's account of its steps; free of torch."""

from __future__ import annotations

from aclearn.rollout.acting import ActInput, Executable, PolicySnapshot, act, act_in_parts
from aclearn.rollout.episode_cohorts import EpisodeCohorts
from aclearn.rollout.episode_statistics import EpisodeTracker, FinishedEpisode
from aclearn.rollout.exploration import (
    EpsilonGreedy,
    OrnsteinUhlenbeckNoise,
    final_epsilons,
    share_left,
)
from aclearn.rollout.info_metrics import InfoMetrics
from aclearn.rollout.unroll_builder import UnrollBuilder, UnrollCounter
