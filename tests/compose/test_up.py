"""`docker-compose up` in a fresh clone: it trains, it ends, and a finished run stays finished."""

from __future__ import annotations

import json
import time

from tests.support.compose import ROLES
from tests.support.metrics_lines import check_lines
from tests.support.waiting import DEADLINE_S, patience


def test_up_trains_to_the_target_and_every_container_ends_with_0(clone) -> None:
    cluster = clone()
    begun = time.monotonic()
    up = cluster.start("up")
    cluster.wait_until_learned()
    print(f"first learned step after {time.monotonic() - begun:.1f} s")
    assert up.wait(2 * DEADLINE_S) == 0, cluster.logs()

    output = cluster.log.read_text()
    assert "Traceback" not in output, output
    summary = json.loads((cluster.run() / "summary.json").read_text())
    assert summary["reason"] == "target_reached"
    assert summary["reached_target_at_s"] < 120 * patience()
    # later episodes change the mean, until the last actor has stopped
    first = next(line for line in cluster.lines() if line["reached_target_at_s"] is not None)
    assert first["return_mean_100"] >= 475
    assert cluster.exit_codes() == {role: [0] for role in ROLES} | {"actor": [0, 0]}, output
    check_lines(cluster.lines())
    # every role took part: predictions with the compressor's int8 policy, an evaluator, and a tuner
    # that tries counts
    assert summary["evaluator_evaluations"] >= 1
    assert summary["pps"] > 0 and summary["compressed_share"] > 0.9
    assert (cluster.run() / "tuner.jsonl").read_text().count("\n") >= 3
    # everything in the clone belongs to its owner
    everything = [cluster.folder, *cluster.folder.rglob("*")]
    assert {path.stat().st_uid for path in everything} == {cluster.owner}

    again = cluster.compose("up")
    assert "is over: it has reached its target of 475" in again
    assert 'to train another one: ARGS="run.seed=2"' in again
    assert cluster.exit_codes() == {role: [0] for role in ROLES} | {"actor": [0, 0]}
    assert json.loads((cluster.run() / "summary.json").read_text()) == summary
