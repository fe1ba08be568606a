"""How a batch becomes new weights: the groups `trainer` and `optimiser`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from aclearn.config._fields import Group, Whole


class TrainerConfig(Group):
    """The trainer: its device, its queue, and how much it learns from one update."""

    device: str = Field(
        default="auto",
        pattern=r"^(auto|cpu|cuda(:\d{1,3})?)$",
        description="where to learn: auto (a GPU where there is one), cpu, cuda or cuda:N",
    )
    amp: Literal["auto", "off", "bf16", "fp16"] = Field(
        default="auto",
        description="number format of the forward and backward pass; auto takes bf16 where the "
        "device computes it natively, elsewhere fp16 on a GPU and off (fp32) on the CPU",
    )
    channels_last: bool = Field(
        default=True, description="lay images out channels-last, which convolutions read faster"
    )
    compile: bool = Field(
        default=False,
        description="compile the update with torch.compile; starts about a minute later",
    )
    workers: Whole = Field(
        default=1, ge=1, le=64, description="trainer workers of the one trainer process (NT)"
    )
    share_weights: Literal["auto", "host", "off"] = Field(
        default="auto",
        description="memory in which roles of this machine find new weights without asking: auto "
        "takes the trainer's GPU where predictors compute on it, host the machine's memory; with "
        "off, and on other machines, they come over sockets",
    )
    unrolls_per_batch: Whole = Field(
        default=2,
        ge=1,
        le=1024,
        description="length of a batch, in unrolls; an update learns from one minibatch of it",
    )
    minibatches: Whole = Field(
        default=1,
        ge=1,
        le=1024,
        description="parts into which a batch is cut along its environments, an update each",
    )
    epochs: Whole = Field(default=1, ge=1, le=32, description="passes over each batch")
    queue_bytes: Whole = Field(
        default=64 * 1024 * 1024,
        ge=1024 * 1024,
        description="bound of the training queue, in bytes; actors wait when it is full; one "
        "batch always fits",
    )
    queue_batches: Whole = Field(
        default=1,
        ge=1,
        le=1024,
        description="batches that may wait on the training queue; each adds one version of lag",
    )
    max_lag_versions: Whole = Field(
        default=100,
        ge=0,
        description="oldest unroll that is still learned, in policy versions behind the newest "
        "(one for each batch); older ones are dropped and counted",
    )


class OptimiserConfig(Group):
    """The gradient step."""

    kind: Literal["adam", "rmsprop"] = Field(default="adam", description="optimiser")
    learning_rate: float = Field(
        default=3e-4, gt=0.0, le=10.0, description="step size at the start, per update"
    )
    schedule: Literal["constant", "linear"] = Field(
        default="constant",
        description="course of the learning rate; linear falls to 0 over schedule_steps",
    )
    schedule_steps: Whole | None = Field(
        default=None,
        ge=1,
        description="length of the linear schedule, in learned agent steps; linear needs it",
    )
    adam_beta1: float = Field(
        default=0.9, ge=0.0, lt=1.0, description="memory of Adam's mean gradient"
    )
    adam_beta2: float = Field(
        default=0.999, ge=0.0, lt=1.0, description="memory of Adam's mean square"
    )
    epsilon: float = Field(
        default=1e-5,
        gt=0.0,
        le=1.0,
        description="added to the root mean square before dividing by it",
    )
    rmsprop_alpha: float = Field(
        default=0.99, ge=0.0, lt=1.0, description="memory of RMSProp's mean square"
    )
    max_grad_norm: float = Field(
        default=0.5,
        ge=0.0,
        description="Euclidean norm that gradients are scaled down to; 0 turns it off",
    )
