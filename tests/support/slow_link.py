"""A link that works until a test releases it, and lets its process attend meanwhile."""

from __future__ import annotations

import threading
import time
from typing import Any, ClassVar

from compress import Link
from tests.support.waiting import DEADLINE_S


class Slow(Link):
    """Passes the policy on once `released` is set, which a test clears."""

    id = "slow"
    begun: ClassVar = threading.Event()
    released: ClassVar = threading.Event()

    def plan(self, graph: Any) -> Any:
        return graph

    def compress(self, policy: Any, context: Any) -> Any:
        self.begun.set()
        deadline = time.monotonic() + DEADLINE_S
        while not self.released.wait(0.001):
            assert time.monotonic() < deadline, "it is released"
            context.attend()
        return policy
