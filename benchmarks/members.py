"""Members of a population as one batch of models, beside one of them alone and all of them in turn.

`python benchmarks/members.py --members 1 16 64` prints a line for each number of members: seconds
of so many updates, of this process's wall clock and of its CPUs, and how many times those of one
ordinary trainer in one thread they are. `apart` is the same number of ordinary trainers in turn.
`--threads 2` gives the batch two threads; one member is too small for them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from aclearn.config import Config, load_config
from aclearn.resident import resident_env_of
from aclearn.runs import RunFolder
from services.trainer.build import make_trainer
from services.trainer.members import MemberTrainers

#: Batches before the clock starts: kernels are compiled and memory is allocated.
_WARM_UP = 3


def member_configs(folder: Path, members: int, envs: int, threads: int = 1) -> list[Config]:
    """Members that differ in seed, learning rate and entropy cost; one update a batch."""
    return [
        load_config(
            "resident/cartpole",
            [
                f"resident.envs={envs}",
                f"resident.threads={threads}",
                "resident.device=cpu",
                "trainer.minibatches=1",
                f"run.seed={number}",
                f"run.dir={folder}",
                f"run.name=m{number}",
                f"optimiser.learning_rate={1e-3 * (1 + number / members)}",
                f"loss.entropy_cost={1e-3 * (1 + number)}",
            ],
        )
        for number in range(members)
    ]


def timed(step: Callable[[], Any], updates: int) -> dict[str, float]:
    """Seconds of so many calls."""
    for _ in range(_WARM_UP):
        step()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(updates):
        step()
    return {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}


def batched(configs: list[Config], updates: int) -> dict[str, float]:
    """All members as one batch of models."""
    runs = [
        (config, RunFolder.create(config.run.dir, str(config.run.name), config.to_yaml()))
        for config in configs
    ]
    members = MemberTrainers(runs)
    try:
        return timed(members.step, updates)
    finally:
        members.close()
        for _, folder in runs:
            folder.close()


def alone(config: Config, updates: int) -> dict[str, float]:
    """One member by an ordinary trainer in one thread."""
    trainer = make_trainer(config, resident_env_of(config).spec(), threads=1)
    trainer.publish()
    worker = trainer.make_worker()
    try:
        return timed(lambda: trainer.step(0.0, worker), updates)
    finally:
        trainer.source.close()


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--envs", type=int, default=16, help="environments of a member")
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1, help="of a batch")
    parser.add_argument("--apart", action="store_true", help="also the members in turn")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        configs = member_configs(Path(folder), max(given.members), given.envs, given.threads)
        torch.set_num_threads(1)
        one = alone(configs[0], given.updates)
        print(json.dumps({"members": 1, "by": "alone", **one}), flush=True)
        for count in given.members:
            rows = {"batched": batched(configs[:count], given.updates)}
            torch.set_num_threads(1)
            if given.apart:
                each = [alone(config, given.updates) for config in configs[:count]]
                rows["apart"] = {key: sum(row[key] for row in each) for key in one}
            for by, row in rows.items():
                times = {f"times_{key}": round(row[key] / one[key], 2) for key in one}
                row = {"threads": given.threads if by == "batched" else 1, **row, **times}
                print(json.dumps({"members": count, "by": by, **row}), flush=True)


if __name__ == "__main__":
    main()
