"""TensorBoard tags of a run's metrics; the first part of a tag is its group."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from aclearn.metrics.names import (
    CHAIN_STEPS,
    GAP_FIGURES,
    PART_SECONDS,
    POLICIES,
    SLOPE_FIGURES,
)

_TAGS: Final = {
    **{
        name: f"run/{name}"
        for name in ("time_s", "updates", "ended_batches", "generation", "policy_version")
    },
    "return_mean_100": "return/mean_100",
    "best_return": "return/best",
    "judged_return": "return/judged",
    "target_return": "return/target",
    "reached_target_at_s": "return/reached_target_at_s",
    **{name: f"return/{name.removeprefix('return_')}" for name in (*SLOPE_FIGURES, *GAP_FIGURES)},
    "episode_length_mean": "return/episode_length_mean",
    "episodes": "return/episodes",
    "episodes_in_mean": "return/episodes_in_mean",
    **{
        name: f"rate/{name}"
        for name in ("env_steps_per_s", "learned_steps_per_s", "pps", "tps", "frames_per_s")
    },
    "accounted_env_steps": "steps/accounted",
    "learned_steps": "steps/learned",
    "in_flight_steps": "steps/in_flight",
    "dropped_steps": "steps/dropped",
    "lag_mean": "lag/mean",
    "lag_max": "lag/max",
    **{
        name: f"loss/{name}"
        for name in (
            *("policy_loss", "value_loss", "explained_variance", "entropy"),
            *("q_mean", "gradient_norm", "learning_rate"),
        )
    },
    **{
        name: f"off_policy/{name}"
        for name in (
            "behaviour_kl",
            "behaviour_kl_estimate",
            "rho_mean",
            "effective_sample_share",
            "clipped_rho_share",
            "clipped_c_share",
            "kl_dropped_share",
            "unroll_dropped_share",
            "ratio_masked_share",
            "gap_masked_share",
            "drift_masked_share",
            "tv_masked_share",
            "second_moment_masked_share",
            "adaptive_strength",
            "step_scale",
            "gap_kl",
            "drift_kl",
            "split_share",
            "auto_gap_strength",
            "auto_drift_strength",
            "auto_masked_share",
            "proximal_kl",
            "clipped_ratio_share",
        )
    },
    **{
        name: f"checkpoint/{name.removeprefix('checkpoint_')}"
        for name in ("checkpoint_failures", "checkpoint_age_s", "unsaved_updates", "unsaved_steps")
    },
    "wait_share": "wait",
    # its axis is the number of decisions, not env_steps: a group of its own
    "tuner_decision": "tuner_decision",
}
#: First parts of gauges that are groups beside the roles.
_GROUPS: Final = ("info", "plugin", "strategy", "tuner")
# The axis itself, and sums since the start, which make no useful curve.
_LEFT_OUT: Final = frozenset({"env_steps", PART_SECONDS, CHAIN_STEPS})


def tagged(
    line: Mapping[str, Any], roles: Collection[str], indicators: Collection[str] = ()
) -> Iterator[tuple[str, float]]:
    """Tag and value of every number in a metrics line, e.g. `wait/actor/emulator`.

    Those of one of several policies end with its name, `return/mean_100/tagger`: one group shows
    the curves of all. A gauge without its own group is in that of its role; the trainer's have no
    prefix in the line.
    None and other values that are no number are left out.
    """
    groups = {*roles, *_GROUPS}
    for name, value in line.items():
        if name == POLICIES:
            for policy, part in value.items():
                for tag, number in tagged(part, roles, indicators):
                    yield f"{tag}/{policy}", number
        elif name not in _LEFT_OUT:
            tag = f"indicator/{name}" if name in indicators else _tag_of(name, groups)
            yield from _numbers(tag, value)


def _tag_of(name: str, groups: Collection[str]) -> str:
    group, _, rest = name.partition("_")
    grouped = f"{group}/{rest}" if group in groups and rest else f"trainer/{name}"
    return _TAGS.get(name, grouped)


def _numbers(tag: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _numbers(f"{tag}/{name}", part)
    elif isinstance(value, int | float):
        yield tag, float(value)
