"""PPO on trading by aclearn, Stable-Baselines3 and RLlib: steps per second, and validation returns.

    python benchmarks/trading_peers.py aclearn --seeds 3 --csv FILE
    PYTHONPATH=. PEERS/bin/python benchmarks/trading_peers.py sb3 --seeds 3 --csv FILE
    PYTHONPATH=. PEERS/bin/python benchmarks/trading_peers.py rllib --seeds 3 --csv FILE
    python benchmarks/trading_peers.py draw FILE PICTURE.png

PEERS is a virtual environment with `stable-baselines3`, `ray[rllib]` and `TA-Lib`. All three learn
from the same 20 stocks with equal networks, batches and hyper-parameters, for equal steps: aclearn
from resident accounts, the others from 32 gymnasium environments of one account each, as they come.
They run in one process each, and take as many threads as they like.

A row of FILE is an evaluation: `env_steps` so far, `wall_s` and `cpu_s` that they took since the
beginning of training, evaluations left out, and the mean return of 16 years of the validation
period with the mean of the actions (`validation`).
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.envs.trading import TradingEnv, TradingVectorEnv

PERIODS = {
    "train": ["2009-01-02", "2018-12-31"],
    "validation": ["2019-01-02", "2020-12-31"],
}
MARKET: dict[str, Any] = {
    "market": "sp500_20",
    "periods": PERIODS,
    "indicators": ["macd", "rsi_30", "boll_ub", "boll_lb", "close_30_sma", "close_60_sma"],
    "turbulence_threshold": 140,
    "window": 252,
    "cost": 0.002,
}
ACCOUNTS, STEPS, MINIBATCHES, EPOCHS = 32, 128, 4, 8
BATCH = ACCOUNTS * STEPS
LEARNING_RATE, CLIP, ENTROPY, DISCOUNT, LAMBDA, GRADIENT = 3e-4, 0.25, 0.01, 0.99, 0.95, 0.5
#: Batches between two evaluations.
EVERY = 4
FIELDS = ("by", "hidden", "seed", "env_steps", "wall_s", "cpu_s", "validation")

#: Observations `[16, n]` to actions `[16, 20]`.
Act = Callable[[NDArray[np.float32]], NDArray[np.float32]]


def validation(act: Act) -> float:
    """Mean return of 16 years, the same ones each time."""
    env = TradingVectorEnv(num_envs=16, **{**MARKET, "period": "validation"})
    seen, _ = env.reset(seed=0)
    returns = np.zeros(16)
    for _ in range(252):
        seen, rewards, *_ = env.step(np.clip(act(seen), -1.0, 1.0))
        returns += rewards
    return float(returns.mean())


def single(**changed: Any) -> TradingEnv:
    """One account in the training period."""
    return TradingEnv(**{**MARKET, "period": "train", "random_accounts": True}, **changed)


def aclearn(hidden: Sequence[int], seed: int) -> Iterator[Act]:
    """Yields after each batch."""
    import torch

    from aclearn.config import load_config
    from aclearn.resident import resident_env_of
    from services.trainer.build import make_trainer

    keys = {
        "run.seed": seed,
        "env.kwargs": {**MARKET, "period": "train", "random_accounts": True},
        "resident.envs": ACCOUNTS,
        "actors.unroll_length": STEPS,
        "policy.hidden": list(hidden),
        "policy.activation": "tanh",
        "policy.separate_value": True,
        "trainer.minibatches": MINIBATCHES,
        "trainer.epochs": EPOCHS,
        "loss.clip_range": CLIP,
        "loss.entropy_cost": ENTROPY,
        "loss.discount": DISCOUNT,
        "correctors": [{"vtrace": {"lambda": LAMBDA}}, "importance_sampling"],
        "optimiser.learning_rate": LEARNING_RATE,
        "optimiser.max_grad_norm": GRADIENT,
        "evaluator.every_s": None,
        "evaluator.env": {},
        "evaluator.greedy": False,
        "evaluator.episodes": 20,
    }
    config = load_config("finance/stocks_resident", keys)
    trainer = make_trainer(config, resident_env_of(config).spec())
    trainer.publish()
    worker = trainer.make_worker()
    network = worker.networks.network

    @torch.no_grad()
    def act(seen: NDArray[np.float32]) -> NDArray[np.float32]:
        output = network.step({"observation": torch.from_numpy(seen)}, ())
        return np.asarray(output.parameters[:, :20].numpy())

    try:
        while True:
            trainer.step(0.0, worker)
            yield act
    finally:
        trainer.source.close()


def sb3(hidden: Sequence[int], seed: int) -> Iterator[Act]:
    """Yields after each batch."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    envs = VecNormalize(DummyVecEnv([single] * ACCOUNTS), gamma=DISCOUNT)
    model = PPO(
        "MlpPolicy",
        envs,
        n_steps=STEPS,
        batch_size=BATCH // MINIBATCHES,
        n_epochs=EPOCHS,
        learning_rate=LEARNING_RATE,
        clip_range=CLIP,
        ent_coef=ENTROPY,
        gamma=DISCOUNT,
        gae_lambda=LAMBDA,
        max_grad_norm=GRADIENT,
        policy_kwargs={"net_arch": list(hidden)},
        device="cpu",
        seed=seed,
    )

    def act(seen: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.asarray(model.predict(envs.normalize_obs(seen), deterministic=True)[0])

    while True:
        model.learn(BATCH, reset_num_timesteps=False)
        yield act


def rllib(hidden: Sequence[int], seed: int) -> Iterator[Act]:
    """Yields after each batch."""
    import ray
    import torch
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.connectors.env_to_module import MeanStdFilter
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from ray.tune.registry import register_env

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, ignore_reinit_error=True)
    register_env("trading", lambda _: single())
    filters: list[Any] = []

    def normalised(*_: Any, **__: Any) -> Any:
        filters.append(MeanStdFilter())
        return filters[-1]

    config = (
        PPOConfig()
        .environment("trading")
        .env_runners(
            num_env_runners=0,
            num_envs_per_env_runner=ACCOUNTS,
            rollout_fragment_length=STEPS,
            env_to_module_connector=normalised,
        )
        .training(
            train_batch_size_per_learner=BATCH,
            minibatch_size=BATCH // MINIBATCHES,
            num_epochs=EPOCHS,
            lr=LEARNING_RATE,
            clip_param=CLIP,
            entropy_coeff=ENTROPY,
            gamma=DISCOUNT,
            lambda_=LAMBDA,
            grad_clip=GRADIENT,
            use_kl_loss=False,
        )
        .rl_module(
            model_config=DefaultModelConfig(
                fcnet_hiddens=list(hidden), fcnet_activation="tanh", free_log_std=True
            )
        )
        .debugging(seed=seed, log_level="ERROR")
    )
    algorithm = config.build_algo()
    module = algorithm.get_module()

    @torch.no_grad()
    def act(seen: NDArray[np.float32]) -> NDArray[np.float32]:
        of_agent = filters[0]._filters[None]
        shown = np.stack([of_agent(row, update=False) for row in seen]).astype(np.float32)
        given = module.forward_inference({"obs": torch.from_numpy(shown)})
        return np.asarray(given["action_dist_inputs"][:, :20].numpy())

    try:
        while True:
            algorithm.train()
            yield act
    finally:
        algorithm.stop()


