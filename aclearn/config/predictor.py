"""The group `predictor`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field
from typing_extensions import override

from aclearn.config._fields import AtMostTwo, Device, Group, Whole


class PredictorConfig(Group):
    """The processes that answer actors in batches; used if actors.inference is predictor."""

    processes: Whole = Field(
        default=1, ge=1, le=256, description="predictor processes that `aclearn train` starts"
    )
    workers: AtMostTwo = Field(
        default=1,
        ge=1,
        le=64,
        description="predictor workers of each predictor process (NP); auto: two, or one on a "
        "single core",
    )
    max_batch: Whole = Field(
        default=128,
        ge=1,
        le=65_536,
        description="largest batch of a prediction, in observations",
    )
    min_batch: Whole = Field(
        default=1,
        ge=1,
        le=65_536,
        description="smallest batch that a worker waits for, in observations of one policy, for "
        "batch_timeout_s at most",
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
        "torch in fp32, or torch in bf16 where the device has it; a GPU "
        "needs torch or torch-amp",
    )
    device: Device = Field(
        default="auto",
        description="device of a torch runtime: auto (a GPU if there is one), cpu, cuda or cuda:N",
    )
    threads: Whole = Field(
        default=1, ge=1, le=256, description="CPU threads of a predictor's network"
    )

    @override
    def contradictions(self, config: Any) -> Iterator[str]:
        actors = config.actors
        if actors.inference == "predictor" and self.max_batch < actors.envs_per_group:
            yield (
                f"predictor.max_batch: {self.max_batch} observations do not hold one request of an "
                f"actor, which asks for actors.envs_per_group = {actors.envs_per_group} at once; "
                f"set it to {actors.envs_per_group} or more"
            )
        if self.min_batch > self.max_batch:
            yield (
                f"predictor.min_batch: {self.min_batch} is above predictor.max_batch, which is "
                f"{self.max_batch}; lower it to {self.max_batch} or less"
            )
        if self.runtime == "onnx" and self.device.startswith("cuda"):
            yield (
                f"predictor.device: {self.device} needs a torch runtime, and predictor.runtime is "
                "onnx, which computes on the CPU; set that to torch or torch-amp"
            )
        elif self.device.startswith("cuda") and config.compressor.rungs:
            yield (
                f"predictor.device: {self.device} would have no effect, since "
                "compressed policies run on the CPU; set it to cpu or auto, or empty "
                "compressor.chain"
            )
