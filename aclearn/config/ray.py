"""The group `ray`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field
from typing_extensions import override

from aclearn.config._fields import Group, Whole
from aclearn.config.actors import MAX_PROCESSES

Amount = Annotated[float, Field(ge=0.0, le=4096.0)]


class RayConfig(Group):
    """What processes take of a Ray cluster (`--on ray`): by role, or "member" of a population."""

    num_cpus: dict[str, Amount] = Field(
        default_factory=dict,
        description="logical CPUs of a process by role, for instance {actor: 2}; default: its "
        "threads",
    )
    num_gpus: dict[str, Amount] = Field(
        default_factory=dict,
        description="GPUs of a process by role, for instance {predictor: 0.5}; default: one for a "
        "trainer or member on a node with a GPU, unless trainer.device (with resident.envs: "
        "resident.device) is cpu",
    )
    labels: dict[str, dict[str, str]] = Field(
        default_factory=dict,
        description="labels of the nodes for processes of a role, as in Ray's label_selector, for "
        'instance {actor: {pool: "in(cpu,spare)"}}',
    )
    max_actors: Whole = Field(
        default=256,
        ge=1,
        le=MAX_PROCESSES,
        description="most actors; there are as many as the cluster has CPUs for",
    )

    @override
    def contradictions(self, config: Any) -> Iterator[str]:
        if self.num_cpus.get("actor") == 0.0:
            yield (
                "ray.num_cpus: actor is 0, and the number of actors follows the CPUs of the "
                "cluster; give a part of one, for instance 0.25"
            )
