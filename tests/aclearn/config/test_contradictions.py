"""Values that are valid alone and contradict each other, or have no effect together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from aclearn.config import config_of_keys, doubts, inline_yaml, load_config, shipped_configs
from aclearn.errors import ConfigError

#: Keys; below them the key that the sentence names => its ways out, of which each alone must do.
#: "remove" takes the named key away, "remove KEY" another one. The value of a key with "<" is left
#: to the reader; the sentence names all others.
_CASES = """
env.id: ALE/Pong-v5, env.frame_stack: 4
  env.frame_stack => env.frame_stack: 1, env.atari.frame_stack: 4
env.id: ALE/Pong-v5, env.squash_actions: true
  env.squash_actions => remove
env.id: ALE/Pong-v5, env.channels: first
  env.channels => remove
env.id: ALE/Pong-v5, env.ignore: [a]
  env.ignore => remove
env.id: ALE/Pong-v5, env.action_mask: info
  env.action_mask => remove
env.id: resident:CartPole, env.frame_stack: 4
  env.frame_stack => remove
env.id: resident:CartPole, env.channels: first
  env.channels => remove
env.id: resident:CartPole, env.ignore: [a]
  env.ignore => remove
env.id: resident:CartPole, env.action_mask: info
  env.action_mask => remove
env.life_loss_ends: true
  env.life_loss_ends => remove
env.atari.frame_skip: 2
  env.atari => remove env.atari.frame_skip
env.id: ALE/Pong-v5, policy.initial_std: 0.5
  policy.initial_std => remove
env.id: ALE/Pong-v5, policy.std_from_observations: true
  policy.std_from_observations => remove
policy.std_from_observations: true, policy.initial_std: 0.1
  policy.initial_std => remove | remove policy.std_from_observations
policy.arguments: {a: 1}
  policy.arguments => remove | policy.architecture<: m:Net
policy.memory.kind: lstm, loss.kind: dqn
  policy.memory.kind => remove | loss.kind: ppo | loss.kind: actor_critic
policy.memory.kind: gru, loss.kind: ddpg, resident.envs: 8, env.squash_actions: true
  policy.memory.kind => remove | loss.kind: ppo | loss.kind: actor_critic
policy.memory.kind: lstm, resident.envs: 8, resident.chain: [{prune: 0.5}]
  policy.memory.kind => resident.chain: []
policy.memory.kind: lstm, trainer.compile: true
  policy.memory.kind => trainer.compile: false
trainer.burn_in_steps: 5
  trainer.burn_in_steps => remove | policy.memory.kind: lstm
policy.memory.kind: lstm, trainer.burn_in_steps: 12, actors.unroll_length: 12
  trainer.burn_in_steps => actors.unroll_length<: 13 | trainer.burn_in_steps<: 11
policy.memory.size: 64
  policy.memory.size => policy.memory.kind<: lstm | remove
policy.architecture: m:Net, policy.memory.kind: lstm
  policy.memory.kind => remove
policy.architecture: m:Net, policy.hidden: [8]
  policy.hidden => remove
actors.processes: 500, actors.inference: predictor, predictor.processes: 12,
    monitor.max_processes: 512
  actors.processes => actors.processes: 499 | monitor.max_processes<: 513
tuner.enabled: true, tuner.counts: [actors], tuner.max_actors: 400, actors.inference: predictor,
    predictor.processes: 64, compressor.chain: [onnx], compressor.processes: 64,
    monitor.max_processes: 512
  tuner.max_actors => tuner.max_actors: 383 | monitor.max_processes<: 529
run.audit: true, loss.kind: dqn
  run.audit => run.audit: false | loss.kind<: ppo
actors.original_share: 0.1
  actors.original_share => compressor.chain<: [onnx] | actors.original_share: 0
actors.original_share: 0.1, actors.inference: predictor, compressor.chain: [onnx]
  actors.original_share => actors.inference: local | actors.original_share: 0
