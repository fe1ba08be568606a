"""A3C (Mnih et al. 2016), GA3C's baseline: no queues, and the actors compute the gradients.

    python benchmarks/a3c.py --out DIR [--actors 2] [--steps 2000000] [--seconds 60] [--every-s 10]

An actor is a process with one environment and a copy of the network. It plays up to t_max steps
(`actors.unroll_length`), computes the gradient on its copy, and steps the shared weights by RMSProp
with shared mean squares, without a lock (Hogwild). Then it copies the weights again. Environment,
network, loss and optimiser are those of configs/ga3c/paper.yaml; its correctors are left out, since
each actor learns from its own play. `--set env.id=ALE/Breakout-v5` plays another game.

Appends CSV rows to DIR/a3c.csv: `tps` updates and `pps` predictions per second since the row
before, and the mean return of the last 100 episodes, as many of each actor. The same DIR continues
from its weights.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import signal
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, multiprocessing
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from aclearn.algorithms.actor_critic import ActorCriticConfig
from aclearn.config import Config, OptimiserConfig, load_config
from aclearn.distributions import distribution_of, torch_distribution_of
from aclearn.envs import make_vector_env, read_spec
from aclearn.policies.network import PolicyNetwork
from aclearn.telemetry.cores import usable_cores
from aclearn.types import OBSERVATION, EnvSpec
from services.policy.factory import architecture_of

_CONFIG = Path(__file__).resolve().parent.parent / "configs" / "ga3c" / "paper.yaml"
FIELDS = ("time_s", "env_steps", "updates", "tps", "pps", "return_mean_100")
#: Seconds for the actors to end.
_END_WITHIN_S = 30.0


class Shared(NamedTuple):
    """What the actors share, in memory that their processes map."""

    weights: Tensor  # [N] float32
    squares: Tensor  # [N] float32, RMSProp's mean squares
    counts: Tensor  # [actors, 3] int64: steps, updates, episodes
    returns: Tensor  # [actors, 100 / actors] float64, of the last episodes; NaN before
    time_s: Tensor  # [] float64, of training


def begin(config: Config, spec: EnvSpec, actors: int) -> Shared:
    """The first weights, of `run.seed`, and nothing counted."""
    network = PolicyNetwork(architecture_of(config, spec), seed=config.run.seed)
    weights = parameters_to_vector(network.parameters()).detach()
    squares = torch.full_like(weights, config.optimiser.rmsprop_initial)
    returns = torch.full((actors, -(-100 // actors)), torch.nan).double()
    return Shared(
        weights, squares, torch.zeros(actors, 3).long(), returns, torch.zeros(()).double()
    )


class Rollout(NamedTuple):
    """T ≤ t_max steps of one environment, cut at the end of an episode or life."""

    observations: Tensor  # [T+1, *shape], the last one to bootstrap from
    actions: Tensor  # [T]
    rewards: NDArray[np.float32]  # [T], as learned
    terminated: bool


def loss_of(
    network: PolicyNetwork, spec: EnvSpec, costs: ActorCriticConfig, rollout: Rollout
) -> Tensor:
    """A3C's loss, the mean of the steps: policy gradient, n-step returns, entropy bonus."""
    parameters, values = network(rollout.observations)
    target, targets = 0.0 if rollout.terminated else float(values[-1].detach()), []
    for reward in reversed(rollout.rewards.tolist()):
        target = reward + costs.discount * target
        targets.append(target)
    policy = torch_distribution_of(spec.action)(parameters[:-1])
    errors = torch.tensor(targets[::-1]) - values[:-1]
    gain = policy.log_prob(rollout.actions) * errors.detach()
    gain = gain + costs.entropy_cost * policy.entropy()
    loss: Tensor = (0.5 * costs.value_cost * errors.square() - gain).mean()
    return loss


def step_weights(shared: Shared, gradient: Tensor, optimiser: OptimiserConfig) -> None:
    """A step of TensorFlow's RMSProp on the shared weights."""
    if optimiser.max_grad_norm:
        gradient = gradient * (optimiser.max_grad_norm / (gradient.norm() + 1e-6)).clamp(max=1.0)
    alpha, rate = optimiser.rmsprop_alpha, optimiser.rate_after(int(shared.counts[:, 0].sum()))
    shared.squares.mul_(alpha).addcmul_(gradient, gradient, value=1.0 - alpha)
    shared.weights.addcdiv_(gradient, (shared.squares + optimiser.epsilon).sqrt_(), value=-rate)


