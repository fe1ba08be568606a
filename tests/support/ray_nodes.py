"""Ray clusters of several nodes on this machine, with CPUs that are only counted."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

#: Of every process: this machine's token, if it has one, would be asked for.
SETTINGS = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
_STORE_BYTES = 80 * 2**20  # Ray's least


class RayNodes:
    """A head and nodes that join and die; made by `open_ray_nodes`."""

    def __init__(self, num_cpus: int, environment: Mapping[str, str]) -> None:
        from ray.cluster_utils import Cluster

        self._environment = dict(environment)
        self.cluster = Cluster()
        self.add(num_cpus, include_dashboard=False)
        self.address: str = self.cluster.address

    def add(
        self, num_cpus: int, *, environment: Mapping[str, str] | None = None, **more: Any
    ) -> Any:
        """A node that has joined; `environment` is added to that of all nodes."""
        return self.cluster.add_node(
            num_cpus=num_cpus,
            object_store_memory=_STORE_BYTES,
            env_vars={**self._environment, **(environment or {})},
            **more,
        )

    def kill(self, node: Any) -> None:
        """The node dies without a word, and so do its processes."""
        self.cluster.remove_node(node, allow_graceful=False)


@contextmanager
def open_ray_nodes(num_cpus: int, environment: Mapping[str, str]) -> Iterator[RayNodes]:
    """A cluster whose head has this many CPUs; none of its processes is left."""
    before = signal.getsignal(signal.SIGTERM)
    with patch.dict(os.environ, SETTINGS):
        nodes = RayNodes(num_cpus, environment)
        try:
            yield nodes
        finally:
            nodes.cluster.shutdown()
        signal.signal(signal.SIGTERM, before)  # each node of this process puts its own there