actors.wait_for_weights: true, actors.inference: predictor
  actors.wait_for_weights => actors.inference: local | actors.wait_for_weights: false
actors.wait_for_weights: true, actors.groups: 2
  actors.wait_for_weights => actors.groups: 1
actors.wait_for_weights: true, tuner.enabled: true, tuner.counts: [actors, trainers]
  actors.wait_for_weights => tuner.counts<: [trainers] | actors.wait_for_weights: false
actors.wait_for_weights: true, loss.kind: dqn
  actors.wait_for_weights => actors.wait_for_weights: false
resident.device: cpu
  resident.device => resident.envs<: 8
resident.envs: 8, trainer.workers: 2
  trainer.workers => trainer.workers: 1
resident.envs: 8, trainer.device: cuda
  trainer.device => resident.device<: cuda, trainer.device: auto
resident.envs: 8, actors.processes: 3
  actors.processes => remove | actors.processes: 2
resident.envs: 8, trainer.unrolls_per_batch: 3
  trainer.unrolls_per_batch => remove | trainer.unrolls_per_batch: 2
resident.envs: 8, compressor.chain: [onnx]
  compressor.chain => compressor.chain<: []
resident.envs: 8, env.action_mask: info
  env.action_mask => env.action_mask: null
resident.envs: 8, env.info_metrics: [a]
  env.info_metrics => env.info_metrics: []
resident.envs: 8, tuner.enabled: true
  tuner.enabled => tuner.enabled: false
resident.devices: 2
  resident.devices => resident.envs<: 8
resident.envs: 8, trainer.processes: 2
  trainer.processes => resident.devices: 2, trainer.processes: 1
trainer.average_every: 4
  trainer.average_every => trainer.processes: 2 | trainer.average_every: null
trainer.processes: 2, trainer.workers: 4
  trainer.workers => trainer.workers: 1
trainer.processes: 2, tuner.enabled: true
  tuner.counts => tuner.enabled: false | trainer.processes: 1
trainer.processes: 2, tuner.enabled: true, tuner.counts: [predictors, actors],
    actors.inference: predictor
  tuner.counts => tuner.counts: [predictors] | trainer.processes: 1
tuner.enabled: true, tuner.counts: [predictors]
  tuner.counts => actors.inference: predictor | tuner.enabled: false
trainer.processes: 3, actors.processes: 2
  trainer.processes => actors.processes: 3
trainer.processes: 2, monitor.port: 5555, network.ports.unrolls: 7000
  network.ports.unrolls => network.ports.unrolls: null
actors.inference: predictor, actors.envs_per_group: 17, predictor.max_batch: 16
  predictor.max_batch => predictor.max_batch: 17
predictor.min_batch: 200
  predictor.min_batch => predictor.min_batch: 128
predictor.device: cuda:1
  predictor.device => predictor.runtime: torch | predictor.runtime: torch-amp
predictor.runtime: torch, predictor.device: cuda, compressor.chain: [onnx]
  predictor.device => predictor.device: cpu | predictor.device: auto | compressor.chain<: []
compressor.max_kl: 0.1, compressor.fidelity_observations: 0
  compressor.max_kl => compressor.fidelity_observations: 32 | compressor.max_kl: null
compressor.ladder: [[int8, onnx]]
  compressor.ladder => compressor.ladder<: [[int8, onnx], []]
compressor.ladder: [[int8, onnx], []], compressor.chain: [onnx]
  compressor.ladder => remove | remove compressor.chain
compressor.ladder: [[int8, onnx], [onnx], [int8, onnx]]
  compressor.ladder => compressor.ladder<: [[int8, onnx], [onnx]]
compressor.ladder: [[int8, onnx], [], [onnx]]
  compressor.ladder => compressor.ladder<: [[int8, onnx], [onnx], []]
run.judge: evaluator
  run.judge => evaluator.every_s: 60 | run.judge: training
