"""What hundreds of actors cost the monitor and the trainer's socket thread.

    python benchmarks/scale.py [--actors 10 100 300 1000] [--seconds 15] [--csv FILE]
    python benchmarks/scale.py --table FILE

A real monitor and a real trainer serve synthetic actors on loopback (`synthetic_actors.py`). The
trainer's workers assemble batches and publish ten versions a second; they compute no gradient, as
if a GPU did, so that the actors' rate is given. Each actor sends a heartbeat every half a second or
as the monitor tells it, asks for weights as one that never waits, and sends an unroll of 16
environments × 20 steps of CartPole every two seconds.

Prints a JSON line for each number of actors, then three more for the last one: heartbeats alone,
with pulls, and with unrolls. `--table` prints the tables of docs/scale.md: what was measured, what
each message costs, and what a model of these costs says of more actors. CPU is that of threads
(`/proc`), as a share of a core; waits are seen by the actors and include their own delay.
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from aclearn.config import Config, load_config
from aclearn.types import EnvSpec
from services.policy.client import ASK_EVERY_S
from services.role.asking_pace import MOST_REQUESTS_PER_S
from services.start.probe import probe_environment

_CONFIG = Path(__file__).resolve().parent.parent / "configs" / "cartpole.yaml"
#: Processes of actors: their threads must not be what waits.
_HERDS = 2
_UNROLLS_PER_S, _VERSIONS_PER_S = 0.5, 10.0
_START_WITHIN_S, _JOIN_WITHIN_S, _END_WITHIN_S = 60.0, 120.0, 15.0
_SETTLE_S = 3.0
#: Between these a page has the tables.
_BEGIN, _END = "<!-- written by benchmarks/scale.py -->", "<!-- end -->"
_COUNTED = ("heartbeats", "pulls", "versions", "unrolls", "monitor_bytes", "trainer_bytes")


def serve_trainer(config_path: str, address: str) -> None:
    """A trainer whose learning costs nothing; prints the id of its sockets' thread."""
    from aclearn.launch import install_stop_signals
    from services.roles import TRAINER
    from services.start.run_role import run_role
    from services.trainer.trainer import Trainer

    published_at = 0.0

    def eat(self: Any, batch: Any, worker: Any = None) -> list[Any]:
        nonlocal published_at
        with self.account.batch(int(batch.new_steps)) as open_batch:
            open_batch.learned(int(batch.new_steps))
        if (now := time.monotonic()) >= published_at + 1.0 / _VERSIONS_PER_S:
            published_at = now
            with self.learner.turn():
                self.raise_version(self.counters.policy_version + 1)
        return []

    Trainer.update = eat  # type: ignore[method-assign]

    def tell() -> None:
        while True:
            for thread in threading.enumerate():
                if thread.name == "trainer-sockets" and thread.native_id is not None:
                    print(thread.native_id, flush=True)
                    return
            time.sleep(0.05)

    threading.Thread(target=tell, daemon=True).start()
    with install_stop_signals() as stop:
        run_role(TRAINER, None, load_config(config_path), address, stop)


def serve_actors(config: Config, address: str, spec: EnvSpec, seed: int, pipe: Connection) -> None:
    """A herd that is told `(actors, pulls, unrolls, seconds)`, or None for the end."""
    from synthetic_actors import Herd

    from aclearn.launch import allow_many_connections

    allow_many_connections()
    herd = Herd(config, address, spec, unrolls_per_s=_UNROLLS_PER_S)
    herd.rng = np.random.default_rng(seed)
    pipe.send("ready")
    while True:
        herd.run(pipe.poll, float("inf"))
        if (told := pipe.recv()) is None:
            break
        actors, herd.pulls, herd.unrolls, seconds = told
        herd.grow(actors - len(herd.actors))
        if not herd.run(lambda: all(each.connected for each in herd.actors), _JOIN_WITHIN_S):
            raise RuntimeError(f"not all of {actors} actors joined within {_JOIN_WITHIN_S:g} s")
        pipe.send("joined")
        herd.run(pipe.poll, float("inf"))
        pipe.recv()
        herd.traffic.clear()
        herd.run(lambda: False, seconds)
        pipe.send(herd.traffic)
    herd.close()
    pipe.send("gone")


