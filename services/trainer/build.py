"""A trainer's parts, from the configuration."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from aclearn.config import Config
from aclearn.learning import (
    ActingPolicies,
    Audited,
    BatchSource,
    Fifo,
    Learner,
    PublishedWeights,
    QueueSource,
    Replay,
    ReplayMemory,
    StepAccount,
    TrainingQueue,
    make_objective,
)
from aclearn.learning.ranks import ALONE, Group
from aclearn.policies import Architecture, halves_pay
from aclearn.policies.devices import choose_amp, choose_device
from aclearn.runs import RING_FOLDER, BatchRing, RunFolder
from aclearn.types import DEFAULT_POLICY, EnvSpec, Unroll
from services.policy.factory import acting_chain, architecture_of, unroll_spec_of
from services.role.seeds import Seeds, Use
from services.trainer.acting_copy import ActingCopy
from services.trainer.flight_recorder import FlightRecorder, machine_of
from services.trainer.rounded import rounding_of
from services.trainer.trainer import Trainer
from services.trainer.trainers import NoBatches, Trainers

if TYPE_CHECKING:
    from aclearn.resident.joint_source import JointPlay

#: Samples that are differentiated at a time on a CPU where observations are flat, since networks of
#: ours for these are small, and cost as much as their calls. A memory's step costs nearly the same
#: for any number of environments.
_CHUNK_SAMPLES_OF_FLAT = 8192


def make_queue(config: Config) -> TrainingQueue[Unroll]:
    """The queue of one policy between the trainer's sockets and its workers."""
    trainer = config.trainer
    return TrainingQueue[Unroll](
        max_bytes=trainer.queue_bytes // len(config.learning_policies()),
        max_items=trainer.queue_batches * trainer.unrolls_per_batch,
        batch_items=trainer.unrolls_per_batch,
    )


def make_trainers(
    config: Config,
    spec: EnvSpec,
    *,
    queues: Mapping[str, TrainingQueue[Unroll]],
    generation: int = 0,
    **options: Any,
) -> Trainer | Trainers:
    """The new trainer of a run: of its only policy, or of several.

    Args:
        queues: policy that learns → queue of its unrolls.
        options: of `make_trainer`.
    """
    if not config.policies:
        [queue] = queues.values()
        return make_trainer(config, spec, queue=queue, generation=generation, **options)
    trainers, specs, play = {}, spec.by_policy(config.patterns), None
    if config.resident.envs is not None:
        from aclearn.resident.joint_source import JointPlay  # needs Warp

        play = JointPlay(
            config,
            spec,
            device=device_of(config, 0),
            incarnation=options["incarnation"],
            seed=Seeds(config.run.seed, generation).number(Use.RESIDENT),
            threads=options["threads"],
        )
    for place, name in enumerate(config.policy_names()):
        # another number for each policy: equal networks begin with other weights
        seeds = Seeds(config.run.seed, 0, place)
        own = config.of_policy(name).with_run(seed=seeds.number(Use.LEARNING))
        trainers[name] = make_trainer(
            own,
            specs[name],
            policy=name,
            queue=queues.get(name),
            learns=name in queues,
            play=play,
            generation=generation,
            **options,
        )
    if play is not None:
        play.begin()
    return Trainers(trainers, config.learning_policies())


def make_trainer(
    config: Config,
    spec: EnvSpec,
    *,
    policy: str = DEFAULT_POLICY,
    queue: TrainingQueue[Unroll] | None = None,
    learns: bool = True,
    play: JointPlay | None = None,
    generation: int = 0,
    incarnation: str = "trainer",
    threads: int | None = None,
    group: Group = ALONE,
) -> Trainer:
    """A new trainer of one policy, with environments of its own where `resident.envs` says so.

    Args:
        config: of the policy.
        queue: of actors' unrolls; None: a new one.
        learns: whether it gets batches.
        play: of all policies, in environments of the run's own.
        incarnation: of this process, for the account of its own steps.
        threads: of the CPU for its own environments; None: as configured.
        group: the ranks of which it is one.
    """
    ranks, rank = group.size, group.rank
    account = make_account(config, ranks, policy)
    learner = make_learner(
        config, architecture_of(config, spec), device_of(config, rank), group=group
    )
    published, acting = _published(config, learner)
    seeds = Seeds(config.run.seed, generation, rank)
    source: BatchSource
    if play is not None:
        source = play.join(policy, config, learner, account, published, learns=learns)
    elif not learns:
        source = NoBatches()
    elif config.resident.envs is None:
        source = QueueSource(
            make_queue(config) if queue is None else queue,
            account,
            unrolls=config.trainer.unrolls_per_batch,
            observation=spec.observation,
            burn_in_steps=config.trainer.burn_in_steps,
        )
    else:
        from aclearn.resident.source import ResidentSource  # needs Warp

        copy = None
        if config.resident.chain:
            chain = acting_chain(config.resident.chain, learner.architecture.acting())
            copy = ActingCopy(chain, learner.architecture, seeds.number(Use.COMPRESSION))
        source = ResidentSource(
            config,
            spec,
            learner,
            account,
            published,
            incarnation=incarnation,
            seed=seeds.number(Use.RESIDENT),
            copy=copy,
            threads=threads,
        )
    loss: Any = config.loss
    if learns and loss.source == "fifo":
        source = Fifo(source, account, unrolls=loss.buffer_unrolls)
    elif learns and loss.source == "replay":
        memory = _make_memory(config, spec, learner.device, seeds)
        source = Replay(source, memory, account, config.replay)
    if config.run.audit:
        source = Audited(source)
    return Trainer(
        learner,
        account,
        source,
        config=config,
        spec=spec,
        published=published,
        generation=generation,
        group=group,
        acting=acting,
    )


