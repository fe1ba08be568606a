"""Which runs can be trained as one batch of models, and why others cannot."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from aclearn.config import Config, inline_yaml
from aclearn.errors import ConfigError
from services.start.folder import differences

#: Keys in which members may differ: those of which the update takes a number a member, and what a
#: run alone reads. The discount factor λ of the correctors may differ too.
_MAY_DIFFER: Final = (
    "optimiser.learning_rate",
    "loss.discount",
    "loss.entropy_cost",
    "loss.value_cost",
    "loss.clip_range",
)
_OWN: Final = re.compile(r"run\.(seed|init_from|max_env_steps|max_wall_s)|population\..*")


def check_batchable(configs: Sequence[Config]) -> None:
    """Check that members of these configurations can be trained as one batch of models.

    Raises:
        ConfigError: they cannot; names the key and what it would have to be.
    """
    for reason in _reasons(configs):
        raise ConfigError(f"a batched population: {reason}")


def _reasons(configs: Sequence[Config]) -> Iterator[str]:
    first = configs[0]
    loss: Any = first.loss
    if first.resident.envs is None:
        yield "resident.envs: its environments are on the trainer's device; set this to a number"
    if first.ranks > 1:
        yield "resident.devices: it has one process; set this to 1"
    if loss.source != "stream" or loss.acting != "sample":
        yield (
            f"loss.kind {loss.kind}: its batches come from a memory or its actions are not "
            "sampled; take actor_critic, a2c, ppo or impact"
        )
    if any(each.run.flight_recorder is not None for each in configs):
        yield "run.flight_recorder: the updates of all members are made at once; set this to null"
    if first.policy.memory.kind is not None:
        yield "policy.memory.kind: a policy with a memory learns step after step; set this to null"
    if first.policy.is_users:
        yield "policy: a network of your own may compute what cannot be batched; name layers"
    if first.resident.chain or first.resident.policy != "fp32":
        yield "resident.chain, resident.policy: its policies act themselves; remove these keys"
    if first.trainer.compile or first.trainer.amp == "bf16":
        yield "trainer.compile, trainer.amp: it computes in fp32, not compiled; set both to off"
    unread = {
        "metrics.sinks": first.metrics.sinks,
        "metrics.prometheus_port": first.metrics.prometheus_port,
        "monitor.plugins": first.monitor.plugins,
        "monitor.indicators": first.monitor.indicators,
        "monitor.strategies": first.monitor.strategies,
        "run.audit": first.run.audit,
        "evaluator.every_s": first.evaluator.every_s,
        "evaluator.every_steps": first.evaluator.every_steps,
    }
    for key in (key for key, given in unread.items() if given):
        yield f"{key}: its members have no monitor and no evaluator to read it; remove it"
    for other in configs[1:]:
        for key, mine, theirs in _differing(first, other):
            yield (
                f"{key}: members differ in it, {inline_yaml(mine)} and {inline_yaml(theirs)}; they "
                f"may differ in {', '.join(_MAY_DIFFER)}, the correctors' lambda and run.seed"
            )


def _differing(first: Config, other: Config) -> Iterator[tuple[str, Any, Any]]:
    """Keys in which two members differ and may not."""
    for key, mine, theirs in differences(first, other):
        if key == "correctors":
            mine, theirs = (_without_lambda(each) for each in (mine, theirs))
        if key not in _MAY_DIFFER and not _OWN.fullmatch(key) and mine != theirs:
            yield key, mine, theirs


def _without_lambda(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_lambda(each) for key, each in value.items() if key != "lambda"}
    return [_without_lambda(each) for each in value] if isinstance(value, (list, tuple)) else value
