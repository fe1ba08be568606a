"""Trainer workers as threads or as processes: gradients per second.

    python benchmarks/workers.py [--architecture nature] [--counts 1 2] [--seconds 10] [--repeats 3]

Threads are the trainer's own: `--counts` workers differentiate the same real Pong batch (16
environments × 20 steps) on copies of one learner's weights and apply their gradients to it.
Processes each have a learner to themselves and share nothing: what is printed for them is more than
processes with one set of weights could reach. Runs alternate. Prints one JSON line a count.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from parts import collect_unrolls

from aclearn.config import Config, load_config
from aclearn.envs import make_vector_env
from aclearn.learning import Batch, Learner, assemble_batch, choose_amp
from services.policies import architecture_of

_CONFIG = Path(__file__).resolve().parent.parent / "configs" / "pong.yaml"
_WARM_UP_S = 2.0


def make_batch(config: Config) -> tuple[Learner, Batch]:
    """A learner and a batch as the trainer of `config` has them."""
    torch.set_num_threads(1)
    actors = config.actors
    env = make_vector_env(
        config.env,
        num_envs=actors.envs_per_group,
        seed=1,
        step_timeout_s=actors.step_timeout_s,
        max_faults=actors.max_env_faults,
        threads=1,
    )
    unrolls = collect_unrolls(config, env, 1)
    architecture, frame_stack = architecture_of(config, env.spec), env.spec.frame_stack
    env.close()
    cpu = torch.device("cpu")
    learner = Learner(
        architecture,
        loss=config.loss,
        optimiser=config.optimiser,
        device=cpu,
        amp_dtype=choose_amp(config.trainer.amp, cpu),
        seed=0,
    )
    return learner, assemble_batch(unrolls, frame_stack=frame_stack)


def in_threads(config: Config, count: int, seconds: float) -> float:
    """Updates per second of `count` workers of one learner."""
    learner, batch = make_batch(config)
    done, over = [0] * count, threading.Event()

    def work(index: int) -> None:
        worker = learner.make_worker()
        while not over.is_set():
            learner.update(batch, learned_steps=0, worker=worker)
            done[index] += 1

    threads = [threading.Thread(target=work, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    time.sleep(_WARM_UP_S)
    before, started = sum(done), time.perf_counter()
    time.sleep(seconds)
    rate = (sum(done) - before) / (time.perf_counter() - started)
    over.set()
    for thread in threads:
        thread.join()
    return rate


def in_processes(overrides: list[str], count: int, seconds: float) -> float:
    """Updates per second of `count` processes, a learner each, added up."""
    context = multiprocessing.get_context("spawn")
    start, rates = context.Barrier(count), context.Queue()
    processes = [
        context.Process(target=_process, args=(overrides, seconds, start, rates))
        for _ in range(count)
    ]
    for process in processes:
        process.start()
    total = sum(rates.get(timeout=120 + seconds) for _ in processes)
    for process in processes:
        process.join(30)
    return float(total)


def _process(overrides: list[str], seconds: float, start: Any, rates: Any) -> None:
    learner, batch = make_batch(load_config(_CONFIG, overrides))
    start.wait(120)
    ends = time.perf_counter() + _WARM_UP_S
    while time.perf_counter() < ends:
        learner.update(batch, learned_steps=0)
    done, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        learner.update(batch, learned_steps=0)
        done += 1
    rates.put(done / elapsed)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--architecture", default="nature")
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    overrides = ["run.name=workers", f"policy.architecture={arguments.architecture}"]
    config = load_config(_CONFIG, overrides)
    for count in arguments.counts:
        rates: dict[str, list[float]] = {"threads": [], "processes": []}
        for repeat in range(arguments.repeats):
            print(f"{count} workers, turn {repeat + 1}", file=sys.stderr)
            rates["threads"].append(in_threads(config, count, arguments.seconds))
            rates["processes"].append(in_processes(overrides, count, arguments.seconds))
        ratios = [t / p for t, p in zip(rates["threads"], rates["processes"], strict=True)]
        line = {
            "architecture": arguments.architecture,
            "workers": count,
            **{f"{kind}_updates_per_s": statistics.median(r) for kind, r in rates.items()},
            "threads_to_processes": statistics.median(ratios),
            "threads_to_processes_range": [min(ratios), max(ratios)],
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