evaluator.episodes: 5
  evaluator.episodes => evaluator.every_s<: 60 | remove
evaluator.every_s: 60, evaluator.every_steps: 1000
  evaluator.every_steps => remove | remove evaluator.every_s
run.deterministic: true, evaluator.every_s: 60
  evaluator.every_s => run.deterministic: false
population.rounds: 3
  population.rounds => remove | population.members: 8
population.members: 4, evaluator.every_s: 60, evaluator.stop_after: 3
  evaluator.stop_after => remove
population.members: 6, population.selector: mf_pbt
  population.members => population.members: 8 | population.selector<: pbt
population.members: 12, population.selector: {mf_pbt: {frequencies: [2, 3]}}
  population.selector => population.selector<: {mf_pbt: {frequencies: [1, 2, 3]}}
population.members: 8, population.mutate: {optimiser.epsilon: [0.1, 0.2]},
    population.first: {optimiser.epsilon: [0.1, 0.3]}
  population.first => remove
evaluator.every_s: 60, evaluator.env: {life_loss_ends: true}
  evaluator.env.life_loss_ends => remove evaluator.env
run.deterministic: true, trainer.device: cuda:0
  trainer.device => trainer.device: cpu | trainer.device: auto
run.deterministic: true, predictor.device: cuda:0, predictor.runtime: torch
  predictor.device => predictor.device: cpu | predictor.device: auto
run.deterministic: true, resident.device: cuda:0, resident.envs: 8
  resident.device => resident.device: cpu | resident.device: auto
run.deterministic: true, trainer.workers: 2
  trainer.workers => trainer.workers: 1
run.deterministic: true, tuner.enabled: true
  tuner.enabled => tuner.enabled: false | run.deterministic: false
run.deterministic: true, monitor.strategies: [threshold]
  monitor.strategies => run.deterministic: false | remove
tuner.enabled: true, tuner.counts: []
  tuner.counts => tuner.counts: [trainers]
tuner.enabled: true, tuner.every_s: 10, monitor.heartbeat_every_s: 4
  monitor.heartbeat_every_s => monitor.heartbeat_every_s: 2.5 | tuner.every_s: 16
tuner.enabled: true, tuner.max_trainers: 2, trainer.workers: 3
  trainer.workers => tuner.max_trainers: 3 | trainer.workers: 2
monitor.heartbeat_every_s: 2, monitor.silent_after_s: 3, actors.step_timeout_s: 1
  monitor.silent_after_s => monitor.silent_after_s: 4
monitor.heartbeat_every_s: 15, monitor.silent_after_s: 20, actors.step_timeout_s: 30
  monitor.silent_after_s => monitor.silent_after_s<: 31
monitor.silent_after_s: 20, actors.step_timeout_s: 20
  monitor.silent_after_s => monitor.silent_after_s<: 21 | actors.step_timeout_s: 10
replay.size: 2000
  replay.size => remove
optimiser.schedule: linear
  optimiser.schedule_steps => optimiser.schedule_steps<: 10_000_000 | optimiser.schedule: constant
supervisor.backoff_first_s: 3, supervisor.backoff_max_s: 2
  supervisor.backoff_max_s => supervisor.backoff_max_s: 3
network.bind_host: 0.0.0.0
  network.bind_host => network.keys_dir<: keys | network.bind_host: 127.0.0.1
network.announce_host: 0.0.0.0
  network.announce_host => network.announce_host<: here
network.ports.unrolls: 7000, network.ports.weights: 7000
  network.ports.weights => network.ports.weights<: 7001 | network.ports.weights: null
monitor.port: 7000, network.ports.predictions: 7000
  network.ports.predictions => network.ports.predictions: null
monitor.port: 7000, metrics.prometheus_port: 7000
  metrics.prometheus_port => metrics.prometheus_port<: 9464 | metrics.prometheus_port: null
