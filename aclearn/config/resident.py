"""The group `resident`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field
from typing_extensions import override

from aclearn.config._fields import Device, Group, Whole
from aclearn.config._yaml import inline_yaml

#: Our resident environments → the environment of gymnasium with the same rules. Here since most
#: processes that need the names do not load Warp.
RESIDENT_ENVS = {
    "CartPole": "CartPole-v1",
    "Acrobot": "Acrobot-v1",
    "Pendulum": "Pendulum-v1",
    "MountainCar": "MountainCar-v0",
    "MountainCarContinuous": "MountainCarContinuous-v0",
}
#: Keys of actors that a run with resident environments reads: the last two for evaluation.
_READ_OF_ACTORS = ("unroll_length", "step_timeout_s", "max_env_faults")


class ResidentConfig(Group):
    """Environments on the device of the policy, instead of actors (docs/resident.md)."""

    envs: Whole | None = Field(
        default=None,
        ge=1,
        le=10_000_000,
        description="number of environments that the trainer steps on its device; null: actors "
        "step environments. Each batch has actors.unroll_length steps of all; other keys of actors "
        "(but step_timeout_s and max_env_faults) and trainer.unrolls_per_batch keep their defaults",
    )
    env: str | None = Field(
        default=None,
        description=f"resident environment: {', '.join(RESIDENT_ENVS)}, one of several agents "
        "(docs/worlds.md), or module:NAME of yours; null: the one of env.id. The policy is "
        "evaluated in env.id",
    )
    device: Device = Field(
        default="auto",
        description="device of environments and trainer: auto (a GPU if there is one), cpu, cuda "
        "or cuda:N",
    )
    devices: Whole = Field(
        default=1,
        ge=1,
        le=64,
        description="devices with resident.envs environments and a trainer process each, which "
        "learn as one (ranks); on a CPU so many processes",
    )
    threads: Whole | None = Field(
        default=None,
        ge=1,
        le=256,
        description="threads of the CPU that step environments and learn; null: one for each core. "
        "The last digits of the weights depend on it",
    )
    policy: Literal["fp32", "bf16"] = Field(
        default="fp32",
        description="number format of the copy of the policy that acts; with bf16 the correctors "
        "make up for the rounding",
    )
    chain: list[Any] = Field(
        default_factory=list,
        description="links that compress this copy, in order, as compressor.chain: prune "
        "(prune: 0.5) makes it smaller; the correctors make up for the difference; empty: none",
    )

    @override
    def contradictions(self, config: Any) -> Iterator[str]:
        if self.envs is None:
            for key in self.changed("env", "device", "devices", "threads", "policy", "chain"):
                yield f"resident.{key}: it has no effect without resident.envs; set that too"
            return
        why = "with resident.envs the trainer acts itself"
        if config.trainer.device not in ("auto", self.device):
            yield f"trainer.device: {why}, on resident.device; set that instead, and this to auto"
        if config.trainer.workers != 1:
            yield f"trainer.workers: {why}, and uses resident.threads; set this to 1"
        unread = [key for key in type(config.actors).model_fields if key not in _READ_OF_ACTORS]
        for section, keys in {"actors": unread, "trainer": ["unrolls_per_batch"]}.items():
            group = getattr(config, section)
            for key in group.changed(*keys):
                default = inline_yaml(type(group).model_fields[key].get_default())
                yield f"{section}.{key}: {why}, and does not read it; remove it, or set {default}"
        if config.compressor.rungs:
            yield (
                f"compressor.chain: {why}, by its own policy; leave it empty; set resident.chain "
                "to prune the copy that acts, and compress the trained policy with `aclearn "
                "compress`"
            )
        if config.env.action_mask is not None:
            yield (
                f"env.action_mask: {why}, and resident environments say themselves what is "
                "allowed; set it to null"
            )
        if config.env.info_metrics:
            yield f"env.info_metrics: {why}, and resident environments have no info; set it to []"
        if config.tuner.enabled:
            yield f"tuner.enabled: {why}, so that there is nothing to tune; set it to false"

    @override
    def doubts(self, config: Any) -> Iterator[str]:
        if self.envs is None:
            return
        unread = ["queue_bytes", "queue_batches", "share_weights"]
        if config.loss.source != "replay":  # whose usual value is another one
            unread.append("max_lag_versions")
        for key in config.trainer.changed(*unread):
            yield f"trainer.{key}: with resident.envs nothing reads it; remove it"