WAYS: dict[str, Callable[[Sequence[int], int], Iterator[Act]]] = {
    "aclearn": aclearn,
    "sb3": sb3,
    "rllib": rllib,
}


def rows(by: str, hidden: Sequence[int], seed: int, steps: int) -> Iterator[dict[str, Any]]:
    """Train, and judge every few batches."""
    wall, cpu = 0.0, 0.0
    training = WAYS[by](hidden, seed)
    for batch in range(1, steps // BATCH + 1):
        began, began_cpu = time.perf_counter(), time.process_time()
        act = next(training)
        wall += time.perf_counter() - began
        cpu += time.process_time() - began_cpu
        if batch == 1:  # what is compiled and started once does not count
            wall = cpu = 0.0
        if batch % EVERY == 0:
            yield {
                **{"by": by, "hidden": "x".join(map(str, hidden)), "seed": seed},
                "env_steps": batch * BATCH,
                "wall_s": f"{wall:.3f}",
                "cpu_s": f"{cpu:.3f}",
                "validation": f"{validation(act):.5f}",
            }
    training.close()  # type: ignore[attr-defined]


def read(table: Path) -> list[dict[str, str]]:
    """The rows of a table."""
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


def draw(table: Path, picture: Path, over: str) -> None:
    """Validation returns over steps or seconds: each seed, and their mean."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    found = read(table)
    figure, axis = pyplot.subplots(figsize=(6, 4))
    for number, by in enumerate(WAYS):
        mine = [row for row in found if row["by"] == by]
        seeds = [[r for r in mine if r["seed"] == s] for s in sorted({r["seed"] for r in mine})]
        curves = [[(float(r[over]), float(r["validation"])) for r in each] for each in seeds]
        for curve in curves:
            axis.plot(*zip(*curve, strict=True), color=f"C{number}", alpha=0.3, linewidth=0.8)
        means = [
            tuple(statistics.fmean(each) for each in zip(*points, strict=True))
            for points in zip(*curves, strict=True)
        ]
        if means:
            axis.plot(*zip(*means, strict=True), color=f"C{number}", label=by)
    axis.set(xlabel="agent steps" if over == "env_steps" else "seconds", ylabel="return of a year")
    axis.set(title="PPO on the validation period, 2019 and 2020")
    axis.legend()
    axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(picture, dpi=110)


def main() -> None:
    """Append rows to a table, or draw it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("by", choices=[*WAYS, "draw"])
    parser.add_argument("files", type=Path, nargs="*", help="of draw")
    parser.add_argument("--over", default="env_steps", choices=["env_steps", "wall_s"])
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--hidden", type=int, nargs="+", default=[64, 64])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=16 * BATCH)
    given = parser.parse_args()
    if given.by == "draw":
        table, picture = given.files
        draw(table, picture, given.over)
        return
    for seed in range(1, given.seeds + 1):
        for row in rows(given.by, given.hidden, seed, given.steps):
            print(row, flush=True)
            with given.csv.open("a", newline="") as file:
                writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                if file.tell() == 0:
                    writer.writeheader()
                writer.writerow(row)


if __name__ == "__main__":
    main()
