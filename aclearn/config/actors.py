"""The group `actors`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field
from typing_extensions import override

from aclearn.config._fields import Group, OnePerCore, Whole

MAX_PROCESSES = 16_384
"""Most processes of a run that `monitor.max_processes` may allow."""


class ActorsConfig(Group):
    """The processes that step environments."""

    processes: OnePerCore = Field(
        default=2,
        ge=1,
        le=MAX_PROCESSES,
        description="actor processes that `aclearn train` starts (NA); auto: one for each core",
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

    @override
    def contradictions(self, config: Any) -> Iterator[str]:
        yield from self.too_many(config)
        if self.original_share > 0.0 and not config.mixes_policies:
            reason = (
                "a predictor has one policy; set actors.inference to local"
                if self.inference == "predictor"
                else "without compressor.chain or compressor.ladder there is one policy; set one"
            )
            yield f"actors.original_share: {reason}, or this to 0"
        if not self.wait_for_weights:
            return
        key = "actors.wait_for_weights"
        if self.inference != "local":
            yield (
                f"{key}: only actors with weights of their own can wait for newer ones; set "
                "actors.inference to local, or this to false"
            )
        if self.groups > 1:
            yield (
                f"{key}: a group that waits would stop the others of its actor; set actors.groups "
                "to 1 and raise actors.envs_per_group instead"
            )
        if config.loss.source == "replay":
            yield (
                f"{key}: before replay.start new steps there are no newer weights, so each unroll "
                "would wait in vain; set this to false"
            )
        if config.tuner.enabled and "actors" in config.tuner.counts:
            yield (
                f"{key}: actors.processes decides how many unrolls an actor makes for a batch; "
                "take actors out of tuner.counts, or set this to false"
            )

    def too_many(self, config: Any) -> Iterator[str]:
        """A sentence if the run could have more processes than are possible."""
        tuned = config.tuner.enabled and "actors" in config.tuner.counts
        most = "tuner.max_actors" if tuned else "actors.processes"
        actors = config.tuner.max_actors if tuned else self.processes
        processes = {"trainer": config.ranks, most: actors}
        if self.inference == "predictor":
            processes["predictor.processes"] = config.predictor.processes
        if config.compressor.rungs:
            processes["compressor.processes"] = config.compressor.processes
        if config.evaluator.enabled:
            processes["evaluator"] = 1
        allowed = config.monitor.max_processes
        if (excess := sum(processes.values()) - allowed) > 0:
            words = ", ".join(f"{key} {count}" for key, count in processes.items())
            yield (
                f"{most}: the run could have {allowed + excess} processes ({words}), at most "
                f"{allowed} are possible; lower it to {processes[most] - excess} or less and raise "
                "actors.envs_per_group instead, or raise monitor.max_processes"
            )