def make_account(config: Config, ranks: int = 1, policy: str = DEFAULT_POLICY) -> StepAccount:
    """An account with the bound of the run."""
    return StepAccount(
        policy=policy,
        max_env_steps=math.inf if config.run.max_env_steps is None else config.run.max_env_steps,
        ahead=ranks * (config.actors.max_in_flight_unrolls + config.actors.groups),
        most_open=config.monitor.max_processes,
    )


def _published(config: Config, learner: Learner) -> tuple[PublishedWeights, ActingPolicies | None]:
    """The published weights, and what splits ratios by them where anything asks for it."""
    if not config.acts_compressed or not (learner.splits or config.trainer.split_ratios):
        return PublishedWeights(), None
    version = sum(4 * weights.numel() for weights in learner.published.values())
    most = config.trainer.kept_weights_bytes // version
    published = PublishedWeights(kept=max(1, min(most, config.trainer.max_lag_versions + 1)))
    return published, ActingPolicies(
        learner.architecture,
        published,
        device=learner.device,
        amp_dtype=_amp(config, learner.architecture, learner.device),
        channels_last=config.trainer.channels_last,
        rounding=rounding_of(config, learner.architecture),
    )


def record_batches(trainer: Trainer | Trainers, config: Config, folder: RunFolder) -> None:
    """Give each learning policy's trainer a recorder, where the run wants some."""
    if config.run.flight_recorder is None:
        return
    for policy in config.learning_policies():
        own = trainer.by_policy[policy]
        rings = folder.path / RING_FOLDER / policy
        device = own.learner.device
        own.recorder = FlightRecorder(
            BatchRing(rings, trainer.generation, config.run.flight_recorder),
            own.learner,
            folder=folder.path,
            about={
                "config": config.to_yaml(),
                "machine": machine_of(device),
                "threads": own.source.threads,
            },
        )


def device_of(config: Config, rank: int) -> torch.device:
    """The device on which a rank learns: of several GPUs each has the next one.

    Raises:
        ConfigError: the GPU does not exist.
    """
    resident = config.resident.envs is not None
    wanted = config.resident.device if resident else config.trainer.device
    # bit-reproducible only on the CPU
    device = choose_device("cpu" if config.run.deterministic else wanted)
    if device.type == "cuda" and device.index is None and config.ranks > 1:
        return torch.device("cuda", rank % torch.cuda.device_count())
    return device


def _make_memory(config: Config, spec: EnvSpec, device: torch.device, seeds: Seeds) -> ReplayMemory:
    unroll = unroll_spec_of(config, spec)
    return ReplayMemory(
        unroll,
        device,
        config.replay,
        discount=config.loss.discount,
        at_once=(config.resident.envs or 0) * spec.agents
        or config.trainer.unrolls_per_batch * unroll.most_rows,
        seed=seeds.number(Use.REPLAY),
    )


def make_learner(
    config: Config,
    architecture: Architecture,
    device: torch.device,
    *,
    group: Group = ALONE,
) -> Learner:
    """A learner of this kind; torch computes in one thread, without denormals, from then on."""
    resident, trainer = config.resident.envs is not None, config.trainer
    averages = trainer.average_every is not None  # of ranks that make updates of their own
    # each worker is a thread; torch's pool would compete with them
    torch.set_num_threads(1)
    # Moments of weights without gradient fade into numbers with which Adam takes twice as long.
    # Threads inherit this from the one that starts them.
    torch.set_flush_denormal(True)
    torch.manual_seed(config.run.seed)
    leaves = architecture.observation.values()
    images = architecture.convolves or any(leaf.is_image for leaf in leaves)
    users = any(layer.module is not None for layer in architecture.layers)  # of any size
    flat = not images and (not users or bool(architecture.state))
    return Learner(
        architecture,
        objective=make_objective(
            config.loss,
            config.correctors,
            behaviour_parameters=config.actors.behaviour_parameters,
            critic=config.policy.critic,
            probabilities=not architecture.action_spec.numbers,
        ),
        optimiser=config.optimiser,
        device=device,
        group=ALONE if averages else group,
        amp_dtype=_amp(config, architecture, device),
        channels_last=trainer.channels_last,
        compiled=trainer.compile,
        rounding=rounding_of(config, architecture),
        chunk_samples=_CHUNK_SAMPLES_OF_FLAT if resident or flat else None,
        # the bound is one of rank 0's updates, so that it ends all ranks after the same batch
        max_updates=None if averages and group.rank > 0 else config.run.max_updates,
        burn_in_steps=trainer.burn_in_steps,
        seed=config.run.seed,
    )


def _amp(config: Config, architecture: Architecture, device: torch.device) -> torch.dtype | None:
    """The number format of the trainer's passes; None: fp32."""
    pays = halves_pay(architecture.observation)
    return choose_amp(config.trainer.amp, device, pays=pays)
