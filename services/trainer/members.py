"""The trainers of several runs that differ in weights and numbers, as a batch in one process."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from aclearn.config import Config
from aclearn.errors import ConfigError, EnvironmentFailure, words_of
from aclearn.learning import PublishedWeights
from aclearn.learning.batched import MemberLearner, MemberLearners
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
from services.trainer.trainer import Trainer
from services.trainer.warm_start import warm_start

_LOGGER = logging.getLogger(__name__)


@dataclass
class MemberTrainer:
    """A member's trainer and its files.

    Attributes:
        fault: why it has ended before the others; "" of one that lives.
    """

    trainer: Trainer
    source: MemberSource
    checkpoints: TrainerCheckpoints
    fault: str = ""

    @property
    def learns(self) -> bool:
        """Whether its run goes on."""
        return not self.fault and not self.trainer.over


class MemberTrainers:
    """Plays and learns for all members at once, with one thread.

    Each member is an ordinary trainer with its own account, counters and checkpoints: it continues
    the run in its folder, and any trainer continues that run later.

    Args:
        runs: configuration and folder of each.
        spec: of the environments.

    Attributes:
        members: in the order of `runs`.

    Raises:
        ConfigError: they cannot be batched; names the key.
        CheckpointError: a run cannot be continued.
    """

    def __init__(self, runs: Sequence[tuple[Config, RunFolder]], spec: EnvSpec) -> None:
        configs = [config for config, _ in runs]
        check_batchable(configs)
        self._config = config = configs[0]
        architecture, device = architecture_of(config, spec), device_of(config, 0)
        learners = [
            make_learner(each, architecture, device, kind=MemberLearner) for each in configs
        ]
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
        self.envs = _environments(config, architecture, seeds, str(device), learners[0].freezes)
        self.envs.reset()
        self.members = [
            self._member(number, run, learners[number], spec, generations[number])
            for number, run in enumerate(runs)
        ]
        self._go_on()
        self._learners = MemberLearners(learners)
        self._rollout = MemberRollout(self.envs, architecture, self._learners.rows.weights)
        for member in self.members:
            member.trainer.publish()

    def _member(
        self,
        number: int,
        run: tuple[Config, RunFolder],
        learner: MemberLearner,
        spec: EnvSpec,
        generation: int,
    ) -> MemberTrainer:
        config, folder = run
        account, published = make_account(config), PublishedWeights()
        source = MemberSource(self.envs, number, account, published, new_incarnation())
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
            start=lambda: warm_start(config, learner.architecture),
        )
        checkpoints.restore_or_start()
        return MemberTrainer(trainer, source, checkpoints)

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
        return not any(member.learns for member in self.members)

    def step(self) -> None:
        """A rollout of all members, and its updates of those that still learn."""
        trainer = self._config.trainer
        self._rollout.run()
        if self._config.env.clip_rewards:
            self.envs.buffers.rewards.clamp_(-1.0, 1.0)
        batch = batch_of_groups(self.envs)
        taken = {}
        for number, member in enumerate(self.members):
            if member.learns:
                try:
                    taken[number] = member.source.take(batch)
                except EnvironmentFailure as error:
                    self._end(member, error)
        learns = torch.zeros(len(self.members), dtype=torch.bool, device=self.envs.device)
        learns[list(taken)] = True
        try:
            self._learners.learn(
                batch, learns, minibatches=trainer.minibatches, epochs=trainer.epochs
            )
        except RuntimeError as error:  # of torch.func: a tensor was asked for its value
            raise ConfigError(
                f"a batched population: loss.kind {self._config.loss.kind} or one of correctors "
                f"cannot be computed for several members at once ({words_of(error)}); take others, "
                "or train the members apart"
            ) from error
        for number, mine in taken.items():
            member = self.members[number]
            try:
                member.trainer.learn(mine)
            except FloatingPointError as error:
                self._end(member, error)

    def save(self) -> None:
        """Write the checkpoints that are due."""
        for member in self.members:
            if member.learns:
                member.checkpoints.write_if_due()

    def close(self) -> None:
        """Write the last checkpoint of each member that lives, and end the threads."""
        for member in self.members:
            if not member.fault:
                member.checkpoints.write()
        self.envs.close()

    def _end(self, member: MemberTrainer, error: Exception) -> None:
        member.fault = words_of(error)
        _LOGGER.warning("event=member_ended reason=%r", member.fault)


def _environments(
    config: Config, architecture: Architecture, seeds: Sequence[int], device: str, freezes: bool
) -> ResidentEnvs:
    env, each = resident_env_of(config), config.resident.envs
    assert each is not None
    if not isinstance(env, ResidentEnv):
        raise ConfigError(
            f"a batched population: resident.env: {env.name} has several agents; train the members "
            "apart"
        )
    return ResidentEnvs(
        env,
        envs=each * len(seeds),
        device=device,
        seed=seeds,
        threads=config.resident.threads,
        squash=config.env.squash_actions,
        steps=config.actors.unroll_length,
        config=config.env.kwargs,
        more_bytes=learning_bytes(
            config,
            env.spec(squash=config.env.squash_actions),
            architecture,
            freezes=freezes,
            on_gpu=device != "cpu",
        ),
    )
