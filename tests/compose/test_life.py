"""A running cluster: kills, scaling, a restart, a stop, and resuming."""

from __future__ import annotations

import json
import os
import re
import signal

import pytest

from tests.support.compose import ROLES, Cluster, docker, override, pause
from tests.support.metrics_lines import check_lines
from tests.support.waiting import wait_for

#: A run without an end.
ENDLESS = "run.target_return=null run.metrics_every_s=0.25"


def kill(cluster: Cluster, role: str) -> str:
    """SIGKILL the process of a role's first container; returns the container's id."""
    container = cluster.containers(role)[0]
    os.kill(cluster.state(container)["Pid"], signal.SIGKILL)
    return container


def running(cluster: Cluster, role: str) -> int:
    """Number of a role's running containers."""
    return sum(cluster.state(c)["Running"] for c in cluster.containers(role))


def goes_on(cluster: Cluster, *, within_s: float) -> None:
    """Wait until more is learned."""
    most = max(line["learned_steps"] for line in cluster.lines())
    cluster.wait_until_learned(most, within_s=within_s)


@pytest.mark.timeout(1200)  # beside another test, a slow CPU has taken 425 s
def test_a_cluster_outlives_kills_scaling_and_a_restart_and_goes_on_after_a_stop(clone) -> None:
    cluster = clone()
    cluster.compose("up", "--detach", ARGS=ENDLESS)
    cluster.wait_until_learned(5000)

    for role in ROLES:
        container = kill(cluster, role)
        wait_for(
            lambda c=container: cluster.state(c)["RestartCount"] == 1, f"{role} is started again"
        )
        # a trainer also needs the time of its own start
        goes_on(cluster, within_s=25 if role == "trainer" else 10)
    assert cluster.last("generation") == 1
    # the monitor names the killed processes; all but the actors have their names again
    for name in ("trainer-0", "predictor-0", "compressor-0", "actor-"):
        words = rf"event=run text='{name}\d? is back: its previous process was killed"
        wait_for(
            lambda w=words: re.search(w, cluster.logs()),
            f"the monitor says that {name} was killed",
            context=cluster.logs,
        )

    for count in (0, 4, 2):
        cluster.compose("up", "--detach", "--scale", f"actor={count}", ARGS=ENDLESS)
        assert running(cluster, "actor") == count
    goes_on(cluster, within_s=30)

    cluster.compose("restart")
    goes_on(cluster, within_s=40)
    assert {role: running(cluster, role) for role in ROLES} == dict.fromkeys(ROLES, 1) | {
        "actor": 2
    }

    cluster.compose("stop", within_s=10)
    summary = json.loads((cluster.run() / "summary.json").read_text())
    assert summary["reason"] == "SIGTERM"
    codes = cluster.exit_codes()
    assert not any(137 in each for each in codes.values()), f"{codes}\n{cluster.report()}"
    saved = summary["learned_steps"]

    cluster.compose("up", "--detach", ARGS=ENDLESS)
    cluster.wait_until_learned(saved + 1000)
    cluster.compose("stop")

    # a role that is not heard while the run ends, ends when it is back
    quick = "monitor.silent_after_s=6 actors.step_timeout_s=5"
    ending = f"{ENDLESS} {quick} run.max_updates={cluster.last('updates') + 150}"
    generation = cluster.last("generation")
    cluster.compose("up", "--detach", ARGS=ending)
    # actors stand still until the compressor does: 150 updates may be over before it is paused
    actors = cluster.containers("actor")
    pause(*actors)
    # without a policy, which only the compressor gives it, the predictor would let them stand still
    wait_for(
        lambda: cluster.last("generation") > generation and cluster.last("predictor_policy_swaps"),
        "the predictor has a policy of the resumed trainer",
        context=cluster.report,
    )
    [compressor] = cluster.containers("compressor")
    pause(compressor)
    docker("unpause", *actors)
    [monitor] = cluster.containers("monitor")
    wait_for(
        lambda: not cluster.state(monitor)["Running"],
        "the monitor has ended without the compressor",
        within_s=90.0,
        context=cluster.report,
    )
    docker("unpause", compressor)
    wait_for(
        lambda: not cluster.state(compressor)["Running"],
        "the compressor has ended by itself",
        context=cluster.report,
    )
    assert cluster.exit_codes() == {role: [0] * (1 + (role == "actor")) for role in ROLES}
    check_lines(cluster.lines())
    assert "Traceback" not in cluster.logs()


def test_a_container_that_still_imports_ends_as_soon_as_it_is_told(clone) -> None:
    cluster = clone()
    slow = cluster.folder / "slow"
    slow.mkdir()
    waits = "import os, time\nos.write(2, b'importing\\n')\ntime.sleep(600)\n"
    (slow / "onnx.py").write_text(waits)
    cluster.folder.chmod(0o755)  # these imports come before root becomes its owner
    override(cluster, trainer={"environment": {"PYTHONPATH": "/work/slow"}})
    cluster.compose("up", "--detach", "trainer")
    wait_for(lambda: "importing" in cluster.logs(), "it imports", context=cluster.report)
    cluster.compose("stop")
    assert cluster.exit_codes()["trainer"] == [143]  # 137: killed after its grace
