"""Worlds on the learners' device in which several policies play: a rollout is a batch of each."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from aclearn.config import Config
from aclearn.errors import ConfigError
from aclearn.learning import (
    Batch,
    BatchStopped,
    GradientWorker,
    Learner,
    PublishedWeights,
    StepAccount,
)
from aclearn.learning.sources.source import BatchSource
from aclearn.policies.cuda_stream import CudaStream
from aclearn.resident import ResidentWorld, resident_env_of
from aclearn.resident.acting_network import ActingNetwork
from aclearn.resident.joint_rollout import ActingPolicy, JointRollout
from aclearn.resident.memory import learning_bytes
from aclearn.resident.played import Played
from aclearn.resident.policy_rows import rows_by_policy
from aclearn.resident.source import DTYPES, ENVS
from aclearn.resident.worlds import ResidentWorlds
from aclearn.rollout import final_epsilons, share_left
from aclearn.telemetry import part
from aclearn.types import OBSERVATION, EnvSpec


class JointSource(BatchSource):
    """One policy's part of the rollouts that all policies play together.

    Args:
        leads: whether the worlds are saved with this policy.
    """

    plays = True

    def __init__(
        self,
        play: JointPlay,
        config: Config,
        learner: Learner,
        account: StepAccount,
        published: PublishedWeights,
        *,
        policy: str,
        learns: bool,
        leads: bool,
        incarnation: str,
    ) -> None:
        self._play, self.config, self.learner = play, config, learner
        self._policy, self.learns, self._leads = policy, learns, leads
        self._account, self._published = account, published
        self.played = Played(account, incarnation, config.trainer.burn_in_steps)

    @override
    def next(self, timeout_s: float, worker: GradientWorker) -> Batch | None:
        return self._play.next(self._policy, worker.check) if self.learns else None

    def batch_of(self, tensors: Mapping[str, Any], state: tuple[Tensor, ...], steps: int) -> Batch:
        """The newest rollout of this policy's rows, which have so many steps to learn."""
        version = np.int64(self._published.at.version)
        return Batch(
            versions=np.broadcast_to(version, tuple(tensors["valid"].shape)),
            state=state,
            chain_steps={"none": steps},
            **tensors,
        )

    @override
    def take_episodes(self) -> dict[str, Any]:
        return self.played.take(self._play.envs.steps)

    @override
    def heartbeat_fields(self) -> dict[str, dict[str, Any]]:
        return self.played.heartbeat_fields()

    @override
    def state(self) -> dict[str, NDArray[Any]]:
        return self._play.state() if self._leads else {}

    @override
    def restore(self, saved: Mapping[str, NDArray[Any]]) -> None:
        """Another number of environments starts with new episodes."""
        self._account.close_all()
        if self._leads:
            self._play.restore(saved)

    @override
    def close(self) -> None:
        if self._leads:
            self._play.envs.close()


