"""Time of each correction of one batch [T, B], on one thread or a GPU.

    python benchmarks/corrector_time.py --steps 128 --environments 1024 --device cpu

Prints one JSON object for each: the best and the median of many calls, in milliseconds. On a GPU a
call is a replay of a captured CUDA graph. Not `correctors.py`: Python puts the folder of a program
first, so a file of that name would hide the package `correctors` from every benchmark.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

import correctors
from aclearn.launch.resources import keep_freed_memory
from correctors import (
    Adaptive,
    Auto,
    CorrectionInput,
    Corrector,
    EpsilonCorrection,
    ImportanceSampling,
    KLFilter,
    NoCorrection,
    QImportanceSampling,
    QLambda,
    RatioMask,
    Retrace,
    SecondMoment,
    TreeBackup,
    TVMask,
    UnrollMask,
    VTrace,
)

#: Calls that are timed after as many that are not.
_CALLS = 100


def batch_of(steps: int, environments: int, actions: int, device: str) -> CorrectionInput:
    """A random batch with every field that a corrector of ours reads."""
    shape = (steps, environments)
    torch.manual_seed(0)
    terminated = torch.rand(shape) < 0.02
    made = {
        "values": torch.randn(shape),
        "next_values": torch.randn(shape),
        "rewards": torch.randn(shape),
        "discounts": 0.99 * (~terminated).float(),
        "done": terminated | (torch.rand(shape) < 0.01),
        "log_rhos": 0.3 * torch.randn(shape),
        "log_pi": -torch.rand(shape),
        "kl": torch.rand(shape),
        "behaviour_probs": torch.rand(shape),
        "log_gaps": 0.1 * torch.randn(shape),
        "valid": torch.ones(shape, dtype=torch.bool),
        "actions": torch.randint(actions, shape),
        "q_next": torch.randn(*shape, actions),
        "next_target_probs": torch.randn(*shape, actions).softmax(2),
    }
    return CorrectionInput(**{name: tensor.to(device) for name, tensor in made.items()})


def vtrace(batch: CorrectionInput) -> object:
    """The pure function, with weighted advantages."""
    names = ("values", "next_values", "rewards", "discounts", "done", "log_rhos")
    fields: dict[str, Any] = {name: batch.required(name) for name in names}
    return correctors.vtrace(**fields)


def milliseconds(call: Callable[[], object], device: str) -> list[float]:
    """Times of many calls."""
    wait: Callable[[], None] = lambda: None  # noqa: E731
    if device != "cpu":
        wait = torch.cuda.synchronize
        with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
            call()
        wait()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        call = graph.replay
    times = []
    for i in range(2 * _CALLS):
        started = time.perf_counter()
        call()
        wait()
        if i >= _CALLS:
            times.append(1e3 * (time.perf_counter() - started))
    return times


def main() -> None:
    """Time every correction and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=128, help="T")
    parser.add_argument("--environments", type=int, default=1024, help="B")
    parser.add_argument("--actions", type=int, default=6, help="A")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    batch = batch_of(options.steps, options.environments, options.actions, options.device)
    given = correctors.CorrectorChain().correct(batch)
    links: list[Corrector] = [
        VTrace(),
        NoCorrection(),
        ImportanceSampling(),
        EpsilonCorrection(),
        KLFilter(0.5),
        Retrace(),
        TreeBackup(),
        QLambda(),
        QImportanceSampling(),
        RatioMask(),
        TVMask(),
        UnrollMask(),
        SecondMoment(),
        Adaptive(),
        Auto(),
    ]
    calls: dict[str, Callable[[], object]] = {"vtrace()": lambda: vtrace(batch)}
    for link in links:
        chain = correctors.CorrectorChain((link,))
        [measured] = chain.measure_whole(batch)
        seen = replace(batch, measured=measured)
        name = type(link).__name__
        calls[name] = lambda link=link, seen=seen: link.correct(seen, given)  # type: ignore[misc]
        if chain.measures:
            calls[f"{name}.measure"] = lambda chain=chain: chain.measure_whole(batch)  # type: ignore[misc]
    for name, call in calls.items():
        times = milliseconds(call, options.device)
        figures = {"best_ms": round(min(times), 3), "median_ms": round(statistics.median(times), 3)}
        sys.stdout.write(json.dumps({"corrector": name, **vars(options), **figures}) + "\n")


if __name__ == "__main__":
    main()
