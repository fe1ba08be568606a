"""Latency of predictions, from an actor's request to its reply.

    python benchmarks/round_trip.py [--actors 16] [--envs-per-actor 1] [--seconds 20]

A predictor process with the `nature` network serves client processes in a closed loop. Each request
has `--envs-per-actor` observations of 84×84×4; new weights arrive eight times a second. Prints one
JSON line; `batch_mean` is the predictor's mean batch in observations.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.config import Config, load_config
from aclearn.wire import (
    ActReply,
    ActRequest,
    ChannelPoller,
    Heartbeat,
    HeartbeatReply,
    Hello,
    NoNewerWeights,
    Peer,
    Peers,
    Weights,
    WeightsRequest,
)
from services.role.context import RoleContext, RunEnv

_CONFIG = Path(__file__).resolve().parent.parent / "configs" / "pong_vtrace.yaml"
_OVERRIDES = (
    "run.name=round-trip",
    "policy.architecture=nature",
    "actors.inference=predictor",
    "monitor.heartbeat_every_s=0.2",
)
#: Seconds between two versions: eight updates a second of 320 steps are 2560 learned steps/s.
_PUBLISH_EVERY_S = 0.125
#: Seconds for a process to start, a reply to arrive, a process to end.
_START_WITHIN_S, _REPLY_WITHIN_S, _END_WITHIN_S = 60.0, 10.0, 10.0


class StubRun:
    """A monitor with one known trainer, and that trainer's weights, as a predictor sees them.

    Args:
        context: of the monitor; it binds `context.run.monitor`.
    """

    def __init__(self, context: RoleContext) -> None:
        # imported here: the clients start from this file too, and need no network runtime
        from parts import random_weights

        from services.policy.factory import architecture_of

        self._monitor = context.serve_at(
            context.run.monitor, dict.fromkeys((Hello, Heartbeat), ("predictor",))
        )
        self._weights, weights = context.serve("weights")
        self._trainer = Peer("trainer", "trainer-0", context.incarnation, {"weights": weights})
        self._tensors = random_weights(architecture_of(context.config))
        self._started = time.monotonic()
        self._poller = ChannelPoller(self._monitor, self._weights)
        self.predictor: Hello | None = None
        self.counters: dict[str, int] = {}

    def serve(self, timeout_s: float) -> None:
        """Answer pending messages; wait up to `timeout_s` for the first."""
        self._poller.wait(timeout_s)
        for address, envelope in self._monitor.receive(0.0):
            if isinstance(envelope.message, Hello):
                self.predictor = envelope.message
                self._monitor.send(address, Peers(1, [self._trainer]))
            elif isinstance(envelope.message, Heartbeat):
                self.counters = dict(envelope.message.counters)
                self._monitor.send(address, HeartbeatReply(1))
        version = int((time.monotonic() - self._started) / _PUBLISH_EVERY_S)
        for address, envelope in self._weights.receive(0.0):
            request = envelope.message
            assert isinstance(request, WeightsRequest)  # the server accepts nothing else
            if version > request.version:
                self._weights.send(address, Weights(0, version, self._tensors))
            else:
                self._weights.send(address, NoNewerWeights())


@dataclass(frozen=True)
class ClientTask:
    """Settings of one client."""

    endpoint: str
    monitor: str
    config: Config
    index: int
    envs: int
    warm_up_s: float
    seconds: float


def run_client(task: ClientTask, results: Connection) -> None:
    """Send requests for `task.seconds`; passes the round trips in seconds to `results`."""
    context = RoleContext("actor", task.index, task.config, RunEnv(task.monitor))
    try:
        client = context.connect(task.endpoint)
        rng = np.random.default_rng(task.index)
        observations = rng.integers(256, size=(task.envs, 4, 84, 84), dtype=np.uint8)
        number = 0

        def round_trip() -> float:
            nonlocal number
            number += 1
            began = time.perf_counter()
            if not client.send(
                ActRequest(number, {"observation": observations}), timeout_s=_REPLY_WITHIN_S
            ):
                raise RuntimeError(f"cannot reach the predictor at {task.endpoint}")
            envelope = client.receive(_REPLY_WITHIN_S)
            took_s = time.perf_counter() - began
            if envelope is None or not isinstance(envelope.message, ActReply):
                raise RuntimeError(f"expected an ActReply, got {envelope}")
            if envelope.message.request != number:
                raise RuntimeError(f"expected reply {number}, got {envelope.message.request}")
            return took_s

        round_trip()
        results.send("ready")
        if not results.poll(_START_WITHIN_S):
            raise RuntimeError(f"no start signal within {_START_WITHIN_S:g} s")
        results.recv()
        warm_until = time.monotonic() + task.warm_up_s
        while time.monotonic() < warm_until:
            round_trip()
        taken = []
        until = warm_until + task.seconds
        while time.monotonic() < until:
            taken.append(round_trip())
        results.send(taken)
    finally:
        context.close()


@contextmanager
def predictor_process(config_path: Path, monitor: str) -> Iterator[subprocess.Popen[bytes]]:
    """`aclearn role predictor` until the block ends; its log goes to stderr."""
    command = ("role", "predictor", str(config_path), "--monitor", monitor, "--name", "predictor-0")
    process = subprocess.Popen([sys.executable, "-m", "services.cli", *command])
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_END_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_END_WITHIN_S)


def measure(
    config: Config, directory: Path, *, actors: int, envs: int, warm_up_s: float, seconds: float
) -> dict[str, Any]:
    """Figures of `actors` clients at once."""
    config_path = directory / "config.yaml"
    config_path.write_text(config.to_yaml(), encoding="utf-8")
    address = f"ipc://{directory}/monitor.sock"
    context = RoleContext("monitor", 0, config, RunEnv(address))
    spawning = multiprocessing.get_context("spawn")
    clients: list[SpawnProcess] = []
    try:
        stub = StubRun(context)
        with predictor_process(config_path, address) as process:
            deadline = time.monotonic() + _START_WITHIN_S
            while stub.predictor is None:
                stub.serve(0.1)
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(
                        f"the predictor did not start within {_START_WITHIN_S:g} s; see its log"
                    )
            endpoint = stub.predictor.endpoints["predictions"]
            ends = []
            for index in range(actors):
                task = ClientTask(endpoint, address, config, index, envs, warm_up_s, seconds)
                ours, theirs = spawning.Pipe()
                client = spawning.Process(target=run_client, args=(task, theirs))
                client.start()
                theirs.close()
                clients.append(client)
                ends.append(ours)
            _gather(stub, ends, within_s=_START_WITHIN_S)
            for end in ends:
                end.send("go")
            _serve_until(stub, time.monotonic() + warm_up_s)
            before, began = stub.counters, time.monotonic()
            _serve_until(stub, began + seconds)
            after, measured_s = stub.counters, time.monotonic() - began
            taken = _gather(stub, ends, within_s=_START_WITHIN_S)
    finally:
        for client in clients:
            client.join(_END_WITHIN_S)
            if client.is_alive():
                client.kill()
        context.close()
    predictions = after["predictions"] - before["predictions"]
    batches = after["prediction_batches"] - before["prediction_batches"]
    return figures(np.concatenate(taken), seconds=seconds) | {
        "predictions_per_s": predictions / measured_s,
        "batch_mean": predictions / max(1, batches),
    }


def figures(round_trips_s: NDArray[np.float64], *, seconds: float) -> dict[str, Any]:
    """Percentiles and rate of the round trips `[N]`, in seconds, of all clients."""
    p50, p99 = np.percentile(round_trips_s, [50, 99])
    return {
        "p50_ms": 1000 * float(p50),
        "p99_ms": 1000 * float(p99),
        "mean_ms": 1000 * float(round_trips_s.mean()),
        "max_ms": 1000 * float(round_trips_s.max()),
        "requests": len(round_trips_s),
        "requests_per_s": len(round_trips_s) / seconds,
    }


def _serve_until(stub: StubRun, until: float) -> None:
    while (left_s := until - time.monotonic()) > 0:
        stub.serve(min(left_s, 0.1))


def _gather(stub: StubRun, ends: list[Connection], *, within_s: float) -> list[Any]:
    """One object from each client; serves the predictor meanwhile."""
    deadline = time.monotonic() + within_s
    gathered: dict[int, Any] = {}
    while len(gathered) < len(ends):
        stub.serve(0.05)
        if time.monotonic() > deadline:
            raise RuntimeError(
                f"{len(ends) - len(gathered)} clients sent nothing within {within_s:g} s"
            )
        waiting = {end: i for i, end in enumerate(ends) if i not in gathered}
        for end in wait(list(waiting), timeout=0):
            assert isinstance(end, Connection)
            gathered[waiting[end]] = end.recv()  # EOFError: the client died, see its traceback
    return [gathered[i] for i in range(len(ends))]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--actors", type=int, default=16, help="client processes")
    parser.add_argument("--envs-per-actor", type=int, default=1, help="observations a request")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--warm-up", type=float, default=3.0)
    parser.add_argument(
        "--set", nargs="+", action="extend", default=[], metavar="key=value", dest="overrides"
    )
    options = parser.parse_args()
    config = load_config(_CONFIG, [*_OVERRIDES, *options.overrides])
    with tempfile.TemporaryDirectory(prefix="aclearn-") as directory:
        measured = measure(
            config,
            Path(directory),
            actors=options.actors,
            envs=options.envs_per_actor,
            warm_up_s=options.warm_up,
            seconds=options.seconds,
        )
    line = {
        "name": "round-trip",
        "architecture": config.policy.architecture,
        "runtime": config.predictor.runtime,
        "actors": options.actors,
        "envs_per_actor": options.envs_per_actor,
        **{
            key: round(value, 3) if isinstance(value, float) else value
            for key, value in measured.items()
        },
    }
    sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
