"""The groups of the other roles: `actors`, `predictor`, `compressor` and so on."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from aclearn.config._fields import Group, Whole

MAX_PROCESSES = 512
"""Most processes of a run: one message of the monitor lists them all."""


class ActorsConfig(Group):
    """The processes that step environments."""

    processes: Whole = Field(
        default=2, ge=1, le=500, description="actor processes that `aclearn train` starts (NA)"
    )
    groups: Whole = Field(
        default=1,
        ge=1,
        le=64,
        description="groups of environments in an actor; one steps while another waits for its "
        "actions",
    )
    envs_per_group: Whole = Field(
        default=16, ge=1, le=4096, description="environments in a group, stepped together"
    )
    unroll_length: Whole = Field(
        default=20,
        ge=1,
        le=4096,
        description="length of an unroll, in agent steps of each environment; the default depends "
        "on loss.kind",
    )
    behaviour_parameters: bool = Field(
        default=False,
        description="send the parameters of each action's distribution, for losses and correctors "
        "that need them",
    )
    inference: Literal["local", "predictor"] = Field(
        default="local",
        description="where actions are chosen: in the actor (local) or by a predictor",
    )
    original_share: float = Field(
        default=0.0,
        ge=0.0,
        le=1.0,
        description="share of the episodes that the uncompressed policy plays as a whole, so that "
        "its returns can be compared with those of the compressed one",
    )
    runtime: Literal["onnx", "torch", "torch-amp"] = Field(
        default="onnx",
        description="runtime of a local policy without compressor.chain, on the CPU: ONNX "
        "Runtime, torch in fp32, or torch in bf16 if the CPU has it",
    )
    emulator_threads: Whole = Field(
        default=1, ge=1, le=256, description="threads of the Atari emulator in an actor"
    )
    max_in_flight_unrolls: Whole = Field(
        default=1,
        ge=1,
        le=64,
        description="unrolls that an actor sends before it waits for the trainer's answer",
    )
    wait_for_weights: bool = Field(
        default=False,
        description="begin an unroll only with newer weights than those of the one before, so that "
        "nearly all steps are of the newest version; for on-policy learning such as ppo; actors "
        "wait during updates",
    )
    nice: Whole = Field(
        default=5,
        ge=0,
        le=19,
        description="niceness added to actors and compressors if cores are scarce, so that the "
        "trainer comes first; shortens the training queue and the lag",
    )
    step_timeout_s: float = Field(
        default=30.0,
        gt=0.0,
        le=3600.0,
        description="longest call of one environment (its making, reset or step), in seconds; a "
        "late one is replaced if Python can interrupt it; for Atari games, longest call of a "
        "group: beyond it the actor ends, and is restarted",
    )
    max_env_faults: Whole = Field(
        default=5,
        ge=0,
        le=1_000_000,
        description="environment faults that a group survives within an hour; one more ends the "
        "actor and a run of `aclearn train`, as does any error of the Atari emulator",
    )


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
        description="resident environment: CartPole, Acrobot, Pendulum, MountainCar, "
        "MountainCarContinuous, or module:NAME of yours; null: the one of env.id. The policy is "
        "evaluated in env.id",
    )
    device: str = Field(
        default="auto",
        pattern=r"^(auto|cpu|cuda(:\d{1,3})?)$",
        description="device of environments and trainer: auto (a GPU if there is one), cpu, cuda "
        "or cuda:N",
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


class PredictorConfig(Group):
    """The processes that answer actors in batches; used if actors.inference is predictor."""

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
        description="smallest batch that a worker waits for, in observations, for batch_timeout_s "
        "at most",
    )
    batch_timeout_s: float = Field(
        default=0.005,
        ge=0.0,
        le=10.0,
        description="longest time that a request waits for a batch of min_batch, in seconds",
    )
    runtime: Literal["onnx", "torch", "torch-amp"] = Field(
        default="onnx",
        description="runtime of a predictor's policy without compressor.chain: ONNX Runtime, "
        "torch in fp32, or torch in bf16 (without bf16: fp16 on a GPU, fp32 on the CPU); a GPU "
        "needs torch or torch-amp",
    )
    device: str = Field(
        default="auto",
        pattern=r"^(auto|cpu|cuda(:\d{1,3})?)$",
        description="device of a torch runtime: auto (a GPU if there is one), cpu, cuda or cuda:N",
    )
    threads: Whole = Field(
        default=1, ge=1, le=256, description="CPU threads of a predictor's network"
    )


class CompressorConfig(Group):
    """The processes that compress the acting policy; none without a chain or a ladder."""

    chain: list[Any] = Field(
        default_factory=list,
        description="links that compress the policy for actors, in order: a name (onnx, int8, "
        "fuse), `name: setting` (prune: 0.5, distill: accerl-net1, quantize: int8, low_rank: 64), "
        "or module:Class of yours; ends with its runtime, onnx or torchscript, else eager torch; "
        "empty: no compression; docs/compression.md has all settings",
    )
    ladder: list[list[Any]] = Field(
        default_factory=list,
        description="several chains in place of one, from the most compressed to the most "
        "faithful; [] is the uncompressed policy; a run begins with the first, and plug-ins of "
        "the monitor choose among them",
    )
    processes: Whole = Field(
        default=1,
        ge=1,
        le=64,
        description="compressor processes (ND); actor or predictor i uses compressor i modulo "
        "their number",
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
        description="largest mean share of one core that a compressor uses",
    )
    observations: Whole = Field(
        default=512,
        ge=1,
        le=100_000,
        description="recently visited observations that a compressor keeps, for links to measure "
        "and train on",
    )
    observations_every_s: float = Field(
        default=2.0,
        gt=0.0,
        le=3600.0,
        description="time between two requests for a quarter of them, in seconds",
    )
    fidelity_observations: Whole = Field(
        default=1024,
        ge=0,
        le=100_000,
        description="further observations, which no link uses, to compare an artifact with its "
        "policy; the largest KL is over all of them; 0 compares nothing, and excludes max_kl",
    )
    fidelity_every: Whole = Field(
        default=32,
        ge=1,
        le=1_000_000,
        description="artifacts over which a comparison is spread: one version is compared on a "
        "part of the observations with each of them",
    )
    max_kl: float | None = Field(
        default=None,
        gt=0.0,
        description="largest mean KL divergence from the policy to an artifact, in nats, each "
        "compared on 32 observations; beyond it the uncompressed policy is published; null: no "
        "bound",
    )
    min_action_prob: float = Field(
        default=0.0,
        ge=0.0,
        lt=0.5,
        description="least probability of each allowed action of a compressed policy; an action "
        "of probability zero could never be learned",
    )

    @property
    def rungs(self) -> list[list[Any]]:
        """The ladder of chains; that of `chain` has two rungs; empty: no compression."""
        return self.ladder or ([self.chain, []] if self.chain else [])


def _port(description: str) -> Any:
    return Field(default=None, ge=1, le=65_535, description=f"TCP port of {description}")


class PortsConfig(Group):
    """TCP ports of roles; null: a free one, which the system chooses."""

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
        description="address at which roles listen on TCP; 0.0.0.0: all addresses; anything but "
        "loopback needs keys_dir",
    )
    announce_host: str | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        description="address or name at which others reach this machine, if it differs, for "
        "instance for published ports; null: bind_host, or this machine's name if that is 0.0.0.0",
    )
    keys_dir: str | None = Field(
        default=None,
        min_length=1,
        description="folder with the cluster's keys from `aclearn keys` (CURVE, ZeroMQ's "
        "encryption); null: no encryption",
    )
    ports: PortsConfig = Field(default_factory=PortsConfig)


class SupervisorConfig(Group):
    """Supervision of the processes of `aclearn train`."""

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
        description="pause before the first restart, in seconds; doubles with each restart",
    )
    backoff_max_s: float = Field(
        default=10.0, ge=0.0, le=3600.0, description="longest pause before a restart, in seconds"
    )
    stop_timeout_s: float = Field(
        default=8.0,
        gt=0.0,
        le=600.0,
        description="time for roles to end before they are killed, in seconds; the run ends about "
        "a second later",
    )
