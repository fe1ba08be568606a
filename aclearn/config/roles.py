"""The other processes of a run: the groups `actors`, `predictor`, `monitor` and so on."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from aclearn.config._fields import Group, Whole

MAX_PROCESSES = 512
"""Processes that a run may have at once: one message of the monitor names them all."""


class ActorsConfig(Group):
    """The processes that step environments."""

    processes: Whole = Field(
        default=2, ge=1, le=500, description="actor processes that `aclearn train` starts (NA)"
    )
    groups: Whole = Field(
        default=1,
        ge=1,
        le=64,
        description="groups of environments in an actor; one steps while another waits for "
        "its actions",
    )
    envs_per_group: Whole = Field(
        default=16, ge=1, le=4096, description="environments in a group, stepped together"
    )
    unroll_length: Whole = Field(
        default=20,
        ge=1,
        le=4096,
        description="length of an unroll, in agent steps of each environment",
    )
    behaviour_parameters: bool = Field(
        default=False,
        description="unrolls carry the parameters of the distribution that each action was drawn "
        "from; for losses and correctors that need them",
    )
    inference: Literal["local", "predictor"] = Field(
        default="local",
        description="what chooses the actions: the actor itself or a predictor",
    )
    runtime: Literal["onnx", "torch", "torch-amp"] = Field(
        default="onnx",
        description="what executes the policy, on the actor's CPU, when inference is local "
        "and there is no compressor.chain: ONNX Runtime, torch in fp32, or torch in bf16 where the "
        "processor has it",
    )
    emulator_threads: Whole = Field(
        default=1, ge=1, le=256, description="threads of the Atari emulator in an actor"
    )
    max_in_flight_unrolls: Whole = Field(
        default=1,
        ge=1,
        le=64,
        description="unrolls that an actor sends ahead of the trainer's answer before it waits",
    )
    nice: Whole = Field(
        default=5,
        ge=0,
        le=19,
        description="how far actors and compressors lower their priority for the trainer where "
        "cores are scarce: added to their scheduling niceness; shortens the training queue and "
        "so the lag",
    )
    step_timeout_s: float = Field(
        default=30.0,
        gt=0.0,
        le=3600.0,
        description="longest step of a group, all its environments together, and longest time in "
        "which one is made or reset, in seconds; the one that is late is made again where Python "
        "can interrupt it; an Atari game that is late ends its actor, which is started again",
    )
    max_env_faults: Whole = Field(
        default=5,
        ge=0,
        le=1_000_000,
        description="faults of its environments that a group mends within an hour; with one more "
        "the actor gives up, which ends a run of `aclearn train`; so does any error of the Atari "
        "emulator, which is not mended",
    )


class PredictorConfig(Group):
    """The processes that answer actors in batches; used when actors.inference is predictor."""

    processes: Whole = Field(
        default=1, ge=1, le=256, description="predictor processes that `aclearn train` starts"
    )
    workers: Whole = Field(
        default=1, ge=1, le=64, description="predictor workers of each predictor process (NP)"
    )
    max_batch: Whole = Field(
        default=128, ge=1, le=65_536, description="largest batch of a prediction, in observations"
    )
    min_batch: Whole = Field(
        default=1,
        ge=1,
        le=65_536,
        description="smallest batch that a predictor worker waits for, in observations, "
        "but no longer than batch_timeout_s",
    )
    batch_timeout_s: float = Field(
        default=0.005,
        ge=0.0,
        le=10.0,
        description="longest wait of a request for others to share a batch of min_batch with, "
        "in seconds",
    )
    runtime: Literal["onnx", "torch", "torch-amp"] = Field(
        default="onnx",
        description="what executes the policy in the predictor when there is no compressor.chain: "
        "ONNX Runtime, torch in fp32, or torch in bf16 (on a GPU without it fp16, on a processor "
        "without it fp32); on a GPU one of the torch ones",
    )
    device: str = Field(
        default="auto",
        pattern=r"^(auto|cpu|cuda(:\d{1,3})?)$",
        description="where a torch runtime computes: auto (a GPU where there is one), cpu, cuda or "
        "cuda:N",
    )
    threads: Whole = Field(
        default=1, ge=1, le=256, description="processor threads of a predictor's network"
    )


class CompressorConfig(Group):
    """The processes that compress the policy that acts; there are none without a chain."""

    chain: list[Any] = Field(
        default_factory=list,
        description="links that the policy goes through before actors run it, in order: names "
        "(onnx, int8, fuse) or one `name: setting` each (prune: 0.5, distill: accerl-net1, "
        "quantize: int8, low_rank: 64), or module:Class for a link of yours; the last one says "
        "what executes it: onnx, torchscript, or with neither eager torch, and with these two "
        "every actor loads torch; empty: actors run the policy itself; docs/compression.md has all "
        "settings",
    )
    processes: Whole = Field(
        default=1,
        ge=1,
        le=64,
        description="compressor processes (ND); actor i, or predictor i where predictors act, runs "
        "what compressor i modulo their number makes",
    )
    every_s: float = Field(
        default=0.2,
        ge=0.0,
        le=3600.0,
        description="least time between the starts of two compressions, in seconds",
    )
    cpu_share: float = Field(
        default=0.25,
        gt=0.0,
        le=1.0,
        description="most of one core that a compressor uses on average",
    )
    observations: Whole = Field(
        default=512,
        ge=1,
        le=100_000,
        description="observations visited lately that a compressor keeps for its links to measure "
        "and train on",
    )
    observations_every_s: float = Field(
        default=2.0,
        gt=0.0,
        le=3600.0,
        description="time between two requests for a part of them, in seconds",
    )
    fidelity_observations: Whole = Field(
        default=32,
        ge=0,
        le=100_000,
        description="further observations, which no link sees, on which an artifact is compared "
        "with the policy it was made from; 0 compares nothing, which max_kl rules out",
    )
    fidelity_every: Whole = Field(
        default=10,
        ge=1,
        le=1_000_000,
        description="artifacts from one comparison to the next; with max_kl each one is compared",
    )
    max_kl: float | None = Field(
        default=None,
        gt=0.0,
        description="largest mean KL divergence from the policy to an artifact, in nats; one that "
        "is further away, or was not compared, is not published, the uncompressed policy is; null: "
        "any",
    )
    min_action_prob: float = Field(
        default=0.0,
        ge=0.0,
        lt=0.5,
        description="least probability of each action of a compressed policy; an action of "
        "probability zero could never be learned",
    )


def _port(description: str) -> Any:
    return Field(default=None, ge=1, le=65_535, description=f"TCP port of {description}")


class PortsConfig(Group):
    """Ports at which roles listen on TCP; null: a free one, which the system chooses."""

    unrolls: Whole | None = _port("the trainer, to which actors send unrolls")
    weights: Whole | None = _port("the trainer, which answers with weights and observations")
    predictions: Whole | None = _port("a predictor, which actors ask for their actions")
    artifacts: Whole | None = _port("a compressor, which answers with compressed policies")


class NetworkConfig(Group):
    """Addresses and keys."""

    bind_host: str = Field(
        default="127.0.0.1",
        min_length=1,
        max_length=255,
        description="address at which roles listen on TCP, 0.0.0.0 for all of this machine; "
        "anything but loopback needs keys_dir",
    )
    announce_host: str | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        description="address or name at which others reach the roles of this machine, where that "
        "is another one, as with ports that a container publishes; null: bind_host, or this "
        "machine's name where that is 0.0.0.0",
    )
    keys_dir: str | None = Field(
        default=None,
        min_length=1,
        description="folder with the cluster's keys, which `aclearn keys` makes (CURVE, ZeroMQ's "
        "encryption); null talks in the clear",
    )
    ports: PortsConfig = Field(default_factory=PortsConfig)


class SupervisorConfig(Group):
    """How `aclearn train` looks after the processes it started."""

    max_restarts: Whole = Field(
        default=5,
        ge=0,
        le=1000,
        description="restarts of a role within the window before the run fails",
    )
    restart_window_s: float = Field(
        default=300.0, gt=0.0, description="window in which restarts are counted, in seconds"
    )
    backoff_first_s: float = Field(
        default=0.5,
        ge=0.0,
        le=3600.0,
        description="pause before the first restart, in seconds; it doubles",
    )
    backoff_max_s: float = Field(
        default=10.0, ge=0.0, le=3600.0, description="longest pause before a restart, in seconds"
    )
    stop_timeout_s: float = Field(
        default=8.0,
        gt=0.0,
        le=600.0,
        description="time that the roles have to end in before those that are left are killed, "
        "in seconds; the run ends within about a second more",
    )
