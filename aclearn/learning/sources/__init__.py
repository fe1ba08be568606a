"""Where a trainer's batches come from."""

from __future__ import annotations

from aclearn.learning.sources.fifo import Fifo
from aclearn.learning.sources.memory import ReplayMemory
from aclearn.learning.sources.queue import QueueSource
from aclearn.learning.sources.replay import Replay
from aclearn.learning.sources.source import BatchSource, SourceAround

__all__ = ["BatchSource", "Fifo", "QueueSource", "Replay", "ReplayMemory", "SourceAround"]