def rollouts(
    config: Config, spec: EnvSpec, shared: Shared, number: int, network: PolicyNetwork
) -> Iterator[Rollout]:
    """What actor `number` plays by the network, without end; counts its steps and episodes."""
    counts, returns = shared.counts[number], shared.returns[number]
    # a continued training plays other episodes
    rng = np.random.default_rng([config.run.seed, number, *counts.tolist()])
    distribution, timeout_s = distribution_of(spec.action), config.actors.step_timeout_s
    seed = int(rng.integers(2**31))
    env = make_vector_env(config.env, num_envs=1, seed=seed, step_timeout_s=timeout_s, max_faults=0)
    observation, total = torch.from_numpy(env.reset()[OBSERVATION]), 0.0
    while True:
        ended = lost = False
        observations = [observation]
        actions: list[Tensor] = []
        rewards: list[NDArray[np.float32]] = []
        while len(actions) < config.actors.unroll_length and not (ended or lost):
            with torch.no_grad():
                parameters, _ = network(observations[-1])
            chosen, _ = distribution.sample(parameters.numpy(), rng)
            env.send(chosen)
            step = env.recv()
            observations.append(torch.from_numpy(step.observations[OBSERVATION]))
            actions.append(torch.from_numpy(chosen))
            rewards.append(step.rewards)
            ended = bool(step.terminated[0] or step.truncated[0])
            lost = config.env.life_loss_ends and bool(step.life_lost[0])
        counts[0] += len(actions)
        observation, total = observations[-1], total + float(np.sum(rewards))
        if ended:
            returns[int(counts[2]) % len(returns)] = total
            counts[2] += 1
            env.send(chosen)  # resets; the action is ignored
            observation, total = torch.from_numpy(env.recv().observations[OBSERVATION]), 0.0
        learned = np.concatenate(rewards)
        if config.env.clip_rewards:
            learned = learned.clip(-1.0, 1.0)
        joined = torch.cat(observations), torch.cat(actions).long()
        yield Rollout(*joined, learned, lost or bool(step.terminated[0]))


def act(
    config: Config, spec: EnvSpec, shared: Shared, number: int, most_steps: float, stop: Event
) -> None:
    """An actor's process: play and learn until all have so many steps, or `stop`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is the parent's
    torch.set_num_threads(1)
    assert isinstance(config.loss, ActorCriticConfig)  # of `train`
    parent, network = os.getppid(), PolicyNetwork(architecture_of(config, spec))
    copy, parameters = shared.weights.clone(), list(network.parameters())
    vector_to_parameters(copy, parameters)  # these are views of it now
    for rollout in rollouts(config, spec, shared, number, network):
        loss = loss_of(network, spec, config.loss, rollout)
        gradient = parameters_to_vector(torch.autograd.grad(loss, parameters))
        step_weights(shared, gradient, config.optimiser)
        copy.copy_(shared.weights)
        shared.counts[number, 1] += 1
        if stop.is_set() or shared.counts[:, 0].sum() >= most_steps or os.getppid() != parent:
            return


def train(
    config: Config, out: Path, *, actors: int, steps: float, seconds: float, every_s: float
) -> None:
    """Train until so many steps or seconds in all, and append to `out`/a3c.csv.

    Raises:
        SystemExit: the configuration is not A3C's, or an actor failed.
    """
    if not isinstance(config.loss, ActorCriticConfig) or config.optimiser.kind != "rmsprop_tf":
        raise SystemExit("a3c: expected loss.kind actor_critic and optimiser.kind rmsprop_tf")
    out.mkdir(parents=True, exist_ok=True)
    spec, saved = read_spec(config.env), out / "a3c.safetensors"
    shared = Shared(**load_file(saved)) if saved.exists() else begin(config, spec, actors)
    started_s, counts = time.monotonic() - float(shared.time_s), shared.counts.sum(0)
    context = multiprocessing.get_context("spawn")
    for tensor in shared:
        tensor.share_memory_()  # type: ignore[no-untyped-call]
    stop, given = context.Event(), (config, spec, shared)
    processes = [
        context.Process(target=act, args=(*given, number, steps, stop), daemon=True)
        for number in range(len(shared.counts))
    ]
    for process in processes:
        process.start()
    reached = False
    while not reached:
        left_s = seconds - float(shared.time_s)
        ended = wait([each.sentinel for each in processes], min(every_s, left_s))
        reached = bool(ended) or every_s >= left_s
        if reached:
            stop.set()
            for process in processes:
                process.join(_END_WITHIN_S)
            if any(each.exitcode for each in processes):
                raise SystemExit("a3c: an actor failed; its error is above")
        counts = append(out / "a3c.csv", shared, time.monotonic() - started_s, counts)
        save_file(shared._asdict(), saved)


def append(table: Path, shared: Shared, now_s: float, before: Tensor) -> Tensor:
    """Write a row, with the rates since the counts `before`; the counts now."""
    took_s, counts, mean = (
        now_s - float(shared.time_s),
        shared.counts.sum(0),
        shared.returns.nanmean(),
    )
    shared.time_s.fill_(now_s)
    pps, tps, _ = ((counts - before) / took_s).tolist()
    with table.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not file.tell():
            writer.writerow(FIELDS)
        figures = (f"{figure:.2f}" for figure in (tps, pps, float(mean)))
        writer.writerow([f"{now_s:.2f}", *counts.tolist()[:2], *figures])
    return counts


def main(arguments: Sequence[str] | None = None) -> None:
    """Train by the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the training")
    parser.add_argument("--actors", type=int, default=usable_cores(), help="default: cores")
    parser.add_argument("--steps", type=float, default=math.inf, help="agent steps in all")
    parser.add_argument("--seconds", type=float, default=math.inf, help="of training in all")
    parser.add_argument("--every-s", type=float, default=10.0, help="seconds between two rows")
    parser.add_argument(
        "--set", action="extend", nargs="+", default=[], dest="overrides", metavar="KEY=VALUE"
    )
    options = vars(parser.parse_args(arguments))
    train(load_config(_CONFIG, options.pop("overrides")), options.pop("out"), **options)


if __name__ == "__main__":
    main()
