"""The trainers of several runs that differ in weights and numbers, as a batch in one process."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from aclearn.config import Config
from aclearn.errors import CheckpointError, ConfigError, EnvironmentFailure, words_of
from aclearn.learning import Learner, PublishedWeights, UpdateReport
from aclearn.learning.batched import MemberLearners, MemberReports
from aclearn.policies import Architecture
from aclearn.resident import ResidentEnv, ResidentEnvs, resident_env_of
from aclearn.resident.member_rollout import MemberRollout
from aclearn.resident.member_source import MemberSource, batch_of_groups
from aclearn.resident.memory import learning_bytes
from aclearn.runs import RunFolder, claim_generation
from aclearn.types import EnvSpec
from aclearn.wire import new_incarnation
from services.policy.factory import architecture_of
from services.role.seeds import Seeds, Use
from services.trainer.batchable import check_batchable
from services.trainer.build import device_of, make_account, make_learner
from services.trainer.checkpoints import TrainerCheckpoints
from services.trainer.gauges import refuse_if_diverged
from services.trainer.tally import Made, Tally
from services.trainer.trainer import Trainer
from services.trainer.warm_start import warm_start_of

_LOGGER = logging.getLogger(__name__)

#: Most batches after which the trainers are told.
_COUNTED_EVERY = 16


@dataclass
class MemberTrainer:
    """A member's trainer and its files.

    Attributes:
        fault: the error that ended it before the others; None of one that lives.
    """

    trainer: Trainer
    source: MemberSource
    checkpoints: TrainerCheckpoints
    incarnation: str
    fault: Exception | None = None


class MemberTrainers:
    """Plays and learns for all members at once, with one thread.

    Each member is an ordinary trainer with its own account, counters and checkpoints: it continues
    the run in its folder, and any trainer continues that run later.

    Args:
        runs: configuration and folder of each.

    Attributes:
        members: in the order of `runs`.

    Raises:
        ConfigError: they cannot be batched; names the key.
    """

    def __init__(self, runs: Sequence[tuple[Config, RunFolder]]) -> None:
        configs = [config for config, _ in runs]
        check_batchable(configs)
        self._config = config = configs[0]
        env = _env_of(config)
        spec = env.spec(squash=config.env.squash_actions)
        architecture, device = architecture_of(config, spec), device_of(config, 0)
        learners = [make_learner(each, architecture, device) for each in configs]
        if learners[0].objective.measures:
            raise ConfigError(
                "a batched population: correctors: one of them looks at all steps of an update "
                "together; take vtrace, importance_sampling or others, or train the members apart"
            )
        if device.type == "cpu":  # products of a batch of models are worth several threads
            torch.set_num_threads(config.resident.threads or len(os.sched_getaffinity(0)))
        generations = [claim_generation(folder) for _, folder in runs]
        seeds = [
            Seeds(each.run.seed, generation).number(Use.RESIDENT)
            for each, generation in zip(configs, generations, strict=True)
        ]
        self.envs = _environments(
            env, config, architecture, seeds, device=device, freezes=learners[0].freezes
        )
        self.envs.reset()
        self.members = [
            self._member(number, run, learners[number], spec, generations[number])
            for number, run in enumerate(runs)
        ]
        self._go_on()
        self._learners = MemberLearners(learners)
        self._rollout = MemberRollout(self.envs, architecture, self._learners.rows.weights)
        self._tally, self._reports = Tally(len(runs)), MemberReports((), (), ())
        self._batches = 0  # since they were counted
        self._counted_every = min(_COUNTED_EVERY, self.envs.episodes.most_rollouts)
        accounts = [member.trainer.account for member in self.members]
        #: Agent steps that each member may still take; not a number above those of an int.
        self._left = np.array([each.max_env_steps - each.env_steps for each in accounts])
        for member in self.members:
            member.trainer.publish()

    def _member(
        self,
        number: int,
        run: tuple[Config, RunFolder],
        learner: Learner,
        spec: EnvSpec,
        generation: int,
    ) -> MemberTrainer:
        config, folder = run
        account, published = make_account(config), PublishedWeights()
        incarnation = new_incarnation()
        source = MemberSource(self.envs, number, account, incarnation)
        trainer = Trainer(
            learner,
            account,
            source,
            config=config,
            spec=spec,
            published=published,
            generation=generation,
        )
        checkpoints = TrainerCheckpoints(
            trainer,
            folder,
            config.run,
            judge=config.judge,
            test=config.evaluator_test,
            spread=config.evaluator.keep,
            start=lambda: warm_start_of(config, learner.architecture),
        )
        member = MemberTrainer(trainer, source, checkpoints, incarnation)
        try:
            checkpoints.restore_or_start()
        except CheckpointError as error:  # the others go on
            self._end(member, error)
        return member

    def _go_on(self) -> None:
        """Continue the episodes of the checkpoints, at the step that most of them have."""
        steps = [member.source.saved_steps for member in self.members]
        self.envs.advance(max(steps, key=steps.count))
        self.envs.reset()
        for member in self.members:
            member.source.go_on()

    @property
    def over(self) -> bool:
        """Whether no member learns any more."""
        return not self._learns.any()

    @property
    def _learns(self) -> NDArray[np.bool_]:
        """`[M]`, whether each member's run goes on."""
        lives = np.array([member.fault is None for member in self.members])
        learns: NDArray[np.bool_] = lives & (self._tally.played < self._left)
        return learns

    def step(self) -> None:
        """A rollout of all members, and its updates of those that still learn."""
        trainer, learns = self._config.trainer, self._learns
        self._rollout.run()
        if self._config.env.clip_rewards:
            self.envs.buffers.rewards.clamp_(-1.0, 1.0)
        batch = batch_of_groups(self.envs)
        try:
            self._reports = self._learners.learn(
                batch,
                torch.from_numpy(learns).to(self.envs.device),
                minibatches=trainer.minibatches,
                epochs=trainer.epochs,
            )
        except RuntimeError as error:  # of torch.func: a tensor was asked for its value
            raise ConfigError(
                f"a batched population: loss.kind {self._config.loss.kind} or one of correctors "
                f"cannot be computed for several members at once ({words_of(error)}); take others, "
                "or train the members apart"
            ) from error
        played = batch.valid.sum((1, 2)).cpu().numpy()
        self._tally.add(np.where(learns, played, 0), self._reports)
        self._batches += 1
        lives = np.array([member.fault is None for member in self.members])
        refused = (lives & (self._tally.refused_in_a_row > 0)).any()
        if self._batches >= self._counted_every or refused:
            self.count()

    def count(self) -> None:
        """Tell each trainer what it has played and learned."""
        self._batches = 0
        for number, member in enumerate(self.members):
            made = self._tally.take(number)
            if member.fault is not None or made.played == 0:
                continue
            self._left[number] -= made.played
            try:
                member.source.count(made.played)
                _count_made(member.trainer, made, self._reports.of(number))
                refuse_if_diverged(int(self._tally.refused_in_a_row[number]))
            except (EnvironmentFailure, FloatingPointError) as error:
                self._end(member, error)

    def _end(self, member: MemberTrainer, error: Exception) -> None:
        member.fault = error
        _LOGGER.warning("event=member_ended reason=%r", str(error))

    def save(self) -> None:
        """Write a checkpoint of each member that lives."""
        self.count()
        for member in self.members:
            if member.fault is None:
                member.checkpoints.write()

    def close(self) -> None:
        """End the threads."""
        self.envs.close()


