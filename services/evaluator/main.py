"""Builds an evaluator from its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from aclearn.envs import make_policy_envs
from aclearn.rollout import Executable, InfoMetrics, PolicySnapshot
from services.evaluator.chooser import Chooser
from services.evaluator.core import Evaluator
from services.evaluator.play import Played, Player, episodes_of
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
    names, rules = config.policy_names(), config.evaluator_env
    specs = spec.by_policy(config.patterns)
    architectures = {
        name: architecture_of(config.of_policy(name), specs[name]).acting() for name in names
    }
    envs = make_policy_envs(
        rules,
        config.patterns,
        num_envs=settings.envs,
        step_timeout_s=config.actors.step_timeout_s,
        max_faults=config.actors.max_env_faults,
    )
    env = next(iter(envs.values()))
    try:
        for name, each in envs.items():
            check_evaluator_spaces(each.spec, specs[name])
        monitor = context.join(lambda: evaluator.heartbeat())
    except BaseException:
        env.close()
        raise
    env.between_attempts = monitor.tick
    info_metrics = InfoMetrics(rules.info_metrics, rules.id)
    choosers = {
        name: Chooser.of(config.of_policy(name), each.action_spec, greedy=settings.greedy)
        for name, each in architectures.items()
    }
    seed = context.seeds(generation=0).evaluation
    clock = context.clocks.decisions
    pace = {"ask_every_s": 0.0} if context.inline else {}

    def play(policies: Mapping[str, Executable]) -> Iterator[Mapping[str, Played]]:
        return episodes_of(
            envs,
            {name: Player(policy, choosers[name]) for name, policy in policies.items()},
            episodes=settings.episodes,
            seed=seed,
            info_metrics=info_metrics,
        )

    def artifact_of(name: str) -> Callable[[], PolicySnapshot | None]:
        rows = envs[name].num_envs
        client = make_policy_client(
            context, architectures[name], "onnx", max_batch=rows, policy=name
        )

        def newest() -> PolicySnapshot | None:
            client.poll(monitor)
            return client.acting

        return newest

    evaluator = Evaluator(
        TrainerClient(PeerLink(context, "weights"), monitor, names, clock=clock, **pace),
        {name: make_runtime(each, "onnx") for name, each in architectures.items()},
        play,
        judged=config.judged_policies(),
        every_s=settings.every_s,
        cpu_share=settings.cpu_share,
        artifacts={name: artifact_of(name) for name in names if config.compressor.rungs},
        env_faults=lambda: sum(env.faults.values()),
        # in one process a trainer that plays learns a batch in each round
        whole=context.inline and config.resident.envs is not None,
        hasten=monitor.hasten,
        clock=clock,
        cpu_clock=context.clocks.cpu,
    )

    def end() -> None:
        monitor.leave()  # also after an environment failure: the monitor knows at once
        env.close()

    return MonitoredRole(monitor, evaluator.meter, evaluator.step, end)
