"""The parameters of a behaviour policy in an unroll, from either source of actions."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from aclearn.config import ActorsConfig, Config, EnvConfig, PolicyConfig
from aclearn.distributions import distribution_of
from aclearn.learning.unroll_check import check_unroll
from aclearn.policies.network import PolicyNetwork, tensors_of
from aclearn.rollout import EpisodeCohorts, PolicySnapshot
from aclearn.telemetry import WaitMeter
from aclearn.types import PolicyVersion, Unroll
from aclearn.wire import Peer
from compress import OnnxRuntime
from services.actor.action_sources import ActionSource, LocalActions
from services.actor.core import Actor, Player
from services.actor.env_groups import make_groups
from services.actor.predictor_client import PredictorClient
from services.policy.factory import architecture_of, unroll_spec_of
from services.predictor.server import PredictorServer, Served, make_queue
from services.role.request_client import PeerLink
from tests.support.env_specs import plain_spec


def probabilities(logits: np.ndarray) -> np.ndarray:
    e = np.exp(logits.astype(np.float64))
    return e / e.sum(axis=1, keepdims=True)


def test_an_unroll_has_the_same_parameters_from_a_predictor_as_from_the_actor_s_own_policy(
    roles, tools
) -> None:
    actors = ActorsConfig(behaviour_parameters=True, envs_per_group=3, unroll_length=30)
    env, policy = EnvConfig(id="CartPole-v1"), PolicyConfig(architecture="mlp", hidden=[8])
    config = Config(env=env, policy=policy, actors=actors)
    spec = unroll_spec_of(config, plain_spec((4,), "float32", 2))
    architecture = architecture_of(config, spec.env)
    weights = tensors_of(PolicyNetwork(architecture, seed=1))
    executable = OnnxRuntime(architecture).load(weights)
    # with min_action_prob, the behaviour policy differs from the network's output
    acting = PolicySnapshot(executable, PolicyVersion(0, 5), min_action_prob=0.3)
    unrolls: dict[str, list[Unroll]] = {"own": [], "predictor": []}

    def collect(source: str, actions: ActionSource, serve=lambda: None) -> None:
        sender = SimpleNamespace(
            send=lambda _, sent, __: unrolls[source].extend(sent) or True,
            poll=lambda: None,
            waits=False,
        )
        groups = make_groups(config)
        actor = Actor(
            groups,
            {"default": Player(actions, EpisodeCohorts(lambda: 0.0))},
            sender=sender,
            meter=WaitMeter(),
        )

        def step() -> bool:
            serve()
            actor.step(0.0)
            return len(unrolls[source]) == 2

        tools.wait_until(step, "two unrolls are full")
        groups[0].env.close()

    client = SimpleNamespace(acting=acting)
    distribution = distribution_of(architecture.action_spec)
    # the predictor's first worker has the same random numbers
    rng = np.random.default_rng((1, 0))
    collect("own", LocalActions(client, distribution, rng, lambda client: None, WaitMeter()))

    context, known = roles("predictor-0"), tools.KnownPeers()
    server, endpoint = context.serve("predictions", array_bytes=1 << 20)
    known.learn(Peer("predictor", "predictor-0", context.incarnation, {"predictions": endpoint}))
    predictor = PredictorServer(
        server,
        make_queue(config),
        {"default": Served(lambda: acting, architecture, most_rows=64)},
        generator=lambda worker: np.random.default_rng((1, worker)),
        parameters=True,
    )
    predictor.resize(1)
    link = PeerLink(roles("actor-0"), "predictions")
    asking = PredictorClient(link, known, WaitMeter(), spec.env.action, parameters=spec.parameters)
    try:
        collect("predictor", asking, lambda: predictor.step(0.02))
    finally:
        predictor.close()

    for own, asked in zip(*unrolls.values(), strict=True):
        for name, array in asked.arrays():
            np.testing.assert_array_equal(array, dict(own.arrays())[name], err_msg=name)
        check_unroll(asked, spec)
        assert asked.behaviour_parameters.shape == (30, 3, 2)
        for step in range(30):
            observations = {"observation": asked.observations["observation"][step]}
            given = probabilities(executable.step(observations).parameters)
            recorded = probabilities(asked.behaviour_parameters[step])
            # p' = (1 - A f) p + f
            np.testing.assert_allclose(recorded, 0.4 * given + 0.3, rtol=1e-4)
            taken = recorded[np.arange(3), asked.actions[step]]
            np.testing.assert_allclose(asked.behaviour_log_prob[step], np.log(taken), rtol=1e-4)
