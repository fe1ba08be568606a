"""The other processes of a run: the groups `actors`, `predictor`, `monitor` and so on."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from aclearn.config._fields import Group, Whole


class ActorsConfig(Group):
    """The processes that step environments."""

    processes: Whole = Field(
        default=2, ge=1, le=4096, description="actor processes that `aclearn train` starts (NA)"
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
    inference: Literal["local", "predictor"] = Field(
        default="local",
        description="who chooses the actions: the actor itself or a predictor it asks",
    )
    runtime: Literal["onnx", "torch"] = Field(
        default="onnx", description="what executes the policy in the actor when inference is local"
    )
    emulator_threads: Whole = Field(
        default=1, ge=1, le=256, description="threads of the Atari emulator in an actor"
    )
    unacknowledged_unrolls: Whole = Field(
        default=1,
        ge=1,
        le=64,
        description="unrolls that an actor sends ahead of the trainer's answer before it waits",
    )
    nice: Whole = Field(
        default=5,
        ge=0,
        le=19,
        description="how far actors stand back for the trainer where cores are scarce: added to "
        "their scheduling niceness; shortens the training queue and so the lag",
    )
    step_timeout_s: float = Field(
        default=30.0,
        gt=0.0,
        le=3600.0,
        description="longest step of an environment, in seconds; a slower one is made again",
    )
    max_env_faults: Whole = Field(
        default=5,
        ge=0,
        le=1_000_000,
        description="faults of its environments that an actor mends before it gives up",
    )


class PredictorConfig(Group):
    """The processes that answer actors in batches; used when actors.inference is predictor."""

    processes: Whole = Field(
        default=1, ge=1, le=256, description="predictor processes that `aclearn train` starts (NP)"
    )
    max_batch: Whole = Field(
        default=128, ge=1, le=65_536, description="largest batch of a prediction, in observations"
    )
    runtime: Literal["onnx", "torch"] = Field(
        default="onnx", description="what executes the policy in the predictor"
    )
    threads: Whole = Field(
        default=1, ge=1, le=256, description="processor threads of a predictor's network"
    )


class MonitorConfig(Group):
    """The process that knows the others, and what it shows."""

    beat_every_s: float = Field(
        default=0.5, gt=0.0, le=60.0, description="time between two beats of a role, in seconds"
    )
    silent_after_s: float = Field(
        default=60.0,
        gt=0.0,
        le=3600.0,
        description="silence after which a role counts as gone, in seconds",
    )
    port: Whole | None = Field(
        default=None,
        ge=1,
        le=65_535,
        description="TCP port at which roles find the monitor; null stays on this machine and "
        "uses a socket file",
    )


class NetworkConfig(Group):
    """Addresses and keys."""

    bind_host: str = Field(
        default="127.0.0.1",
        min_length=1,
        max_length=255,
        description="address or interface at which roles listen on TCP; anything but loopback "
        "needs keys_dir",
    )
    keys_dir: str | None = Field(
        default=None,
        min_length=1,
        description="folder with the CURVE keys of the cluster; null talks in the clear",
    )


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
        default=10.0,
        gt=0.0,
        le=600.0,
        description="time a role has to stop before it is killed, in seconds",
    )
