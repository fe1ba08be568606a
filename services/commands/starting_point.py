"""`--env ID`: a configuration for an environment, by its spaces; pure but for the probe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import typer

from aclearn.config import Config, LossConfig, config_of_keys, override_keys
from aclearn.errors import EnvironmentFailure
from aclearn.policies import choose_architecture, halves_pay
from aclearn.types import EnvSpec
from services.start.probe import probe_environment

#: Overrides that change the spaces, or how the environment is made.
_OF_THE_ENVIRONMENT = ("env.", "actors.step_timeout_s", "run.pythonpath", "run.deterministic")
#: Keys of actors, which a trainer with environments of its own does not read.
_OF_ACTORS = ("actors.", "trainer.device", "trainer.unrolls_per_batch")
#: Bound of a run that learns from images, of unknown difficulty.
_STEPS_OF_IMAGES = 10_000_000


class Chosen(NamedTuple):
    """A key of the configuration that was chosen, and why."""

    key: str
    value: Any
    why: str


def choose(env_id: str, spec: EnvSpec, target: float | None = None) -> list[Chosen]:
    """The keys for an environment: PPO, with the settings of pong for large images.

    They are chosen for few agent steps, and for rewards and observations of any size
    (benchmarks/sanity.py).

    Args:
        target: return that counts as solved; None: unknown.
    """
    return [Chosen(*entry) for entry in _entries(env_id, spec, target)]


def _entries(env_id: str, spec: EnvSpec, target: float | None) -> Iterator[tuple[str, Any, str]]:
    atari = env_id.startswith("ALE/")
    architecture, why = choose_architecture(spec.observation, env_id)
    large = halves_pay(spec.observation)
    if target is not None:
        yield "run.target_return", target, "mean of 100 episodes that counts as solved"
    bound = _STEPS_OF_IMAGES if large else 1_000_000
    yield "run.max_env_steps", bound, "agent steps; null: until Ctrl-C"
    yield "env.id", env_id, "the environment"
    if atari:
        yield "env.clip_rewards", True, "learn from -1, 0 and 1; reported returns are unclipped"
        yield "policy.architecture", "accerl-net1", "Atari: two convolutions, 256 hidden units"
    else:
        yield "policy.architecture", architecture, why
    if any(leaf.has_moments for leaf in spec.observation.values()):
        yield "policy.normalise_observations", True, "numbers may be of different sizes"
    yield "loss.kind", "ppo", "many small updates of each batch"
    if not atari:
        yield "loss.normalise_returns", True, "the size of rewards is not known"
    yield "loss.discount", 0.99, "discount factor per agent step"
    yield from _for_large_images() if large else _for_the_rest()
    correctors = list(LossConfig.model_for({"kind": "ppo"}).usual_correctors)
    yield "correctors", correctors, "targets and advantages; weights of the policy gradient"


def _for_the_rest() -> Iterator[tuple[str, Any, str]]:
    yield "actors.processes", 1, "actor processes"
    yield "actors.envs_per_group", 16, "environments in each"
    yield "actors.unroll_length", 128, "agent steps of each environment in one unroll"
    yield "actors.wait_for_weights", True, "on-policy: acting and learning take turns"
    yield "trainer.device", "cpu", "a network this small is slower on a GPU"
    yield "trainer.unrolls_per_batch", 1, "a batch of 16 environments × 128 steps"
    yield "trainer.minibatches", 32, "updates for a pass over the batch, 64 steps each"
    yield "trainer.epochs", 10, "passes over the batch"
    yield "optimiser.learning_rate", 3e-4, "step size per update"


def _for_large_images() -> Iterator[tuple[str, Any, str]]:
    yield "loss.clip_range", 0.1, "small steps of the policy"
    yield "loss.entropy_cost", 0.01, "weight of the entropy bonus: more explores longer"
    yield "actors.processes", 2, "actor processes"
    yield "actors.envs_per_group", 8, "environments in each"
    yield "actors.unroll_length", 64, "agent steps of each environment in one unroll"
    yield "trainer.unrolls_per_batch", 1, "a batch of 8 environments × 64 steps"
    yield "trainer.minibatches", 8, "updates for a pass over the batch"
    yield "trainer.epochs", 3, "passes over the batch"
    yield "optimiser.learning_rate", 5e-4, "first step size"
    yield "optimiser.schedule", "linear", "falls to 0"
    yield "optimiser.schedule_steps", _STEPS_OF_IMAGES, "over so many agent steps"


def start_from(
    env_id: str, overrides: Mapping[str, Any] | Sequence[str] = ()
) -> tuple[Config, EnvSpec, list[Chosen]]:
    """The configuration for an environment, with overrides, and the chosen keys that hold in it.

    The environment is made once, in a process of its own.

    Raises:
        AclearnError: it cannot be made, or an override is wrong.
    """
    given = override_keys(overrides)
    probed = {key: value for key, value in given.items() if key.startswith(_OF_THE_ENVIRONMENT)}
    bare = config_of_keys({"env.id": env_id}, probed | dict(_agents_of_policies(given)))
    spec = probe_environment(bare)
    assert spec is not None  # nothing stops the probe
    chosen = choose(bare.env.id, spec, target_of(bare.env.id))
    if given.get("resident.envs") is not None:
        chosen = [
            each
            for each in chosen
            if each.key == "actors.unroll_length" or not each.key.startswith(_OF_ACTORS)
        ]
    config = config_of_keys({each.key: each.value for each in chosen}, overrides)
    held = [each for each in chosen if each.key not in given]
    return config, spec, held


def _agents_of_policies(keys: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The keys `policies.NAME.agents`, also those within the value of a key above them."""
    for key, value in keys.items():
        if key.startswith("policies.") and key.endswith(".agents"):
            yield key, value
        elif f"{key}.".startswith("policies.") and isinstance(value, Mapping):
            yield from _agents_of_policies({f"{key}.{inner}": value[inner] for inner in value})


def tell_start_from(env_id: str, overrides: Mapping[str, Any] | Sequence[str] = ()) -> Config:
    """The configuration of `start_from`; prints the chosen keys."""
    config, spec, chosen = start_from(env_id, overrides)
    typer.echo(words_of_choice(config.env.id, spec, chosen))
    return config


def target_of(env_id: str) -> float | None:
    """The return at which gymnasium's registry counts an environment as solved; None if unknown."""
    import gymnasium

    with suppress(gymnasium.error.Error, EnvironmentFailure):
        threshold = gymnasium.spec(env_id.rpartition(":")[2]).reward_threshold
        return None if threshold is None else float(threshold)
    return None


def words_of_choice(env_id: str, spec: EnvSpec, chosen: Sequence[Chosen]) -> str:
    """The spaces and the chosen keys, one line each."""
    from aclearn.config import inline_yaml

    words = [f"{each.key}={inline_yaml(each.value)}" for each in chosen if each.key != "env.id"]
    width = max((len(word) for word in words if len(word) < 40), default=0)
    whys = [each.why for each in chosen if each.key != "env.id"]
    lines = [f"  {word:{width}}  # {why}" for word, why in zip(words, whys, strict=True)]
    head = (
        f"{env_id}: observations {spec.observation}; {spec.action}. Chosen keys, which key=value "
        f"replaces and `aclearn new DIR --env {env_id}` writes to a file:"
    )
    return "\n".join([head, *lines])