monitor.port: 7000, network.ports.artifacts: 7001, compressor.processes: 2, compressor.chain: [onnx]
  network.ports.artifacts => network.ports.artifacts: null
correctors: [{retrace: {lambda: 0.9}}]
  policy.critic => policy.critic: q
correctors: [vtrace, {kl_filter: {bound: 1}}]
  actors.behaviour_parameters => actors.behaviour_parameters: true
correctors: [vtrace, {kl_filter: {bound: 1}}], resident.envs: 8
  correctors[1] kl_filter => remove correctors
correctors: [vtrace, {ratio_mask: {part: gap}}]
  correctors[1].ratio_mask.part => compressor.chain: [int8, onnx] | correctors<: [{ratio_mask: {}}]
correctors: [auto, importance_sampling]
  correctors => correctors: auto | correctors<: [vtrace]
trainer.split_ratios: true
  trainer.split_ratios => trainer.split_ratios: false | compressor.chain: [int8, onnx]
trainer.split_ratios: true, compressor.chain: [int8, onnx], loss.kind: dqn
  trainer.split_ratios => trainer.split_ratios: false
correctors: [n_step], actors.unroll_length: 2
  correctors[0].n_step.steps => correctors: [{n_step: {steps: 2}}] | actors.unroll_length<: 5
env.squash_actions: true, resident.envs: 8, loss.kind: ddpg, loss.buffer_unrolls: 1,
    actors.unroll_length: 2
  correctors[0].n_step.steps => actors.unroll_length<: 5
loss.kind: impact, loss.target_update_rate: 0.1, loss.normalise_returns: true
  loss.target_update_rate => loss.target_update_rate: 1 | loss.normalise_returns: false
env.squash_actions: true, loss.kind: ddpg
  loss.memory => resident.envs<: 8 | loss.memory: replay
loss.kind: sac, env.squash_actions: false
  env.squash_actions => env.squash_actions: true
loss.kind: sac, policy.std_from_observations: false
  policy.std_from_observations => policy.std_from_observations: true
loss.kind: sac, correctors: [vtrace]
  correctors => correctors: []
env.squash_actions: true, resident.envs: 8, loss.kind: ddpg, env.squash_actions: false
  env.squash_actions => env.squash_actions: true
env.squash_actions: true, resident.envs: 8, loss.kind: ddpg, policy.architecture: m:Net
  policy.architecture => policy.architecture: mlp
env.squash_actions: true, resident.envs: 8, loss.kind: ddpg, correctors: [vtrace]
  correctors[0] vtrace => correctors: [n_step]
env.squash_actions: true, resident.envs: 8, loss.kind: ddpg, policy.critic: q
  policy.critic => remove
env.squash_actions: true, resident.envs: 8, loss.kind: ddpg, policy.separate_value: true
  policy.separate_value => remove
env.squash_actions: true, resident.envs: 8, loss.kind: ddpg, policy.initial_std: 0.5
  policy.initial_std => remove
env.squash_actions: true, resident.envs: 8, loss.kind: ddpg, policy.std_from_observations: true
  policy.std_from_observations => remove
env.squash_actions: true, resident.envs: 8, loss.kind: ddpg, loss.normalise_advantages: true
  loss.normalise_advantages => remove
env.squash_actions: true, resident.envs: 8, loss.kind: ddpg, loss.target_update_rate: 1,
    loss.normalise_returns: true
  loss.normalise_returns => remove
replay.batch: 8
  replay.batch => remove | loss.kind: dqn | loss.kind: sac
env.squash_actions: true, resident.envs: 8, loss.kind: ddpg, replay.batch: 8
  replay.batch => remove | loss.memory: replay
loss.kind: dqn, replay.size: 100
  replay.size => replay.size: 1000
loss.kind: dqn, replay.start: 1, replay.size: 100
  replay.size => replay.size: 512
