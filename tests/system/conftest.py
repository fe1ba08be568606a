"""Each test gets its own folder, and leaves neither a process nor a socket behind."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.system import PATIENCE, System, Visitor


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A per-test timeout mark, unless the test has one."""
    here = Path(__file__).parent
    for item in items:
        if here not in item.path.parents:
            continue
        mark = item.get_closest_marker("timeout")
        limit_s = float(mark.args[0]) if mark else 120.0
        item.add_marker(pytest.mark.timeout(limit_s * PATIENCE), append=False)


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
    """Starts what a test needs, and checks that nothing of it is left."""
    with leaving_nothing(tmp_path) as system:
        yield system


@pytest.fixture
def visit() -> Iterator[Callable[..., Visitor]]:
    """Makes guests of a run; their sockets are closed afterwards."""
    visitors: list[Visitor] = []

    def make(monitor: str, run: str = "r") -> Visitor:
        visitors.append(Visitor(monitor, run))
        return visitors[-1]

    yield make
    for visitor in visitors:
        visitor.close()
