"""Values that are valid alone and contradict each other."""

from __future__ import annotations

import re

import pytest

from aclearn.config import config_from_yaml
from aclearn.errors import ConfigError


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        config_from_yaml(text)
    # test_messages has the lines
    return re.sub(r": line \d+: ", ": ", str(caught.value))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "env: {id: ALE/Pong-v5, frame_stack: 4}",
            "env.frame_stack: ALE/Pong-v5 stacks its frames in the emulator; leave this at 1 and "
            "set env.atari.frame_stack to 4",
        ),
        (
            "env: {id: a}\nresident: {device: cpu}",
            "resident.device: it has no effect without resident.envs; set that too",
        ),
        (
            "env: {id: a}\nresident: {envs: 8}\ntrainer: {workers: 2}",
            "trainer.workers: with resident.envs the trainer acts itself, and uses "
            "resident.threads; set this to 1",
        ),
        (
            "env: {id: a}\nresident: {envs: 8, device: cuda}\nrun: {deterministic: true}",
            "resident.device: run.deterministic is bit-reproducible on the CPU only; set it to cpu "
            "or auto instead of cuda",
        ),
        (
            "env: {id: a, squash_actions: true}\nloss: {kind: ddpg}",
            "loss.kind: ddpg learns from environments on the trainer's device; set resident.envs "
            "(docs/resident.md), or take ppo or actor_critic",
        ),
        (
            "env: {id: a}\nresident: {envs: 8}\nloss: {kind: ddpg}",
            "env.squash_actions: the policy of ddpg ends with tanh; set it to true",
        ),
        (
            "env: {id: a, squash_actions: true}\nresident: {envs: 8}\n"
            "loss: {kind: ddpg, buffer_unrolls: 1}\n"
            "actors: {unroll_length: 2}",
            "correctors[0].n_step.steps: no return has 5 steps where 2 are learned together "
            "(actors.unroll_length); set it to 2 or less, or that to more",
        ),
        (
            "env: {id: a, squash_actions: true}\nresident: {envs: 8}\nloss: {kind: ddpg}\n"
            "correctors: [vtrace]",
            "correctors[0] vtrace: ddpg has no probabilities to compare; take n_step or "
            "no_correction",
        ),
        (
            "env: {id: a, squash_actions: true}\nresident: {envs: 8}\nloss: {kind: ddpg}\n"
            "policy: {critic: q}",
            "policy.critic: ddpg has a critic of its own; remove it",
        ),
        (
            "env: {id: a, squash_actions: true}\nresident: {envs: 8}\n"
            "loss: {kind: ddpg, normalise_returns: true, target_update_rate: 1.0}",
            "loss.normalise_returns: ddpg learns returns as they are; remove it",
        ),
        (
            "env: {id: 'resident:CartPole', frame_stack: 4}",
            "env.frame_stack: resident environments have no such setting; remove it",
        ),
        (
            "env: {id: 'resident:CartPole', action_mask: info}",
            "env.action_mask: resident environments have no such setting; remove it",
        ),
        (
            "env: {id: a}\nloss: {kind: impact, target_update_rate: 0.1, normalise_returns: true}",
            "loss.target_update_rate: below 1 it would mix weights with the statistics of other "
            "ones; set it to 1, or loss.normalise_returns and policy.normalise_observations to "
            "false",
        ),
        (
            "env: {id: ALE/Pong-v5, squash_actions: true}",
            "env.squash_actions: ALE/Pong-v5 is played with discrete actions that are all allowed; "
            "remove it",
        ),
        (
            "env: {id: ALE/Pong-v5, action_mask: info}",
            "env.action_mask: ALE/Pong-v5 is played with discrete actions that are all allowed; "
            "remove it",
        ),
        (
            "env: {id: ALE/Pong-v5}\npolicy: {std_from_observations: true}",
            "policy.std_from_observations: ALE/Pong-v5 is played with discrete actions, which have "
            "no standard deviations; remove it",
        ),
        (
            "env: {id: Pendulum-v1}\npolicy: {std_from_observations: true, initial_std: 0.1}",
            "policy.initial_std: with policy.std_from_observations the network gives the "
            "deviations; remove one of them",
        ),
        (
            "env: {id: CartPole-v1, atari: {frame_skip: 2}}",
            "env.atari: CartPole-v1 is not an Atari game (their ids start with ALE/), so these "
            "keys would have no effect; remove them",
        ),
        (
            "env: {id: a}\noptimiser: {schedule: linear}",
            "optimiser.schedule_steps: a linear schedule needs its length in learned agent steps, "
            "for instance 10_000_000; or set optimiser.schedule to constant",
        ),
        (
            "env: {id: a}\ntuner: {enabled: true}\nrun: {deterministic: true}",
            "tuner.enabled: a tuner decides by the clock, so run.deterministic cannot hold; "
            "turn one of them off",
        ),
        (
            "env: {id: a}\nmonitor: {plugins: [tuner]}",
            "monitor.plugins[0]: expected module:Name or one `module:Name: {argument: value}`, got "
            "'tuner' (text)",
        ),
        (
            "env: {id: a}\ntuner: {enabled: true, counts: []}",
            "tuner.counts: expected predictors, trainers or actors, got none",
        ),
        (
            "env: {id: a}\ntuner: {enabled: true, every_s: 10}\nmonitor: {heartbeat_every_s: 4}",
            "monitor.heartbeat_every_s: 4 s is too slow for windows of tuner.every_s = 10 s, since "
            "one late heartbeat discards a window; lower it to 2.5 s or less, or raise "
            "tuner.every_s to 16 s or more",
        ),
        (
            "env: {id: a}\ntuner: {enabled: true, every_s: 1}\nmonitor: {heartbeat_every_s: 1.5}",
            "monitor.heartbeat_every_s: 1.5 s is too slow for windows of tuner.every_s = 1 s, "
            "since one late heartbeat discards a window; lower it to 1 s or less, or raise "
            "tuner.every_s to 6 s or more",
        ),
        (
            "env: {id: a}\ntuner: {enabled: true, max_trainers: 2}\ntrainer: {workers: 3}",
            "trainer.workers: 3 is above tuner.max_trainers, which is 2; raise that or lower it",
        ),
        (
            "env: {id: a}\ntuner: {enabled: true, counts: [actors], max_actors: 400}\n"
            "actors: {processes: 4, inference: predictor}\npredictor: {processes: 120}",
            "tuner.max_actors: the run could have 521 processes (trainer 1, tuner.max_actors 400, "
            "predictor.processes 120), at most 512 are possible; lower it, and raise "
            "actors.envs_per_group instead",
        ),
        (
            "env: {id: a}\npredictor: {min_batch: 200}",
            "predictor.min_batch: 200 is above predictor.max_batch, which is 128; "
            "lower it to that or less",
        ),
        (
            "env: {id: a}\ntrainer: {amp: fp16, device: cpu}",
            "trainer.amp: fp16 needs a GPU, and trainer.device is cpu; use bf16, auto or off",
        ),
        (
            "env: {id: a}\ncorrectors: [{retrace: {lambda: 0.9}}, importance_sampling]",
            "policy.critic: retrace, which correctors lists, corrects the values of actions; set "
            "this to q",
        ),
        (
            "env: {id: a}\ncorrectors: [vtrace, {kl_filter: {bound: 1}}]",
            "actors.behaviour_parameters: kl_filter, which correctors lists, compares π with the "
            "parameters that actions were sampled from; set this to true",
        ),
        (
            "env: {id: a}\nrun: {deterministic: true}\ntrainer: {device: 'cuda:0'}",
            "trainer.device: run.deterministic is bit-reproducible on the CPU only; set it "
            "to cpu or auto instead of cuda:0",
        ),
        (
            "env: {id: a}\nrun: {deterministic: true}\nactors: {inference: predictor}\n"
            "predictor: {device: cuda, runtime: torch}",
            "predictor.device: run.deterministic is bit-reproducible on the CPU only; set it "
            "to cpu or auto instead of cuda",
        ),
        (
            "env: {id: a}\nrun: {deterministic: true}\ntrainer: {workers: 2}",
            "trainer.workers: run.deterministic has one worker at a time; set it to 1 instead of 2",
        ),
        (
            "env: {id: a}\nactors: {inference: predictor, envs_per_group: 17}\n"
            "predictor: {max_batch: 16}",
            "predictor.max_batch: 16 observations do not hold one request of an actor, which asks "
            "for actors.envs_per_group = 17 at once; set it to 17 or more",
        ),
        (
            "env: {id: a}\npredictor: {device: 'cuda:1'}",
            "predictor.device: cuda:1 needs a torch runtime, and predictor.runtime is onnx, which "
            "computes on the CPU; set that to torch or torch-amp",
        ),
        (
            "env: {id: a}\npredictor: {runtime: torch, device: cuda}\ncompressor: {chain: [onnx]}",
            "predictor.device: cuda would have no effect, since compressed policies run on "
            "the CPU; set it to cpu or auto, or empty compressor.chain",
        ),
        (
            "env: {id: a}\ncompressor: {max_kl: 0.1, fidelity_observations: 0}",
            "compressor.max_kl: 0.1 nats cannot be checked, since compressor.fidelity_observations "
            "is 0; set that to 32 or so, or max_kl to null",
        ),
        (
            "env: {id: a}\nactors: {wait_for_weights: true, inference: predictor}",
            "actors.wait_for_weights: only actors with weights of their own can wait for newer "
            "ones; set actors.inference to local, or this to false",
        ),
        (
            "env: {id: a}\nactors: {wait_for_weights: true, groups: 2}",
            "actors.wait_for_weights: a group that waits would stop the others of its actor; set "
            "actors.groups to 1 and raise actors.envs_per_group instead",
        ),
        (
            "env: {id: a}\nactors: {wait_for_weights: true}\n"
            "tuner: {enabled: true, counts: [actors]}",
            "actors.wait_for_weights: actors.processes decides how many unrolls an actor makes for "
            "a batch; take actors out of tuner.counts, or set this to false",
        ),
        (
            "env: {id: a}\nactors: {original_share: 0.1}",
            "actors.original_share: without compressor.chain or compressor.ladder there is one "
            "policy; set one, or this to 0",
        ),
        (
            "env: {id: a}\nactors: {original_share: 0.1, inference: predictor}\n"
            "compressor: {chain: [onnx]}",
            "actors.original_share: a predictor has one policy; set actors.inference to local, or "
            "this to 0",
        ),
        (
            "env: {id: a}\ncompressor: {ladder: [[int8, onnx]]}",
            "compressor.ladder: one chain leaves nothing to choose; add a more faithful one, such "
            "as [], or set compressor.chain instead",
        ),
        (
            "env: {id: a}\ncompressor: {chain: [onnx], ladder: [[int8, onnx], []]}",
            "compressor.ladder: its chains replace compressor.chain; remove one of them",
        ),
        (
            "env: {id: a}\ncompressor: {ladder: [[int8, onnx], [onnx], [int8, onnx]]}",
            "compressor.ladder: rung 2 has the chain of rung 0; remove one",
        ),
        (
            "env: {id: a}\ncompressor: {ladder: [[int8, onnx], [], [onnx]]}",
            "compressor.ladder: rung 1 is the uncompressed policy, the most faithful one; put "
            "it last",
        ),
        (
            "env: {id: a}\nsupervisor: {backoff_first_s: 3, backoff_max_s: 2}",
            "supervisor.backoff_max_s: 2.0 s is shorter than supervisor.backoff_first_s = 3.0 s; "
            "set it to that or more",
        ),
        (
            "env: {id: a}\nmonitor: {heartbeat_every_s: 2, silent_after_s: 3}",
            "monitor.silent_after_s: 3.0 s would count a role as dead after one late heartbeat; "
            "set it to 4.0 s or more, twice monitor.heartbeat_every_s",
        ),
        (
            "env: {id: a}\nmonitor: {silent_after_s: 20}\nactors: {step_timeout_s: 20}",
            "monitor.silent_after_s: 20.0 s would kill an actor during a step, which may take "
            "actors.step_timeout_s = 20.0 s; set it to more",
        ),
        (
            "env: {id: a, life_loss_ends: true}",
            "env.life_loss_ends: a is not an Atari game (their ids start with ALE/), and only "
            "those tell of lives; remove it",
        ),
        (
            "env: {id: a}\nactors: {processes: 500, inference: predictor}\n"
            "predictor: {processes: 12}",
            "actors.processes: the run could have 513 processes (trainer 1, actors.processes 500, "
            "predictor.processes 12), at most 512 are possible; lower it, and raise "
            "actors.envs_per_group instead",
        ),
        (
            "env: {id: a}\nnetwork: {bind_host: 0.0.0.0}",
            "network.bind_host: 0.0.0.0 can be reached from other machines, so network.keys_dir "
            "must name a folder with keys; or set it to 127.0.0.1",
        ),
        (
            "env: {id: a}\nnetwork: {announce_host: 0.0.0.0}",
            "network.announce_host: no other machine can connect to 0.0.0.0; set it to this "
            "machine's address, as others reach it",
        ),
        (
            "env: {id: a}\nnetwork: {ports: {unrolls: 7000, weights: 7000}}",
            "network.ports.weights: 7000 is the port of network.ports.unrolls too; set it to "
            "another one",
        ),
        (
            "env: {id: a}\nmonitor: {port: 7000}\nnetwork: {ports: {predictions: 7000}}",
            "network.ports.predictions: 7000 is the port of monitor.port too; set it to another "
            "one",
        ),
        (
            "env: {id: a}\nmonitor: {port: 7000}\nnetwork: {ports: {artifacts: 7001}}\n"
            "compressor: {processes: 2}",
            "network.ports.artifacts: 2 processes of this machine cannot listen at one port, "
            "7001; leave it null",
        ),
    ],
)
def test_a_contradiction_is_refused_with_the_way_out(text: str, sentence: str) -> None:
    assert refusal(text) == f"configuration: {sentence}"


