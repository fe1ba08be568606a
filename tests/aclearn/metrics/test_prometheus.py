"""Figures of a metrics line under names of Prometheus's convention."""

from __future__ import annotations

import re

import pytest

from aclearn.metrics.names import FIXED_FIGURES, OWNED_FIGURES, TRAINER_FIGURES
from aclearn.metrics.prometheus import samples


def _of(line: dict) -> dict[tuple, float]:
    return {
        (each.name, each.counts, *(f"{k}={v}" for k, v in each.labels.items() if v)): each.value
        for each in samples(line)
    }


def test_figures_have_base_units_and_mappings_have_labels() -> None:
    line = {
        "env_steps": 12,
        "time_s": 2.5,
        "pps": 7.0,
        "learned_steps_per_s": 3.0,
        "queue_fill": 0.25,
        "compressor_latency_ms_16": 4.0,
        "predictor_wait_ms_p99": 8.0,
        "dropped_steps": {"lag": 3, "lost": 1},
        "part_seconds": {"actor": {"inference": 0.5}},
        "wait_share": {"actor": {"working": 0.75}},
        "policy": "default",
        "target_return": None,
        "a b/é": 5.0,
        "policies": {"runner": {"entropy": 0.5, "dropped_steps": {"lag": 2}}},
    }
    assert _of(line) == {
        ("aclearn_env_steps", True): 12.0,
        ("aclearn_time_seconds", False): 2.5,
        ("aclearn_predictions_per_second", False): 7.0,
        ("aclearn_learned_steps_per_second", False): 3.0,
        ("aclearn_queue_fill_ratio", False): 0.25,
        ("aclearn_compressor_latency_seconds", False, "observations=16"): 0.004,
        ("aclearn_predictor_wait_p99_seconds", False): 0.008,
        ("aclearn_dropped_steps", True, "reason=lag"): 3.0,
        ("aclearn_dropped_steps", True, "reason=lost"): 1.0,
        ("aclearn_part_seconds", True, "role=actor", "part=inference"): 0.5,
        ("aclearn_wait_ratio", False, "role=actor", "state=working"): 0.75,
        ("aclearn_figure", False, "figure=a b/é"): 5.0,
        ("aclearn_entropy", False, "policy=runner"): 0.5,
        ("aclearn_dropped_steps", True, "policy=runner", "reason=lag"): 2.0,
    }


def test_every_name_of_ours_follows_the_convention_and_no_two_are_one() -> None:
    figures = {*FIXED_FIGURES, *TRAINER_FIGURES, *OWNED_FIGURES}
    found = list(samples(dict.fromkeys(figures, 1.0)))
    assert {each.figure for each in found} == figures
    names = [each.name for each in found]
    assert len(set(names)) == len(names)
    # what `promtool check metrics` refuses: other units than base units, and types in names
    wrong = re.compile(r"_(ms|s|share|percent|milliseconds|total|count|sum|bucket|info)(_|$)")
    assert [name for name in names if wrong.search(name) or name == "aclearn_figure"] == []


def test_a_count_that_begins_again_at_a_checkpoint_stands_still_until_it_is_beyond() -> None:
    pytest.importorskip("prometheus_client")
    from aclearn.metrics.sinks.prometheus_sink import PrometheusSink

    sink, seen = PrometheusSink("127.0.0.1", 0), []
    for learned, rate in ((900, 3.0), (700, 1.0), (950, 2.0)):
        sink.write({"learned_steps": learned, "learned_steps_per_s": rate})
        values = {family.name: family.samples[0].value for family in sink.collect()}
        seen.append(tuple(values.values()))
    assert seen == [(900.0, 3.0), (900.0, 1.0), (950.0, 2.0)]
