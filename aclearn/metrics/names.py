"""The names of metrics that more than one module reads."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from aclearn.errors import ConfigError, did_you_mean
from aclearn.runs import NO_NUMBERS

if TYPE_CHECKING:
    from aclearn.config import Config

#: Least number of episodes of a `return_mean_100` that decides anything.
EPISODES_FOR_TARGET = 100

#: Counts of the trainer that a line has under the same names.
TRAINER_COUNTS: Final = (
    "updates",
    "ended_batches",
    "generation",
    "policy_version",
    "checkpoint_failures",
    "unsaved_updates",
    "unsaved_steps",
)

#: Before the name of a figure of `env.info_metrics`.
INFO: Final = "info_"

METRIC_NAMES: Final = (
    "time_s",
    "policy",
    "env_steps",
    "accounted_env_steps",
    "learned_steps",
    "learned_steps_since_start",
    "dropped_steps",
    "in_flight_steps",
    *TRAINER_COUNTS,
    "checkpoint_error",
    "env_steps_per_s",
    "learned_steps_per_s",
    "pps",
    "tps",
    "return_mean_100",
    "best_return",
    "episode_length_mean",
    "episodes_in_mean",
    "episodes",
    "lag_mean",
    "lag_max",
    "wait_share",
)
"""Names in every line of a `MetricsAggregator`; its others are gauges, or `PART_SECONDS`. The
writer of the line adds its own, such as `target_return`."""

PART_SECONDS: Final = "part_seconds"
"""Role → part of its work → cumulative seconds of all its threads, if the role reports parts."""

CHAIN_STEPS: Final = "chain_steps"
"""Chain of a policy → steps of learned batches that it chose, if a compressor makes policies."""

POLICIES: Final = "policies"
"""Policy → its figures, by the same names, in a run with several policies."""

WAIT_SHARE: Final = "wait_share"
"""Role → "working" or a label below → share of its time; each role's shares add up to 1."""

#: Reasons to wait.
UNROLLS, ACTIONS, EMULATOR = "unrolls", "actions", "emulator"
REQUESTS, TRAINING_QUEUE = "requests", "training queue"
WEIGHTS, NEWER_WEIGHTS = "weights", "newer weights"

#: Queue → the gauge of its fill, 0 to 1.
QUEUE_FILLS: Final = {
    TRAINING_QUEUE: "queue_fill",
    "prediction queue": "predictor_queue_fill",
}
#: Role → the gauge of the busy share of its message thread.
SOCKETS_BUSY: Final = {"trainer": "sockets_busy", "predictor": "predictor_sockets_busy"}
#: Seconds between two heartbeats of an actor.
HEARTBEAT_EVERY_S: Final = "monitor_heartbeat_every_s"
#: Number of resident environments, in a line of a run with them.
RESIDENT_ENVS: Final = "resident_envs"
#: Agent steps learned since the trainer's start.
LEARNED_HERE: Final = "learned_steps_since_start"
#: Gauge of a trainer with a replay memory: steps drawn so far for each new one.
REPLAY_RATIO: Final = "replay_ratio"
#: Gauge of the monitor: idle CPU cores of its machine, if every role runs there.
FREE_CORES: Final = "monitor_free_cores"
#: Gauges of the compressors: the rung of their newest measurements; 1 if their newest artifact is
#: of that rung.
RUNG, COMPRESSED = "compressor_rung", "compressor_compressed"
#: Observations of a largest KL divergence at least (AcceRL, eq. 5).
LEAST_FOR_KL_MAX: Final = 1024
#: Gauges of the tuner; `tuner_<count>` is one more for each count that it may change.
TUNER_TEMPERATURE, TUNER_FROZEN = "tuner_temperature", "tuner_frozen"
TUNED_COUNTS: Final = ("predictors", "trainers", "actors")

#: Figures of our indicators, in every line.
SLOPE_FIGURES: Final = ("return_slope_per_s", "return_slope_per_step")
GAP_FIGURES: Final = ("return_mean_original", "return_mean_compressed", "reward_gap")
#: Single numbers in every line of a run; null until they are known.
FIXED_FIGURES: Final = (
    *(
        name
        for name in METRIC_NAMES
        if name not in ("policy", "dropped_steps", "checkpoint_error", WAIT_SHARE)
    ),
    "frames_per_s",
    RESIDENT_ENVS,
    "judged_return",
    "target_return",
    "reached_target_at_s",
    *SLOPE_FIGURES,
    *GAP_FIGURES,
)
#: Figures of an evaluator's newest evaluation, in every line of a run that has one.
EVALUATED: Final = (
    "evaluator_return_mean",
    "evaluator_return_standard_error",
    "evaluator_episodes",
    "evaluator_cut_episodes",
    "evaluator_generation",
    "evaluator_version",
    "evaluator_env_steps",
    "evaluator_seconds",
    "evaluator_compressed_return_mean",
    "evaluator_compressed_return_standard_error",
    "evaluator_compressed_version",
)
_SERVER_FIGURES: Final = (
    *("refused_messages", "refused_connections", "refused_keys", "refused_rights"),
)
_WORKER_FIGURES: Final = (*_SERVER_FIGURES, "queue_fill", "workers", "sockets_busy")
_COMPRESSOR_FIGURES: Final = (
    *("kl_mean", "kl_variance", "kl_max", "kl_observations", "agreement"),
    *("artifact_bytes", "artifact_version", "artifact_interval_s", "compress_ms"),
    *("compressed", "artifacts", "rung", "uncompressed_artifacts", "errors"),
)
_POLICY_FIGURES: Final = ("policy_swaps", "policy_refused", "state_restarts")
#: Gauges of the trainer, under these names.
TRAINER_FIGURES: Final = (
    *("policy_loss", "value_loss", "entropy", "gradient_norm", "learning_rate"),
    "explained_variance",
    *("rho_mean", "behaviour_kl", "behaviour_kl_estimate", "effective_sample_share"),
    *("clipped_rho_share", "clipped_c_share", "kl_dropped_share", "unroll_dropped_share"),
    *("ratio_masked_share", "gap_masked_share", "drift_masked_share", "tv_masked_share"),
    *("second_moment_masked_share", "adaptive_strength", "step_scale"),
    *("gap_kl", "drift_kl", "split_share"),
    *("auto_gap_strength", "auto_drift_strength", "auto_masked_share"),
    *("proximal_kl", "clipped_ratio_share", "replay_steps", REPLAY_RATIO, "q_mean"),
    "temperature",
    *("batch_steps", "compressed_share", "checkpoint_age_s", *_WORKER_FIGURES),
    "recorded_batches",
)