class JointPlay:
    """Plays T steps of every world by the newest published policies. One thread.

    Every policy of the run joins; then `begin` makes the worlds.

    Args:
        config: of the run.
        spec: of the environments.
    """

    envs: ResidentWorlds

    def __init__(
        self,
        config: Config,
        spec: EnvSpec,
        *,
        device: torch.device,
        incarnation: str,
        seed: int,
        threads: int | None = None,
    ) -> None:
        self._device, on_cpu = device, device.type == "cpu"
        self._stream = None if on_cpu else CudaStream(device)
        self._config, self._specs = config, spec.by_policy(config.patterns)
        self._incarnation, self._seed = incarnation, seed
        self._threads = threads or config.resident.threads
        self._sources: dict[str, JointSource] = {}
        self._ready: dict[str, Batch] = {}
        if config.resident.chain:
            raise ConfigError(
                "resident.chain: several policies act uncompressed in resident environments; set "
                "it to []"
            )

    def join(
        self,
        policy: str,
        config: Config,
        learner: Learner,
        account: StepAccount,
        published: PublishedWeights,
        *,
        learns: bool,
    ) -> JointSource:
        """The source of a policy's batches; the arguments are those of this policy."""
        loss: Any = config.loss
        if loss.acting == "noise":
            raise ConfigError(
                f"policies.{policy}.loss.kind: {loss.kind} explores by noise, which several "
                "policies in resident environments cannot; take sac or ppo"
            )
        cores = self._threads or len(os.sched_getaffinity(0))
        source = self._sources[policy] = JointSource(
            self,
            config,
            learner,
            account,
            published,
            policy=policy,
            learns=learns,
            leads=learns and not any(each.learns for each in self._sources.values()),
            incarnation=self._incarnation,
        )
        source.stream = self._stream
        source.threads = cores if self._stream is None else 1
        return source

    def begin(self) -> None:
        """Make the worlds and begin their first episodes.

        Raises:
            ConfigError: they have one agent, do not fit the policies, or not into the memory.
        """
        config, sources = self._config, self._sources
        envs, device = config.resident.envs, self._device
        assert envs is not None
        world = resident_env_of(config)
        if not isinstance(world, ResidentWorld):
            raise ConfigError(
                f"policies: {world.name} has one agent, and several policies need as many; remove "
                "the section"
            )
        numbers = {policy: number for number, policy in enumerate(sources)}
        policy_of = {name: p for p, spec in self._specs.items() for name in spec.agent_names}
        more: dict[str, int] = {}
        for policy, source in sources.items():
            for what, size in self._bytes_of(policy, source).items():
                more[what] = more.get(what, 0) + size
        self.envs = ResidentWorlds(
            world,
            envs=envs,
            device=str(device),
            seed=self._seed,
            threads=self._threads,
            squash=config.env.squash_actions,
            steps=config.actors.unroll_length,
            more_bytes=more,
            accounts=[numbers[policy_of[name]] for name in world.agents],
        )
        self.rows = rows_by_policy(self.envs.kinds, self._specs)
        self._acting = {}
        for policy, source in sources.items():
            rows = self.rows[policy]
            count = envs * rows.agents
            acting = ActingNetwork(
                source.learner.architecture, count, device, DTYPES[config.resident.policy]
            )
            loss: Any = source.config.loss
            epsilon = None
            if loss.acting == "epsilon":
                # a fixed opponent takes its best action in every step
                epsilon = torch.full((count,), float(source.learns), device=device)
            self._acting[policy] = ActingPolicy(acting, rows, epsilon)
        self._final = {
            policy: torch.from_numpy(
                final_epsilons(
                    sources[policy].config.loss.epsilon,  # type: ignore[attr-defined]
                    sources[policy].config.loss.epsilon_exponent,  # type: ignore[attr-defined]
                    len(each.epsilon),
                )
            ).to(device)
            for policy, each in self._acting.items()
            if each.epsilon is not None and sources[policy].learns
        }
        self._rollout = JointRollout(self.envs, list(self._acting.values()), stream=self._stream)
        self.envs.reset()

    def next(self, policy: str, check: Callable[[], None]) -> Batch | None:
        """A policy's batch of the newest rollout; a new one where it has had it."""
        if policy not in self._ready and not self._play(check):
            return None
        return self._ready.pop(policy)

    def _play(self, check: Callable[[], None]) -> bool:
        """Whether a rollout was played; False if the check stopped it."""
        with part("rollout"):
            for policy, each in self._acting.items():
                source = self._sources[policy]
                each.acting.refresh(dict(source.learner.network.named_parameters()))
                if policy in self._final:  # ε falls from 1, rollout by rollout
                    assert each.epsilon is not None
                    loss: Any = source.config.loss
                    left = share_left(self.envs.steps, loss.epsilon_steps)
                    final = self._final[policy]
                    each.epsilon.copy_(final + (1.0 - final) * left)
            try:
                self._rollout.run(check)
            except BatchStopped:
                return False
            if self._config.env.clip_rewards:
                for kind in self.envs.kinds:
                    kind.buffers.rewards.clamp_(-1.0, 1.0)
        for number, (policy, source) in enumerate(self._sources.items()):
            sums, cohorts = self.envs.take_sums(number), self.envs.take_cohorts(number)
            rows, b = self.rows[policy], self.rows[policy].kind.buffers
            if not source.learns:
                source.played.watch(sums, cohorts)
                continue
            tensors: dict[str, Any] = {
                "observations": {OBSERVATION: rows.of_steps(b.observations)},
                "actions": rows.of_steps(b.actions),
                "behaviour_log_prob": rows.of_steps(b.log_probs),
                "masks": None if b.masks is None else rows.of_steps(b.masks),
                **{
                    name: rows.of_steps(getattr(b, name))
                    for name in ("rewards", "terminated", "truncated", "valid")
                },
            }
            steps = source.played.add(sums, cohorts, tensors["valid"])
            state = tuple(self._acting[policy].acting.first_state)
            self._ready[policy] = source.batch_of(tensors, state, steps)
        return True

    def _bytes_of(self, policy: str, source: JointSource) -> dict[str, int]:
        learner = source.learner
        if not source.learns:
            return {}
        return learning_bytes(
            source.config,
            self._specs[policy],
            learner.architecture,
            freezes=learner.freezes,
            on_gpu=learner.device.type != "cpu",
        )

    def state(self) -> dict[str, NDArray[Any]]:
        """The worlds, and every policy's state between two steps."""
        saved = {f"{ENVS}{name}": array for name, array in self.envs.snapshot().items()}
        return saved | {name: t.cpu().numpy().copy() for name, t in self._memory.items()}

    def restore(self, saved: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state`, if it is of as many worlds."""
        envs = {
            name.removeprefix(ENVS): array for name, array in saved.items() if name.startswith(ENVS)
        }
        if len(envs.get("lengths", ())) != self.envs.num_envs * self.envs.agents:
            return
        self.envs.restore(envs)
        for name, state in self._memory.items():
            state.copy_(torch.from_numpy(np.array(saved[name])))

    @property
    def _memory(self) -> dict[str, Tensor]:
        """The parts of the policies' states by their names in a checkpoint."""
        return {
            f"memory/{policy}/{i}": part
            for policy, each in self._acting.items()
            for i, part in enumerate(each.acting.state)
        }
