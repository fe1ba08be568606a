"""Time of a policy's call by runtime and chain, and of a refresh, in one thread.

    python benchmarks/inference.py [--networks accerl-original …] [--rounds N] [--refresh-only]

Every network of AcceRL's Table 6 in eager torch, TorchScript and ONNX Runtime, with each link and
the useful chains, at batches of 1, 8 and 32. The variants of a network take turns, since a
machine's speed drifts. A refresh goes from new fp32 weights to a checked artifact in an actor.
Prints one JSON line a variant and a refresh.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported

import argparse
import json
import statistics
import sys
import time
from typing import Any

import numpy as np
import torch
from parts import random_weights

from aclearn.config import EnvConfig
from aclearn.envs import make_vector_env
from aclearn.launch.resources import keep_freed_memory
from aclearn.policies import Architecture, describe_architecture
from aclearn.rollout import Executable
from aclearn.types import OBSERVATION, ObservationSpec, PolicyVersion, Visited
from aclearn.wire import decode, encode
from compress import (
    ArtifactRuntime,
    ChainError,
    CompressorChain,
    Context,
    Policy,
    parse_chain,
    parse_words,
)
from compress.runtimes.graph_cache import GraphCache
from services.compressor.server import reply_of
from services.policy.factory import warn_of_idle_links
from services.policy.sources import artifact_of

NETWORKS = ("accerl-original", "accerl-net1", "accerl-net2", "accerl-net3")
BATCHES = (1, 8, 32)
#: Chains; the empty one is eager torch in fp32.
CHAINS = (
    "",
    "torchscript",
    "onnx",
    "bf16",
    "fp16,onnx",
    "fuse,onnx",
    "low_rank=64,onnx",
    "prune=0.5,onnx",
    "distill=accerl-net1,onnx",
    "int8,onnx",
    "quantize: {precision: int8, per_channel: true},onnx",
    "prune=0.5,int8,onnx",
    "distill=accerl-net1,int8,onnx",
    "prune=0.5,distill=accerl-net1,int8,onnx",
)
_CALLS = 20


def architecture_of(name: str) -> Architecture:
    """The network `name` for Pong."""
    return describe_architecture(
        name, observation=ObservationSpec.plain((4, 84, 84), "uint8"), actions=6
    )


def visited(count: int) -> np.ndarray[Any, Any]:
    """Observations of Pong under random actions."""
    rng = np.random.default_rng(0)
    env = make_vector_env(
        EnvConfig(id="ALE/Pong-v5"), num_envs=16, seed=1, step_timeout_s=30.0, max_faults=0
    )
    kept = [env.reset()[OBSERVATION]]
    while len(kept) * 16 < count:
        for _ in range(5):
            env.send(rng.integers(6, size=16))
            observations = env.recv().observations[OBSERVATION]
        kept.append(observations.copy())
    env.close()
    return np.concatenate(kept)[:count]


def policy_of(architecture: Architecture, version: int) -> Policy:
    """A policy with random weights, scaled as in a fresh network."""
    return Policy.of(architecture, random_weights(architecture), PolicyVersion(0, version))


def variants(architecture: Architecture, observations: Any) -> dict[str, tuple[Executable, int]]:
    """Executable and bytes of every chain."""
    found: dict[str, tuple[Executable, int]] = {}
    for words in CHAINS:
        if "distill" in words and architecture.name != "accerl-original":
            continue  # the student is no smaller
        chain = parse_chain(parse_words(words), fidelity_observations=0)
        try:
            chain.plan(architecture)
        except ChainError as error:
            sys.stderr.write(f"{architecture.name}: {error}\n")
            continue
        warn_of_idle_links(chain)
        artifact = chain.compress(
            policy_of(architecture, 1), Context(Visited({OBSERVATION: observations}))
        )
        executable = GraphCache().executable(artifact.graph, artifact.tensors)
        found[artifact.chain if words else "eager fp32"] = executable, artifact.bytes
    return found


def measure_calls(executables: dict[str, Executable], batch: Any, rounds: int) -> dict[str, float]:
    """Milliseconds of a call by name: the median over rounds, in turns."""
    times: dict[str, list[float]] = {name: [] for name in executables}
    observations = {OBSERVATION: batch}
    for _ in range(rounds):
        for name, executable in executables.items():
            executable.step(observations)
            started = time.perf_counter()
            for _ in range(_CALLS):
                executable.step(observations)
            times[name].append(1000 * (time.perf_counter() - started) / _CALLS)
    return {name: statistics.median(found) for name, found in times.items()}


def measure_network(name: str, observations: Any, rounds: int) -> None:
    """Print a line for each variant of one network."""
    made = variants(architecture_of(name), observations)
    executables = {variant: executable for variant, (executable, _) in made.items()}
    found = {size: measure_calls(executables, observations[:size], rounds) for size in BATCHES}
    for variant, (_, size_bytes) in made.items():
        line: dict[str, Any] = {"network": name, "policy": variant, "bytes": size_bytes}
        for size in BATCHES:
            eager, onnx = found[size]["eager fp32"], found[size]["onnx"]
            ms = found[size][variant]
            line[f"ms_batch_{size}"] = round(ms, 4)
            line[f"runtime_gives_{size}"] = round(eager / onnx, 2)
            line[f"compression_gives_{size}"] = round(onnx / ms, 2)
            line[f"together_{size}"] = round(eager / ms, 2)
        _print(line)


def measure_refresh(name: str, words: str, observations: Any, rounds: int) -> None:
    """Print the time from new fp32 weights to a checked artifact in an actor."""
    architecture = architecture_of(name)
    chain: CompressorChain = parse_chain(
        parse_words(words), batch_sizes=(1,), fidelity_observations=32, fidelity_every=10
    )
    context, actor = Context(Visited({OBSERVATION: observations})), ArtifactRuntime(architecture)
    parts: dict[str, list[float]] = {}
    totals: list[float] = []
    with_comparison: list[float] = []
    rng = np.random.default_rng(0)
    policy = policy_of(architecture, 1)
    for version in range(2, rounds + 2):
        tensors = {n: t * rng.uniform(0.99, 1.01) for n, t in policy.tensors.items()}
        tensors = {n: t.astype(np.float32) for n, t in tensors.items()}
        policy = Policy.of(architecture, tensors, PolicyVersion(0, version))
        started = time.perf_counter()
        artifact = chain.compress(policy, context)
        compressed = time.perf_counter()
        frames = encode(reply_of(artifact), run="r", incarnation="s", sequence=1)
        received = artifact_of(decode([bytes(frame) for frame in frames]).message)  # type: ignore[arg-type]
        carried = time.perf_counter()
        actor.load(received)
        done = time.perf_counter()
        if version < 4:
            continue  # calibration, latency, first session
        seconds = {**chain.seconds, "wire": carried - compressed, "actor": done - carried}
        for part, value in seconds.items():
            parts.setdefault(part, []).append(1000 * value)
        compared = artifact.fidelity.version == version
        (with_comparison if compared else totals).append(1000 * (done - started))
    _print(
        {
            "refresh": name,
            "chain": chain.id,
            "ms": round(statistics.median(totals), 2),
            "ms_with_comparison": round(statistics.median(with_comparison), 2),
            "parts_ms": {part: round(statistics.median(v), 3) for part, v in parts.items()},
        }
    )


def _print(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--rounds", type=int, default=15, help="turns of each variant")
    parser.add_argument("--refresh-only", action="store_true", help="no calls, only refreshes")
    options = parser.parse_args()
    keep_freed_memory()  # as the roles do
    torch.set_num_threads(1)
    observations = visited(256)
    if not options.refresh_only:
        for name in options.networks:
            measure_network(name, observations, options.rounds)
    for name in ("accerl-original", "nature"):
        measure_refresh(name, "int8,onnx", observations, rounds=45)


if __name__ == "__main__":
    main()