class Cpu:
    """CPU seconds of threads of a process, since the last look."""

    def __init__(self, pid: int, named: Mapping[str, int]) -> None:
        self._pid, self._named = pid, named
        self._before: dict[int, float] = {}

    def look(self) -> dict[str, float]:
        """By name of a thread, "io" for ZeroMQ's and "all" for the process."""
        now = {int(each): self._seconds(each) for each in os.listdir(f"/proc/{self._pid}/task")}
        spent = {each: seconds - self._before.get(each, 0.0) for each, seconds in now.items()}
        self._before = now
        io = sum(spent[each] for each in now if self._comm(each).startswith("ZMQbg"))
        own = {name: spent[each] for name, each in self._named.items()}
        return {**own, "io": io, "all": sum(spent.values())}

    def _seconds(self, thread: int | str) -> float:
        ran = Path(f"/proc/{self._pid}/task/{thread}/schedstat").read_text("ascii")
        return int(ran.split()[0]) / 1e9

    def _comm(self, thread: int) -> str:
        return Path(f"/proc/{self._pid}/task/{thread}/comm").read_text("ascii")


@contextmanager
def run(directory: Path, config: Config) -> Iterator[tuple[Cpu, Cpu, list[Connection]]]:
    """The processes of a run, until the block ends."""
    spec = probe_environment(config)
    path = directory / "config.yaml"
    path.write_text(config.to_yaml(), "utf-8")
    address = f"tcp://127.0.0.1:{config.monitor.port}"
    role = ("role", "monitor", str(path), "--monitor", address)
    monitor = subprocess.Popen([sys.executable, "-m", "aclearn", *role], stdout=subprocess.DEVNULL)
    trainer = subprocess.Popen(
        [sys.executable, __file__, "--serve-trainer", str(path), address],
        stdout=subprocess.PIPE,
        text=True,
    )
    spawning = multiprocessing.get_context("spawn")
    herds, pipes = [], []
    try:
        for seed in range(_HERDS):
            ours, theirs = spawning.Pipe()
            herd = spawning.Process(target=serve_actors, args=(config, address, spec, seed, theirs))
            herd.start()
            herds.append(herd)
            pipes.append(ours)
        for pipe in pipes:
            _told(pipe)
        assert trainer.stdout is not None
        sockets = int(trainer.stdout.readline())
        yield Cpu(monitor.pid, {"main": monitor.pid}), Cpu(trainer.pid, {"main": sockets}), pipes
        for pipe in pipes:
            pipe.send(None)
        for pipe in pipes:
            _told(pipe)
    finally:
        for process in (trainer, monitor):
            process.terminate()
            try:
                process.wait(_END_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_END_WITHIN_S)
        for herd in herds:
            herd.join(_END_WITHIN_S)
            if herd.is_alive():
                herd.kill()


def _told(pipe: Connection) -> Any:
    if not pipe.poll(_JOIN_WITHIN_S + _START_WITHIN_S):
        raise RuntimeError("a process of actors does not answer; see its output above")
    return pipe.recv()


def measure(
    monitor: Cpu,
    trainer: Cpu,
    pipes: Sequence[Connection],
    *,
    actors: int,
    pulls: bool,
    unrolls: bool,
    seconds: float,
) -> dict[str, Any]:
    """A row for this number of actors, and of what they do."""
    began = time.monotonic()
    for number, pipe in enumerate(pipes):
        own = actors // len(pipes) + (number < actors % len(pipes))
        pipe.send((own, pulls, unrolls, seconds))
    for pipe in pipes:
        _told(pipe)
    joined_s = time.monotonic() - began
    time.sleep(_SETTLE_S)
    for pipe in pipes:
        pipe.send("go")
    monitor.look()
    trainer.look()
    began = time.monotonic()
    time.sleep(seconds)
    spent = {"monitor": monitor.look(), "trainer": trainer.look()}
    took_s = time.monotonic() - began
    return row_of(
        [_told(pipe) for pipe in pipes],
        spent,
        took_s,
        {"actors": actors, "pulls": pulls, "unrolls": unrolls, "joined_s": joined_s},
    )


