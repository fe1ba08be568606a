"""Contradictions between values of different keys."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import TYPE_CHECKING

from aclearn.config._yaml import inline_yaml
from aclearn.config.correctors import Q_CORRECTORS, NStepConfig
from aclearn.config.roles import MAX_PROCESSES, CompressorConfig

if TYPE_CHECKING:
    from aclearn.config.model import Config

#: Keys of actors that a run with resident environments reads: the last two for evaluation.
_READ_OF_ACTORS = ("unroll_length", "step_timeout_s", "max_env_faults")


def contradictions(config: Config) -> Iterator[str]:
    """One sentence for each pair of values that contradict each other.

    Each starts with the dotted key to change and says how to mend it.
    """
    for check in (
        _env,
        _policy,
        _learning,
        _loss,
        _deterministic,
        _roles,
        _resident,
        _compressor,
        _strategies,
        _tuner,
        _network,
    ):
        yield from check(config)


def _env(config: Config) -> Iterator[str]:
    env = config.env
    if env.is_atari and env.frame_stack != 1:
        yield (
            f"env.frame_stack: {env.id} stacks its frames in the emulator; leave this at 1 and set "
            f"env.atari.frame_stack to {env.frame_stack}"
        )
    for key, kept in (("squash_actions", False), ("action_mask", None)):
        if env.is_atari and getattr(env, key) != kept:
            yield (
                f"env.{key}: {env.id} is played with discrete actions that are all allowed; "
                "remove it"
            )
    for key in ("channels", "ignore"):
        if env.is_atari and getattr(env, key):
            yield f"env.{key}: {env.id} shows one stack of grey images; remove it"
    if env.id.startswith("resident:"):
        for key in ("frame_stack", "channels", "ignore", "action_mask"):
            if getattr(env, key) != type(env).model_fields[key].get_default():
                yield f"env.{key}: resident environments have no such setting; remove it"
    for key in ("std_from_observations", "initial_std"):
        default = type(config.policy).model_fields[key].get_default()
        if getattr(config.policy, key) != default and env.is_atari:
            yield (
                f"policy.{key}: {env.id} is played with discrete actions, which have no standard "
                "deviations; remove it"
            )
    if not env.is_atari and env.life_loss_ends:
        yield (
            f"env.life_loss_ends: {env.id} is not an Atari game (their ids start with ALE/), and "
            "only those tell of lives; remove it"
        )
    if not env.is_atari and env.atari != type(env.atari)():
        yield (
            f"env.atari: {env.id} is not an Atari game (their ids start with ALE/), so these keys "
            "would have no effect; remove them"
        )


def _policy(config: Config) -> Iterator[str]:
    policy = config.policy
    if policy.std_from_observations and policy.initial_std != 1.0:
        yield (
            "policy.initial_std: with policy.std_from_observations the network gives the "
            "deviations; remove one of them"
        )
    if not policy.is_users:
        if policy.arguments:
            yield (
                f"policy.arguments: {policy.architecture} is a network of aclearn; remove it, or "
                "name a module:Class in policy.architecture"
            )
        return
    for key in ("hidden", "activation", "separate_value", "std_from_observations", "initial_std"):
        if getattr(policy, key) != type(policy).model_fields[key].get_default():
            yield (
                f"policy.{key}: {policy.architecture} is a network of yours, which this does not "
                "change; remove it, or give it in policy.arguments"
            )


def _learning(config: Config) -> Iterator[str]:
    optimiser, trainer = config.optimiser, config.trainer
    if optimiser.schedule == "linear" and optimiser.schedule_steps is None:
        yield (
            "optimiser.schedule_steps: a linear schedule needs its length in learned agent steps, "
            "for instance 10_000_000; or set optimiser.schedule to constant"
        )
    if trainer.amp == "fp16" and trainer.device == "cpu":
        yield "trainer.amp: fp16 needs a GPU, and trainer.device is cpu; use bf16, auto or off"
    names = [corrector.name for corrector in config.correctors]
    for name in names:
        if name in Q_CORRECTORS and config.policy.critic != "q":
            yield (
                f"policy.critic: {name}, which correctors lists, corrects the values of actions; "
                "set this to q"
            )
    if "kl_filter" in names and not config.actors.behaviour_parameters:
        yield (
            "actors.behaviour_parameters: kl_filter, which correctors lists, compares π with the "
            "parameters that actions were sampled from; set this to true"
        )


def _loss(config: Config) -> Iterator[str]:
    learned = config.loss.learned_together(config)
    for index, corrector in enumerate(config.correctors):
        arguments = corrector.arguments
        if isinstance(arguments, NStepConfig) and arguments.steps > learned:
            yield (
                f"correctors[{index}].n_step.steps: no return has {arguments.steps} steps where "
                f"{learned} are learned together (actors.unroll_length); set it to {learned} or "
                "less, or that to more"
            )
    yield from config.loss.contradictions(config)


def _deterministic(config: Config) -> Iterator[str]:
    if not config.run.deterministic:
        return
    for key, device in {
        "trainer.device": config.trainer.device,
        "predictor.device": config.predictor.device,
        "resident.device": config.resident.device,
    }.items():
        if device not in ("auto", "cpu"):
            yield (
                f"{key}: run.deterministic is bit-reproducible on the CPU only; "
                f"set it to cpu or auto instead of {device}"
            )
    if config.trainer.workers != 1:
        yield (
            "trainer.workers: run.deterministic has one worker at a time; set it to 1 instead of "
            f"{config.trainer.workers}"
        )


def _roles(config: Config) -> Iterator[str]:
    actors, predictor = config.actors, config.predictor
    if actors.inference == "predictor" and predictor.max_batch < actors.envs_per_group:
        yield (
            f"predictor.max_batch: {predictor.max_batch} observations do not hold one request of "
            f"an actor, which asks for actors.envs_per_group = {actors.envs_per_group} at once; "
            f"set it to {actors.envs_per_group} or more"
        )
    if predictor.min_batch > predictor.max_batch:
        yield (
            f"predictor.min_batch: {predictor.min_batch} is above predictor.max_batch, which is "
            f"{predictor.max_batch}; lower it to that or less"
        )
    if predictor.runtime == "onnx" and predictor.device.startswith("cuda"):
        yield (
            f"predictor.device: {predictor.device} needs a torch runtime, and predictor.runtime is "
            "onnx, which computes on the CPU; set that to torch or torch-amp"
        )
    elif predictor.device.startswith("cuda") and config.compressor.rungs:
        yield (
            f"predictor.device: {predictor.device} would have no effect, since "
            "compressed policies run on the CPU; set it to cpu or auto, or empty compressor.chain"
        )
    tuned = config.tuner.enabled and "actors" in config.tuner.counts
    most = "tuner.max_actors" if tuned else "actors.processes"
    processes = {"trainer": 1, most: config.tuner.max_actors if tuned else actors.processes}
    if actors.inference == "predictor":
        processes["predictor.processes"] = predictor.processes
    if config.compressor.rungs:
        processes["compressor.processes"] = config.compressor.processes
    if (together := sum(processes.values())) > MAX_PROCESSES:
        words = ", ".join(f"{key} {count}" for key, count in processes.items())
        yield (
            f"{most}: the run could have {together} processes ({words}), at most "
            f"{MAX_PROCESSES} are possible; lower it, and raise actors.envs_per_group instead"
        )
    if actors.wait_for_weights:
        yield from _wait_for_weights(config)
    supervisor, monitor = config.supervisor, config.monitor
    if supervisor.backoff_max_s < supervisor.backoff_first_s:
        yield (
            f"supervisor.backoff_max_s: {supervisor.backoff_max_s} s is shorter than "
            f"supervisor.backoff_first_s = {supervisor.backoff_first_s} s; set it to that or more"
        )
    if monitor.silent_after_s < 2 * monitor.heartbeat_every_s:
        yield (
            f"monitor.silent_after_s: {monitor.silent_after_s} s would count a role as dead "
            f"after one late heartbeat; set it to {2 * monitor.heartbeat_every_s} s or more, twice "
            "monitor.heartbeat_every_s"
        )
    elif monitor.silent_after_s <= actors.step_timeout_s:
        yield (
            f"monitor.silent_after_s: {monitor.silent_after_s} s would kill an actor during "
            f"a step, which may take actors.step_timeout_s = {actors.step_timeout_s} s; "
            "set it to more"
        )


def _resident(config: Config) -> Iterator[str]:
    if config.resident.envs is None:
        for key in ("env", "device", "threads", "policy", "chain"):
            unset = type(config.resident).model_fields[key].get_default(call_default_factory=True)
            if getattr(config.resident, key) != unset:
                yield f"resident.{key}: it has no effect without resident.envs; set that too"
        return
    why = "with resident.envs the trainer acts itself"
    if config.trainer.device not in ("auto", config.resident.device):
        yield f"trainer.device: {why}, on resident.device; set that instead, and this to auto"
    if config.trainer.workers != 1:
        yield f"trainer.workers: {why}, and uses resident.threads; set this to 1"
    for section, keys in {
        "actors": [key for key in type(config.actors).model_fields if key not in _READ_OF_ACTORS],
        "trainer": ["unrolls_per_batch"],
    }.items():
        group = getattr(config, section)
        for key in keys:
            default = type(group).model_fields[key].get_default()
            if getattr(group, key) != default:
                yield (
                    f"{section}.{key}: {why}, and does not read it; remove it, or set "
                    f"{inline_yaml(default)}"
                )
    if config.compressor.rungs:
        yield (
            f"compressor.chain: {why}, by its own policy; leave it empty; set resident.chain to "
            "prune the copy that acts, and compress the trained policy with `aclearn compress`"
        )
    if config.env.action_mask is not None:
        yield f"env.action_mask: {why}, and resident environments have no masks; set it to null"
    if config.env.info_metrics:
        yield f"env.info_metrics: {why}, and resident environments have no info; set it to []"
    if config.tuner.enabled:
        yield f"tuner.enabled: {why}, so that there is nothing to tune; set it to false"


def _wait_for_weights(config: Config) -> Iterator[str]:
    key = "actors.wait_for_weights"
    if config.actors.inference != "local":
        yield (
            f"{key}: only actors with weights of their own can wait for newer ones; set "
            "actors.inference to local, or this to false"
        )
    if config.actors.groups > 1:
        yield (
            f"{key}: a group that waits would stop the others of its actor; set actors.groups to 1 "
            "and raise actors.envs_per_group instead"
        )
    if config.tuner.enabled and "actors" in config.tuner.counts:
        yield (
            f"{key}: actors.processes decides how many unrolls an actor makes for a batch; take "
            "actors out of tuner.counts, or set this to false"
        )


def _compressor(config: Config) -> Iterator[str]:
    compressor = config.compressor
    if compressor.max_kl is not None and compressor.fidelity_observations == 0:
        yield (
            f"compressor.max_kl: {compressor.max_kl} nats cannot be checked, since "
            "compressor.fidelity_observations is 0; set that to 32 or so, or max_kl to null"
        )
    if config.actors.original_share > 0.0 and not config.mixes_policies:
        with_predictor = config.actors.inference == "predictor"
        reason = (
            "a predictor has one policy; set actors.inference to local"
            if with_predictor
            else "without compressor.chain or compressor.ladder there is one policy; set one"
        )
        yield f"actors.original_share: {reason}, or this to 0"
    yield from _ladder(compressor)


def _ladder(compressor: CompressorConfig) -> Iterator[str]:
    ladder = compressor.ladder
    if ladder and compressor.chain:
        yield "compressor.ladder: its chains replace compressor.chain; remove one of them"
    if len(ladder) == 1:
        yield (
            "compressor.ladder: one chain leaves nothing to choose; add a more faithful one, such "
            "as [], or set compressor.chain instead"
        )
    for rung, chain in enumerate(ladder):
        if (first := ladder.index(chain)) < rung:
            yield f"compressor.ladder: rung {rung} has the chain of rung {first}; remove one"
        if not chain and rung < len(ladder) - 1:
            yield (
                f"compressor.ladder: rung {rung} is the uncompressed policy, the most "
                "faithful one; put it last"
            )


def _strategies(config: Config) -> Iterator[str]:
    if config.monitor.strategies and config.run.deterministic:
        yield (
            "monitor.strategies: strategies decide by the clock, so run.deterministic cannot hold; "
            "turn it off, or remove them"
        )


def _tuner(config: Config) -> Iterator[str]:
    tuner = config.tuner
    if not tuner.enabled:
        return
    if config.run.deterministic:
        yield (
            "tuner.enabled: a tuner decides by the clock, so run.deterministic cannot hold; "
            "turn one of them off"
        )
    if not tuner.counts:
        yield "tuner.counts: expected predictors, trainers or actors, got none"
    heartbeat_s = config.monitor.heartbeat_every_s
    if 2 * heartbeat_s > tuner.longest_gap_s:
        yield (
            f"monitor.heartbeat_every_s: {heartbeat_s:g} s is too slow for windows of "
            f"tuner.every_s = {tuner.every_s:g} s, since one late heartbeat discards a window; "
            f"lower it to {tuner.longest_gap_s / 2:g} s or less, "
            f"or raise tuner.every_s to {4 * heartbeat_s:g} s or more"
        )
    bounds = {
        "predictors": ("predictor.workers", config.predictor.workers, "tuner.max_predictors"),
        "trainers": ("trainer.workers", config.trainer.workers, "tuner.max_trainers"),
        "actors": ("actors.processes", config.actors.processes, "tuner.max_actors"),
    }
    for name, (key, count, bound) in bounds.items():
        without = name == "predictors" and config.actors.inference == "local"
        if name not in tuner.counts or without:
            continue
        most = getattr(tuner, bound.removeprefix("tuner."))
        if count > most:
            yield (f"{key}: {count} is above {bound}, which is {most}; raise that or lower it")


def _network(config: Config) -> Iterator[str]:
    network = config.network
    if network.keys_dir is None and not _is_loopback(network.bind_host):
        yield (
            f"network.bind_host: {network.bind_host} can be reached from other machines, so "
            "network.keys_dir must name a folder with keys; or set it to 127.0.0.1"
        )
    if network.announce_host in ("*", "0.0.0.0", "::"):
        yield (
            f"network.announce_host: no other machine can connect to "
            f"{network.announce_host}; set it to this machine's address, as others reach it"
        )
    ports = network.ports
    listeners = {"network.ports.unrolls": ports.unrolls, "network.ports.weights": ports.weights}
    if config.monitor.port is not None:  # every role is on one machine
        listeners["monitor.port"] = config.monitor.port
        for key, port, processes in (
            ("predictions", ports.predictions, config.predictor.processes),
            ("artifacts", ports.artifacts, config.compressor.processes),
        ):
            listeners[f"network.ports.{key}"] = port
            if port is not None and processes > 1:
                yield (
                    f"network.ports.{key}: {processes} processes of this machine cannot listen "
                    f"at one port, {port}; leave it null"
                )
    taken: dict[int, str] = {}
    for key, port in listeners.items():
        if port is not None and (other := taken.setdefault(port, key)) != key:
            yield f"{key}: {port} is the port of {other} too; set it to another one"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        # only the resolver knows a name's or interface's address, so it counts as public
        return False