def _count_made(trainer: Trainer, made: Made, reports: Sequence[UpdateReport]) -> None:
    """Count batches whose updates were made of a trainer's weights, and publish these.

    Args:
        reports: of the newest batch.
    """
    account = trainer.account
    account.learned(made.learned)
    account.dropped("nonfinite_gradient", made.refused)
    account.dropped("shutdown", account.in_flight_steps)
    trainer.figures.add_made(made, reports)
    if made.versions:
        trainer.raise_version(trainer.counters.policy_version + made.versions)


def _env_of(config: Config) -> ResidentEnv:
    env = resident_env_of(config)
    if not isinstance(env, ResidentEnv):
        raise ConfigError(
            f"a batched population: resident.env: {env.name} has several agents; train the members "
            "apart"
        )
    return env


def _environments(
    env: ResidentEnv,
    config: Config,
    architecture: Architecture,
    seeds: Sequence[int],
    *,
    device: torch.device,
    freezes: bool,
) -> ResidentEnvs:
    each, squash = config.resident.envs, config.env.squash_actions
    assert each is not None
    return ResidentEnvs(
        env,
        envs=each * len(seeds),
        device=str(device),
        seed=seeds,
        threads=config.resident.threads,
        squash=squash,
        steps=config.actors.unroll_length,
        more_bytes=learning_bytes(
            config,
            env.spec(squash=squash),
            architecture,
            freezes=freezes,
            on_gpu=device.type == "cuda",
        ),
    )
