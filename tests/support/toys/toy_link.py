"""A link from outside the packages: it rounds weights and counts versions."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from aclearn.config import Group
from compress import ConfiguredLink


class Settings(Group):
    step: float = Field(default=0.5, gt=0.0, description="weights become multiples of this")


class RoundWeights(ConfiguredLink[Settings]):
    name = "round"
    model = Settings

    @property
    def id(self):
        return f"round={self.settings.step:g}"

    def plan(self, graph):
        self.require_fp32(graph)
        return graph

    def compress(self, policy, context):
        memory = context.memory(self.state_key)
        memory["versions"] = memory.get("versions", 0) + 1
        step = np.float32(self.settings.step)
        rounded = {name: np.round(t / step) * step for name, t in policy.tensors.items()}
        return policy.become(policy.graph, rounded)

    def gauges(self, memory):
        return {"versions": float(memory.get("versions", 0))}