loss.kind: dqn, replay.start: 1, replay.size: 100, resident.envs: 40
  replay.size => replay.size: 640
loss.kind: dqn, replay.n_steps: 40
  replay.n_steps => replay.n_steps: 16 | actors.unroll_length: 40
loss.kind: dqn, trainer.epochs: 2
  trainer.epochs => trainer.epochs: 1
loss.kind: dqn, trainer.minibatches: 2
  trainer.minibatches => trainer.minibatches: 1
loss.kind: dqn, policy.critic: q
  policy.critic => remove
loss.kind: dqn, policy.architecture: m:Net
  policy.architecture => policy.architecture: mlp
loss.kind: dqn, loss.dueling: false, policy.separate_value: true
  policy.separate_value => remove | loss.dueling: true
loss.kind: dqn, loss.normalise_returns: true
  loss.normalise_returns => remove
loss.kind: dqn, loss.normalise_advantages: true
  loss.normalise_advantages => remove
loss.kind: dqn, correctors: [vtrace]
  correctors[0] vtrace => correctors: []
loss.kind: ppo, trainer.epochs: 1, trainer.minibatches: 1
  trainer.epochs => trainer.epochs: 10, trainer.minibatches: 32 | loss.kind: actor_critic
loss.kind: impact, loss.target_update_every: 1, trainer.epochs: 1, trainer.minibatches: 1
  trainer.epochs => trainer.epochs: 2, trainer.minibatches: 8
loss.kind: ppo, loss.target_kl: 0.1, trainer.epochs: 1
  loss.target_kl => trainer.epochs<: 2 | loss.target_kl: null
loss.kind: a2c, trainer.epochs: 4
  trainer.epochs => trainer.epochs: 1 | loss.kind: ppo | loss.kind: actor_critic
loss.kind: a2c, correctors: [no_correction, epsilon_correction]
  correctors => remove | correctors: [no_correction]
loss.kind: dqn, replay.importance_exponent: 0.5
  replay.importance_exponent => remove | replay.prioritised: true
env.squash_actions: true, loss.kind: ddpg, loss.memory: replay, correctors: [{n_step: {steps: 3}}]
  correctors[0].n_step.steps => correctors<: [n_step], replay.n_steps: 3
env.squash_actions: true, resident.envs: 8, loss.kind: ddpg, loss.memory: replay,
    loss.buffer_unrolls: 8
  loss.buffer_unrolls => remove | loss.memory: fifo
resident.envs: 8, trainer.share_weights: host
  trainer.share_weights => remove
resident.envs: 8, trainer.max_lag_versions: 7
  trainer.max_lag_versions => remove
optimiser.schedule_steps: 5
  optimiser.schedule_steps => optimiser.schedule: linear | optimiser.schedule_steps: null
run.max_env_steps: 65000, optimiser.schedule: linear, optimiser.schedule_steps: 60000
  optimiser.schedule_steps => optimiser.schedule_steps: 65000