def row_of(
    traffics: Sequence[Any],
    spent: Mapping[str, Mapping[str, float]],
    took_s: float,
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """The figures of what herds counted in `took_s` seconds, and of CPU seconds that were spent."""
    counts = {name: sum(each.counts[name] for each in traffics) for name in _COUNTED}
    row = {
        "actors": about["actors"],
        "does": "+".join(["heartbeats", *(w for w in ("pulls", "unrolls") if about[w])]),
        "monitor_cpu": spent["monitor"]["all"] / took_s,
        "monitor_thread_cpu": spent["monitor"]["main"] / took_s,
        "sockets_cpu": spent["trainer"]["main"] / took_s,
        "trainer_io_cpu": spent["trainer"]["io"] / took_s,
    }
    for name, count in counts.items():
        row[f"{name}_per_s"] = count / took_s
    for what in ("heartbeat", "pull", "unroll"):
        waits = np.concatenate([each.waits[what] for each in traffics])
        for share in (50, 99):
            row[f"{what}_p{share}_ms"] = (
                1000 * float(np.percentile(waits, share)) if len(waits) else None
            )
    return row | {"joined_s": about["joined_s"]}


def line_us() -> float:
    """Microseconds of a metrics line for each of 2000 actors, with the state that is saved."""
    from synthetic_actors import heartbeat_at

    from aclearn.metrics import MetricsAggregator

    view, actors = MetricsAggregator(0.0), 2000
    for second in (1.0, 2.0, 3.0):
        for actor in range(actors):
            beat = heartbeat_at(second, steps=int(160 * second))
            view.observe_heartbeat("actor", f"{actor:032x}", beat, second)
    took = []
    for _ in range(5):
        began = time.thread_time()
        view.line(4.0)
        json.dumps(view.state())
        took.append(time.thread_time() - began)
    return 1e6 * min(took) / actors


def costs(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Microseconds of CPU for each message, from the rows of the last number of actors.

    `heartbeat` is of the monitor with ZeroMQ's thread and its lines; `pull` and `unroll` are of the
    trainer's socket thread, `pull_io` and `unroll_io` of ZeroMQ's thread in the trainer; `line` is
    of a metrics line for each actor.
    """
    by = {row["does"]: row for row in rows if row["actors"] == rows[-1]["actors"]}
    alone = by["heartbeats"]
    found = {"heartbeat": 1e6 * alone["monitor_cpu"] / alone["heartbeats_per_s"]}
    for what in ("pull", "unroll"):
        with_it = by[f"heartbeats+{what}s"]
        more = with_it["sockets_cpu"] - alone["sockets_cpu"]
        io = with_it["trainer_io_cpu"] - alone["trainer_io_cpu"]
        found[what] = 1e6 * more / with_it[f"{what}s_per_s"]
        found[f"{what}_io"] = 1e6 * io / with_it[f"{what}s_per_s"]
    return found | {"line": rows[-1]["line_us"]}


def expected(actors: int, cost: Mapping[str, float], config: Config) -> dict[str, float]:
    """What the model says of a number of actors, by the intervals that they are told."""
    monitor = config.monitor
    every_s = max(
        monitor.heartbeat_every_s,
        min(actors / monitor.heartbeats_per_s, monitor.silent_after_s / 4),
    )
    pause_s = max(ASK_EVERY_S, actors / MOST_REQUESTS_PER_S)
    unrolls_per_s = actors * _UNROLLS_PER_S
    line = actors * cost["line"] / config.run.metrics_every_s
    sockets = cost["pull"] * actors / pause_s + cost["unroll"] * unrolls_per_s
    return {
        "heartbeat_every_s": every_s,
        "monitor_cpu": 1e-6 * (cost["heartbeat"] * actors / every_s + line),
        "pull_every_s": pause_s,
        "sockets_cpu": 1e-6 * sockets,
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: what each number of actors costs, and then each message."""
    lines = [
        "| actors | heartbeats/s | pulls/s | unrolls/s | monitor | socket thread | ZeroMQ's thread "
        "| MB/s | heartbeat, ms | pull, ms |",
        "|" + "---|" * 10,
    ]
    for row in rows:
        name = row["actors"] if row["does"] == "heartbeats+pulls+unrolls" else f"{row['does']}"
        shares = [f"{100 * row[k]:.1f} %" for k in ("monitor_cpu", "sockets_cpu", "trainer_io_cpu")]
        rates = [f"{row[k]:.0f}" for k in ("heartbeats_per_s", "pulls_per_s", "unrolls_per_s")]
        waits = [
            "–" if row[f"{w}_p50_ms"] is None
            else f"{row[f'{w}_p50_ms']:.1f}, {row[f'{w}_p99_ms']:.1f}"
            for w in ("heartbeat", "pull")
        ]  # fmt: skip
        megabytes = (row["monitor_bytes_per_s"] + row["trainer_bytes_per_s"]) / 1e6
        lines.append("| " + " | ".join([str(name), *rates, *shares, f"{megabytes:.1f}", *waits]))
        lines[-1] += " |"
    words = {
        "heartbeat": "a heartbeat, in the monitor",
        "line": "an actor's part of a metrics line, in the monitor",
        "pull": "a pull, in the socket thread",
        "pull_io": "a pull, in ZeroMQ's thread",
        "unroll": "an unroll, in the socket thread",
        "unroll_io": "an unroll, in ZeroMQ's thread",
    }
    cost = costs(rows)
    lines += ["", "| part | CPU, µs |", "|---|---|"]
    lines += [f"| {words[name]} | {value:.0f} |" for name, value in cost.items()]
    lines += [
        "",
        "| actors, by the model | a heartbeat each | monitor | a pull each | socket thread |",
        "|---|---|---|---|---|",
    ]
    for actors in (1000, 10_000, 100_000):
        said = expected(actors, cost, load_config(_CONFIG))
        each = f"{said['heartbeat_every_s']:.3g} s", f"{100 * said['monitor_cpu']:.0f} %"
        pulls = f"{said['pull_every_s']:.3g} s", f"{100 * said['sockets_cpu']:.0f} %"
        lines.append(f"| {actors} | " + " | ".join([*each, *pulls]) + " |")
    return "\n".join(lines)


def fill(page: Path, text: str) -> None:
    """Put the table between the two comments of the page."""
    before, _, rest = page.read_text("utf-8").partition(_BEGIN)
    _, _, after = rest.partition(_END)
    page.write_text(f"{before}{_BEGIN}\n\n{text}\n\n{_END}{after}", "utf-8")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a CSV that this program wrote."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            {k: v if k == "does" else None if v == "" else float(v) for k, v in row.items()}
            | {"actors": int(float(row["actors"]))}
            for row in csv.DictReader(file)
        ]


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as a CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f"{v:.5g}" if isinstance(v, float) else v for k, v in row.items()})


