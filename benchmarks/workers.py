"""Rate of a trainer's or a predictor's workers, as threads and as processes.

    python benchmarks/workers.py [--role trainer] [--architecture nature] [--counts 1 2]
        [--seconds 10] [--repeats 3]

Threads are the role's own workers. A trainer's share one learner and update it with a real Pong
batch (16 environments × 20 steps). A predictor's share one prediction queue of requests of 16 real
Pong observations. Processes have one such worker each and share nothing, so their rate is an upper
bound. Runs alternate. Prints one JSON line a count.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import select
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from parts import collect_unrolls, make_env, random_weights

from aclearn.config import Config, load_config
from aclearn.distributions import distribution_of
from aclearn.launch.resources import keep_freed_memory
from aclearn.rollout import PolicySnapshot
from aclearn.telemetry import WaitMeter
from aclearn.types import DEFAULT_POLICY, OBSERVATION, PolicyVersion
from aclearn.wire import ActRequest
from services.policy.factory import architecture_of, make_runtime
from services.predictor.core import make_step
from services.predictor.outbox import Outbox
from services.predictor.prediction_queue import Pending, PredictionQueue
from services.role.worker_pool import Step, WorkerPool

_CONFIG = Path(__file__).resolve().parent.parent / "configs" / "pong_vtrace.yaml"
_WARM_UP_S = 2.0
#: Requests for each worker: one in computation, one in the queue.
_REQUESTS_A_WORKER = 2
#: Seconds for a process to start, and for a worker to end.
_START_WITHIN_S, _END_WITHIN_S = 120.0, 30.0

#: Work done by the workers since their start.
Done = Callable[[], int]


@contextmanager
def trainer_workers(config: Config, count: int) -> Iterator[Done]:
    """Workers of one learner; counts updates."""
    import torch

    from aclearn.learning import Learner, assemble_batch, make_objective
    from aclearn.policies.devices import choose_amp

    torch.set_num_threads(1)
    env = make_env(config)
    unrolls = collect_unrolls(config, env, 1)
    observation = env.spec.observation
    architecture = architecture_of(config, env.spec)
    env.close()
    cpu = torch.device("cpu")
    learner = Learner(
        architecture,
        objective=make_objective(config.loss, config.correctors, critic=config.policy.critic),
        optimiser=config.optimiser,
        device=cpu,
        amp_dtype=choose_amp(config.trainer.amp, cpu),
        seed=0,
    )
    batch = assemble_batch(unrolls, observation=observation)
    updates: list[int] = []  # one count a worker: threads that share one would lose updates

    def make() -> Step:
        worker = learner.make_worker()
        with learner.lock:
            index = len(updates)
            updates.append(0)

        def step(meter: WaitMeter) -> bool:
            learner.learn(batch, worker)
            updates[index] += 1
            return True

        return step

    with _pool(make, count):
        yield lambda: sum(updates)


@contextmanager
def predictor_workers(config: Config, count: int) -> Iterator[Done]:
    """Workers of one prediction queue; counts observations answered."""
    env = make_env(config)
    observations = env.reset()[OBSERVATION]
    architecture = architecture_of(config, env.spec)
    env.close()
    runtime = make_runtime(architecture, config.predictor.runtime, device="cpu")
    distribution = distribution_of(architecture.action_spec)
    acting = PolicySnapshot(runtime.load(random_weights(architecture)), PolicyVersion(0, 0))
    size = len(observations)
    requests = [
        Pending(
            b"actor",
            ActRequest(number, {"observation": observations}),
            came_at=0.0,
            deadline=math.inf,
        )
        for number in range(_REQUESTS_A_WORKER * count)
    ]
    queue = PredictionQueue(max_requests=len(requests), max_batch=size)
    outbox, answered, over = Outbox(), 0, threading.Event()

    def ask_again() -> None:
        nonlocal answered
        queue.offer(requests)
        while not over.is_set():
            select.select([outbox.wake_fd], [], [], 0.1)
            for batch in outbox.take():
                queue.offer([pending for pending, _ in batch])
                answered += sum(pending.size for pending, _ in batch)

    def make() -> Step:
        return make_step(
            queue,
            outbox,
            lambda _: acting,
            {DEFAULT_POLICY: distribution},
            lambda: np.random.default_rng(0),
        )

    asking = threading.Thread(target=ask_again)
    asking.start()
    try:
        with _pool(make, count):
            yield lambda: answered
    finally:
        over.set()
        asking.join()
        outbox.close()


@contextmanager
def _pool(make: Callable[[], Step], count: int) -> Iterator[None]:
    pool = WorkerPool(make, name="worker")
    pool.resize(count)
    try:
        yield
        pool.check()
    finally:
        if not pool.close(_END_WITHIN_S):
            raise RuntimeError(f"a worker did not end within {_END_WITHIN_S:g} s")


_ROLES: dict[str, Callable[[Config, int], AbstractContextManager[Done]]] = {
    "trainer": trainer_workers,
    "predictor": predictor_workers,
}


def rate(role: str, overrides: list[str], *, processes: int, workers: int, seconds: float) -> float:
    """Total rate of `processes` with `workers` threads each, per second."""
    context = multiprocessing.get_context("spawn")
    start, rates = context.Barrier(processes), context.Queue()
    started = [
        context.Process(target=_process, args=(role, overrides, workers, seconds, start, rates))
        for _ in range(processes)
    ]
    for process in started:
        process.start()
    total = sum(rates.get(timeout=_START_WITHIN_S + _WARM_UP_S + seconds) for _ in started)
    for process in started:
        process.join(_END_WITHIN_S)
    return float(total)


def _process(
    role: str, overrides: list[str], workers: int, seconds: float, start: Any, rates: Any
) -> None:
    keep_freed_memory()
    with _ROLES[role](load_config(_CONFIG, overrides), workers) as done:
        start.wait(_START_WITHIN_S)
        time.sleep(_WARM_UP_S)
        before, began = done(), time.perf_counter()
        time.sleep(seconds)
        rates.put((done() - before) / (time.perf_counter() - began))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--role", choices=sorted(_ROLES), default="trainer")
    parser.add_argument("--architecture", default="nature")
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    overrides = ["run.name=workers", f"policy.architecture={arguments.architecture}"]
    unit = {"trainer": "updates", "predictor": "observations"}[arguments.role]
    for count in arguments.counts:
        rates: dict[str, list[float]] = {"threads": [], "processes": []}
        for repeat in range(arguments.repeats):
            print(f"{count} workers, turn {repeat + 1}", file=sys.stderr)
            for kind, processes, workers in (("threads", 1, count), ("processes", count, 1)):
                rates[kind].append(
                    rate(
                        arguments.role,
                        overrides,
                        processes=processes,
                        workers=workers,
                        seconds=arguments.seconds,
                    )
                )
        ratios = [t / p for t, p in zip(rates["threads"], rates["processes"], strict=True)]
        line = {
            "role": arguments.role,
            "architecture": arguments.architecture,
            "workers": count,
            **{f"{kind}_{unit}_per_s": statistics.median(r) for kind, r in rates.items()},
            "threads_to_processes": statistics.median(ratios),
            "threads_to_processes_range": [min(ratios), max(ratios)],
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
