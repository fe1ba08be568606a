"""The names of metrics that more than one module reads."""

from __future__ import annotations

from typing import Final

#: `return_mean_100` counts as the run's once so many episodes have ended.
EPISODES_FOR_TARGET = 100

#: Counts that a trainer reports and a line has under their names.
TRAINER_COUNTS: Final = (
    "updates",
    "generation",
    "policy_version",
    "checkpoint_failures",
    "unsaved_updates",
    "unsaved_steps",
)

METRIC_NAMES: Final = (
    "time_s",
    "env_steps",
    "accounted_env_steps",
    "learned_steps",
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
    "episodes_in_mean",
    "episodes",
    "lag_mean",
    "lag_max",
    "wait_share",
)
"""Names in every line of a `MetricsAggregator`; its others are gauges, or `PART_SECONDS`. Who
writes the line adds what it knows itself, such as `target_return`."""

PART_SECONDS: Final = "part_seconds"
"""Role → part of its work → cumulative seconds of all its threads; where roles report parts."""

WAIT_SHARE: Final = "wait_share"
"""Role → "working" or a label below → share of its time; each role's shares add up to 1."""

#: What a role waits for.
UNROLLS, ACTIONS, EMULATOR = "unrolls", "actions", "emulator"
REQUESTS, WEIGHTS, TRAINING_QUEUE = "requests", "weights", "training queue"

#: Queue → the gauge of its fill, 0 to 1.
QUEUE_FILLS: Final = {
    TRAINING_QUEUE: "queue_fill",
    "prediction queue": "predictor_queue_fill",
}
#: Role → the gauge of the share of its time that its thread for messages works.
SOCKETS_BUSY: Final = {"trainer": "sockets_busy", "predictor": "predictor_sockets_busy"}
#: Gauge of the monitor: CPU cores of its machine that are idle. Only where every role is on that
#: machine.
FREE_CORES: Final = "monitor_free_cores"
#: Gauges of a run whose tuner is on; for each count that it may change one more, `tuner_<count>`.
TUNER_TEMPERATURE, TUNER_FROZEN = "tuner_temperature", "tuner_frozen"
TUNED_COUNTS: Final = ("predictors", "trainers", "actors")
