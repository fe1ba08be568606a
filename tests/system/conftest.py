"""Each test gets its own folder and must leave no process and no socket."""

from __future__ import annotations

import shutil
import signal
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.system import System
from tests.support.visitor import Visitor

# a script in the background ignores Ctrl-C, and so would every command of these tests
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """End hanging tests; each wait of a test has an earlier deadline of its own."""
    layers = [Path(__file__).parent, Path(__file__).parents[1] / "compose"]
    for item in items:
        if any(layer in item.path.parents for layer in layers):
            item.add_marker(pytest.mark.timeout(1800), append=False)


@contextmanager
def leaving_nothing(folder: Path) -> Iterator[System]:
    """A system that must have ended completely when the context is left."""
    # short: a socket's path may have no more than 107 bytes
    sockets = Path(tempfile.mkdtemp(prefix="acsys-"))
    system = System(folder, sockets, uuid.uuid4().hex)
    try:
        yield system
        left = [" ".join(process.cmdline()) for process in system.living()]
        assert left == [], "processes are left"
        assert list(sockets.glob("aclearn-*")) == [], "a socket directory is left"
    finally:
        system.kill_everything()
        shutil.rmtree(sockets, ignore_errors=True)


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    """Starts the test's processes, and checks that none is left."""
    with leaving_nothing(tmp_path) as system:
        yield system


@pytest.fixture
def visit() -> Iterator[Callable[..., Visitor]]:
    """Makes visitors of a run; their sockets are closed afterwards."""
    visitors: list[Visitor] = []

    def make(monitor: str, run: str = "r") -> Visitor:
        visitors.append(Visitor(monitor, run))
        return visitors[-1]

    yield make
    for visitor in visitors:
        visitor.close()