def free_port() -> int:
    """A port that nobody listens at."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Measure and print, or print the table of a measurement."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--actors", type=int, nargs="+", default=[10, 100, 300, 1000])
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--table", type=Path, metavar="CSV")
    parser.add_argument("--page", type=Path, help="with --table: put it into this page")
    parser.add_argument("--serve-trainer", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument(
        "--set", nargs="+", action="extend", default=[], metavar="key=value", dest="overrides"
    )
    options = parser.parse_args()
    if options.serve_trainer:
        serve_trainer(*options.serve_trainer)
        return
    if options.table:
        text = table(read_rows(options.table))
        if options.page:
            fill(options.page, text)
        sys.stdout.write(text + "\n")
        return
    with tempfile.TemporaryDirectory(prefix="aclearn-") as directory:
        own = [f"run.dir={directory}", "run.name=scale", f"monitor.port={free_port()}"]
        never = ["run.target_return=null", "run.stop_at_target=false"]
        never += ["trainer.max_lag_versions=100000"]  # in one part actors never pull
        config = load_config(
            _CONFIG,
            [*own, *never, "trainer.workers=1", "trainer.unrolls_per_batch=16", *options.overrides],
        )
        does = [(count, True, True) for count in options.actors]
        parts = (False, False), (True, False), (False, True)
        does += [(options.actors[-1], *each) for each in parts]
        rows, per_actor = [], line_us()
        with run(Path(directory), config) as (monitor, trainer, pipes):
            for actors, pulls, unrolls in does:
                row = measure(
                    monitor,
                    trainer,
                    pipes,
                    actors=actors,
                    pulls=pulls,
                    unrolls=unrolls,
                    seconds=options.seconds,
                )
                row["line_us"] = per_actor
                rows.append(row)
                shown = {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}
                sys.stdout.write(json.dumps(shown) + "\n")
                sys.stdout.flush()
    if options.csv:
        write_rows(options.csv, rows)


if __name__ == "__main__":
    main()
