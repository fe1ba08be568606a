"""One small message of each kind, and contexts that must end in time."""

from __future__ import annotations

import threading
import time

import pytest
import zmq

from tests.support.messages import samples_of_messages
from tests.support.waiting import DEADLINE_S


@pytest.fixture(scope="session")
def samples():
    return samples_of_messages()


@pytest.fixture
def context():
    """A ZeroMQ context that must terminate in time and leave no thread."""
    threads_before = set(threading.enumerate())
    context = zmq.Context()
    yield context
    ended = threading.Thread(target=context.term, daemon=True)
    ended.start()
    ended.join(DEADLINE_S)
    assert not ended.is_alive(), "context.term() blocks: a test left a socket open"
    deadline = time.monotonic() + DEADLINE_S
    for thread in set(threading.enumerate()) - threads_before:
        # pyzmq keeps one thread per process for the memory of large messages.
        if type(thread).__name__ != "GarbageCollectorThread":
            thread.join(max(0.0, deadline - time.monotonic()))
            assert not thread.is_alive(), f"{thread.name} outlived its context"
