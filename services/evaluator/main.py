"""Builds an evaluator from its parts."""

from __future__ import annotations

from collections.abc import Iterator

from aclearn.envs import make_vector_env
from aclearn.rollout import Executable, InfoMetrics, PolicySnapshot
from services.evaluator.chooser import Chooser
from services.evaluator.core import Evaluator
from services.evaluator.play import Played, episodes_of
from services.evaluator.trainer_client import TrainerClient
from services.policy.client import make_policy_client
from services.policy.factory import architecture_of, make_runtime
from services.role.context import RoleContext
from services.role.loop import MonitoredRole, Role
from services.role.request_client import PeerLink
from services.start.probe import check_evaluator_spaces


def make_evaluator(context: RoleContext) -> Role:
    """Create the evaluator; its steps raise `EnvironmentFailure` if environments fail too often.

    Each evaluation plays the same episodes: their seeds depend on `run.seed` alone, and are no
    actor's.

    Raises:
        ConfigError: its environment has other spaces than the run's.
        EnvironmentFailure: the environments cannot be made.
    """
    config, spec = context.config, context.run.env_spec
    assert spec is not None  # the role needs an environment
    settings = config.evaluator
    architecture = architecture_of(config, spec).acting()
    env = make_vector_env(
        config.evaluator_env,
        num_envs=settings.envs,
        step_timeout_s=config.actors.step_timeout_s,
        max_faults=config.actors.max_env_faults,
    )
    try:
        check_evaluator_spaces(env.spec, spec)
        monitor = context.join(lambda: evaluator.heartbeat())
    except BaseException:
        env.close()
        raise
    env.between_attempts = monitor.tick
    info_metrics = InfoMetrics(config.evaluator_env.info_metrics, config.evaluator_env.id)
    chooser = Chooser.of(config, architecture.action_spec, greedy=settings.greedy)
    seed = context.seeds(generation=0).evaluation
    clock = context.clocks.decisions
    pace = {"ask_every_s": 0.0} if context.inline else {}

    def play(policy: Executable) -> Iterator[Played]:
        return episodes_of(
            env,
            policy,
            chooser,
            episodes=settings.episodes,
            seed=seed,
            info_metrics=info_metrics,
        )

    artifact = None
    if config.compressor.rungs:
        artifacts = make_policy_client(context, architecture, "onnx", max_batch=env.num_envs)

        def artifact() -> PolicySnapshot | None:
            artifacts.poll(monitor)
            return artifacts.acting

    evaluator = Evaluator(
        TrainerClient(PeerLink(context, "weights"), monitor, clock=clock, **pace),
        make_runtime(architecture, "onnx"),
        play,
        every_s=settings.every_s,
        cpu_share=settings.cpu_share,
        artifact=artifact,
        env_faults=lambda: sum(env.faults.values()),
        clock=clock,
        cpu_clock=context.clocks.cpu,
    )

    def end() -> None:
        monitor.leave()  # also after an environment failure: the monitor knows at once
        env.close()

    return MonitoredRole(monitor, evaluator.meter, evaluator.step, end)
