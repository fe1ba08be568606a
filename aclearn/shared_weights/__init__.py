"""Weights in memory that several processes map and copy, without messages."""

from __future__ import annotations

from aclearn.shared_weights.fd_server import FileDescriptorServer, request_fds
from aclearn.shared_weights.memory import HostMemory, OpenMemory, SharedMemory
from aclearn.shared_weights.seqlock_buffer import SeqlockBuffer, SeqlockReader