"""
_CASE = re.compile(r"^(\S.*(?:\n    .*)*)\n  (\S.*) => (.*)$", re.M)


def _sentences(keys: dict[str, Any]) -> list[str]:
    """The contradictions, or without any the doubts."""
    try:
        return list(doubts(config_of_keys(keys)))
    except ConfigError as error:
        return [line.removeprefix("configuration: ") for line in str(error).split("\n")]


def _keys(text: str) -> dict[str, Any]:
    keys: dict[str, Any] = yaml.safe_load(f"{{{text}}}")
    return keys


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list) and value:
        for part in value.values() if isinstance(value, dict) else value:
            yield from _leaves(part)
    else:
        yield inline_yaml(value).strip("'")


@pytest.mark.parametrize(
    ("given", "key", "remedy"),
    [
        pytest.param(given, key, remedy, id=f"{given} → {remedy}")
        for given, key, remedies in re.findall(_CASE, _CASES)
        for remedy in remedies.split(" | ")
    ],
)
def test_each_way_out_that_the_sentence_names_is_one(given: str, key: str, remedy: str) -> None:
    keys = {"env.id": "a", **_keys(given)}
    [sentence] = _sentences(keys)
    assert sentence.startswith(f"{key}: ")
    way_out = sentence.rpartition("; ")[2]

    if remedy.startswith("remove"):
        taken = remedy.removeprefix("remove").strip() or key
        assert "remove" in way_out
        assert taken.startswith(key) or taken in sentence
        del keys[taken]
    else:
        for changed, value in _keys(remedy).items():
            name = changed.removesuffix("<")
            assert name.partition(".")[2] in sentence
            for leaf in _leaves(value) if name == changed else ():
                assert re.search(rf"(?<![\w.]){re.escape(leaf)}(?!\w)", way_out), leaf
            keys[name] = value

    assert not _sentences(keys)


@pytest.mark.parametrize(
    "text",
    [
        "env.id: ALE/Pong-v5, env.atari.frame_stack: 2",
        "env.id: 'my.module:factory', env.frame_stack: 4",
        "trainer.amp: bf16, trainer.device: cpu",
        "actors.envs_per_group: 17, predictor.max_batch: 16",
        "compressor.fidelity_observations: 0",
        "tuner.every_s: 10, monitor.heartbeat_every_s: 4",
        # a count that no tuner changes has no bound of its own
        "tuner.enabled: true, actors.processes: 128",
        "tuner.enabled: true, tuner.max_predictors: 2, predictor.workers: 3",
        "tuner.enabled: true, tuner.counts: [actors], tuner.max_trainers: 2, trainer.workers: 3",
        "actors.processes: 500, predictor.processes: 12, monitor.max_processes: 512",
        "network.bind_host: '::1'",
        "network.bind_host: localhost",
        # roles started by hand: each may be on another machine
        "network.ports.unrolls: 7000, network.ports.predictions: 7000, predictor.processes: 2",
        # none of these processes is there
        "monitor.port: 5555, network.ports.predictions: 7000, predictor.processes: 2",
        "monitor.port: 5555, network.ports.artifacts: 7000, compressor.processes: 2",
        "monitor.port: 5, network.ports.unrolls: 7, resident.envs: 8, resident.devices: 2",
        "loss.kind: ppo, trainer.epochs: 1, trainer.minibatches: 2",
        # its centre is older than the batch
        "loss.kind: impact, trainer.epochs: 1, trainer.minibatches: 1",
        "loss.kind: actor_critic, trainer.epochs: 1, trainer.minibatches: 1",
        "loss.kind: sac, resident.envs: 8",
        "env.squash_actions: true, loss.kind: ddpg, loss.memory: replay",
    ],
)
def test_what_does_not_contradict_is_kept_as_it_is_written(text: str) -> None:
    assert not _sentences({"env.id": "a", **_keys(text)})


def test_the_advice_for_silence_is_not_refused_by_the_next_check() -> None:
    silence = {"monitor.heartbeat_every_s": 15.0, "monitor.silent_after_s": 20.0}
    [said] = _sentences({"env.id": "a", "actors.step_timeout_s": 30.0, **silence})
    assert "set it to 30 s or more" in said and "more than actors.step_timeout_s = 30 s" in said


def test_a2c_on_the_command_line_names_the_correctors_of_the_file_that_stay() -> None:
    [said] = doubts(load_config("resident/cartpole", ["loss.kind=a2c"]))
    assert said.startswith("correctors: vtrace and importance_sampling of the configuration stay")
    own = ["loss.kind=a2c", "correctors=['my.module:Mine', n_step]"]
    assert not list(doubts(load_config("resident/cartpole", own)))


@pytest.mark.parametrize("name", shipped_configs())
def test_no_shipped_configuration_is_doubted(name: str) -> None:
    assert not list(doubts(load_config(name)))