def _of(owner: str, *gauges: str) -> tuple[str, ...]:
    return tuple(f"{owner}_{gauge}" for gauge in gauges)


#: Gauges of other roles and of parts of the monitor, each with its owner's name in front.
OWNED_FIGURES: Final = (
    *_of("actor", "env_faults", "in_flight_unrolls", "refused_unrolls", "repeated_unrolls"),
    *_of("actor", "clipped_action_share", "compressed_share", "repeated_requests"),
    *_of("actor", "refused_info"),
    *_of("actor", *_POLICY_FIGURES),
    *_of("predictor", "batch_mean", "wait_ms_p50", "wait_ms_p99"),
    *_of("predictor", *_POLICY_FIGURES, *_WORKER_FIGURES),
    *_of("compressor", *_COMPRESSOR_FIGURES, "cpu_share", *_SERVER_FIGURES),
    *_of("compressor_distill", "loss", "kl", "steps", "deaths"),
    *EVALUATED,
    *_of("evaluator", "age_s", "evaluations", "since_best", "best_return", "restarts"),
    *_of("evaluator", "env_faults", "policy_refused", "cpu_share"),
    *_of(
        "monitor",
        "free_cores",
        "heartbeat_every_s",
        *_SERVER_FIGURES,
        "plugin_failures",
        "indicator_failures",
    ),
    *_of("monitor", "directives", "directives_unacknowledged", "directives_overruled"),
    *_of("monitor", "directives_refused"),
    *_of("monitor", "sink_failures", "sink_dropped"),
    *_of("strategy", "rung", "compressed_share", "stage", "wait_s"),
    *_of("tuner", "temperature", "frozen", "noise", "rate", "baseline", "file_warnings"),
    *_of("tuner", *TUNED_COUNTS),
)
#: Figures that each of several policies has, and the run has not.
_OF_EACH_POLICY: Final = frozenset(
    {*TRAINER_FIGURES, *_of("compressor", *_COMPRESSOR_FIGURES)}
    - {*_WORKER_FIGURES, "batch_steps", "compressed_share", "checkpoint_age_s"}
)
_OWNERS: Final = frozenset(name.partition("_")[0] for name in OWNED_FIGURES)
_LATENCY: Final = re.compile(r"compressor_latency_ms_\d+")
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")


def refused_name(name: object) -> str | None:
    """Why a user's indicator cannot give a line a figure of this name; None where it can."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"expected lower-case letters, digits and _, at most 64, got {name!r:.100}"
    ours = {*METRIC_NAMES, *FIXED_FIGURES, *TRAINER_FIGURES, *NO_NUMBERS}
    first = name.partition("_")[0]
    if name in ours or first in _OWNERS | {"trainer", "plugin", "metrics", "info"}:
        return f"{name!r} is a name of ours, or begins like one; choose another one"
    return None


def check_line_name(
    name: str, config: Config, *, key: str, roles: Collection[str], own: Collection[str] = ()
) -> None:
    """Refuse the name of a figure that no metrics line of a run can have.

    Args:
        name: of a single number in a line, for instance `compressor_kl_max`.
        config: of the run; parts of the user's own may report figures of any name.
        key: of the configuration, which the message begins with.

    Raises:
        ConfigError: says what was expected.
    """
    if config.policies and name in _OF_EACH_POLICY:
        raise ConfigError(
            f"{key}: each of several policies has a figure {name!r} of its own, and this follows "
            "one of the run, such as return_mean_100; name one of these, or remove it"
        )
    owners = {*roles, "monitor", *(["tuner"] if config.tuner.enabled else [])}
    owned = (figure for figure in OWNED_FIGURES if figure.partition("_")[0] in owners)
    known = {*FIXED_FIGURES, *TRAINER_FIGURES, *own, *owned}
    if name not in known and not _may_be_the_users(name, config, roles):
        raise ConfigError(
            f"{key}: no metrics line of this run has a figure {name!r}"
            f"{did_you_mean(name, known) or '; docs/metrics.md has their names'}"
        )


def _may_be_the_users(name: str, config: Config, roles: Collection[str]) -> bool:
    """Whether a plug-in, link, loss or corrector of the user's own may report it."""
    first = name.partition("_")[0]
    if name.startswith(INFO):
        return bool(config.env.info_metrics)
    if name.startswith(f"evaluator_{INFO}"):
        return config.evaluator.enabled and bool(config.evaluator_env.info_metrics)
    if first == "plugin":
        return bool(config.monitor.plugins)
    if first == "compressor":
        compressed = first in roles
        return compressed and (_LATENCY.fullmatch(name) is not None or _has_own_link(config))
    learning = [config.loss.kind, *(corrector.name for corrector in config.correctors)]
    return first not in _OWNERS and any(":" in each for each in learning)


def _has_own_link(config: Config) -> bool:
    return ":" in str(config.compressor.rungs)