@pytest.mark.parametrize(
    "text",
    [
        "env: {id: ALE/Pong-v5, atari: {frame_stack: 2}}",
        "env: {id: 'my.module:factory', frame_stack: 4}",
        "env: {id: a}\noptimiser: {schedule: linear, schedule_steps: 1e6}",
        "env: {id: a}\ntrainer: {amp: bf16, device: cpu}",
        "env: {id: a}\npredictor: {runtime: torch, device: 'cuda:1'}",
        "env: {id: a}\nrun: {deterministic: true}\ntrainer: {device: cpu}",
        "env: {id: a}\nactors: {envs_per_group: 17}\npredictor: {max_batch: 16}",
        "env: {id: a}\nactors: {inference: predictor, envs_per_group: 16}\n"
        "predictor: {max_batch: 16}",
        "env: {id: a}\ncompressor: {max_kl: 0.1, fidelity_observations: 1}",
        "env: {id: a}\ncompressor: {fidelity_observations: 0}",
        "env: {id: a}\ntuner: {enabled: true, every_s: 16}\nmonitor: {heartbeat_every_s: 4}",
        "env: {id: a}\ntuner: {every_s: 10}\nmonitor: {heartbeat_every_s: 4}",
        # a count that no tuner changes has no bound of its own
        "env: {id: a}\ntuner: {enabled: true}\nactors: {processes: 128}",
        "env: {id: a}\ntuner: {enabled: true, max_predictors: 2}\npredictor: {workers: 3}",
        "env: {id: a}\ntuner: {enabled: true, counts: [actors], max_trainers: 2}\n"
        "trainer: {workers: 3}",
        "env: {id: a}\nnetwork: {bind_host: 0.0.0.0, keys_dir: keys}",
        "env: {id: a}\nactors: {processes: 500}\npredictor: {processes: 12}",
        "env: {id: a}\nnetwork: {bind_host: '::1'}",
        "env: {id: a}\nnetwork: {bind_host: localhost}",
        # roles started by hand: each may be on another machine
        "env: {id: a}\nnetwork: {ports: {unrolls: 7000, predictions: 7000, artifacts: 7000}}\n"
        "predictor: {processes: 2}",
    ],
)
def test_what_does_not_contradict_is_kept_as_it_is_written(text: str) -> None:
    config = config_from_yaml(text)

    assert config_from_yaml(config.to_yaml()) == config


def test_two_contradictions_get_two_lines() -> None:
    text = "env: {id: ALE/Pong-v5, frame_stack: 4}\noptimiser: {schedule: linear}"

    assert [line.split(": ")[1] for line in refusal(text).split("\n")] == [
        "env.frame_stack",
        "optimiser.schedule_steps",
    ]
