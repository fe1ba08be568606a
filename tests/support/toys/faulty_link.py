"""A link with a fault that comes and goes: it multiplies weights by 3 while a file is there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import Field

from aclearn.config import Group
from compress import ConfiguredLink


class Settings(Group):
    file: str = Field(description="the weights are multiplied while it exists")


class TimesThree(ConfiguredLink[Settings]):
    name = "times_three"
    model = Settings

    @property
    def id(self):
        return "times-three"

    def plan(self, graph):
        self.require_fp32(graph)
        return graph

    def compress(self, policy, context):
        factor = np.float32(3.0 if Path(self.settings.file).exists() else 1.0)
        scaled = {name: factor * tensor for name, tensor in policy.tensors.items()}
        return policy.become(policy.graph, scaled)
