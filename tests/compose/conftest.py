"""A real Docker engine, the image, and clones for clusters.

Without an engine all tests are skipped.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.compose import REPOSITORY, Cluster
from tests.support.waiting import DEADLINE_S

IMAGE = "aclearn-test"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One cluster at a time: they share the engine's image and published ports."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("engine"))


def _missing() -> str | None:
    for command in ("docker", "docker-compose"):
        if shutil.which(command) is None:
            return f"there is no {command}"
    asked = subprocess.run(["docker", "info"], capture_output=True, timeout=DEADLINE_S)
    return "no Docker engine answers `docker info`" if asked.returncode else None


@pytest.fixture(scope="session")
def image() -> str:
    """The image, built from the sources as they are."""
    if (missing := _missing()) is not None:
        pytest.skip(missing)
    subprocess.run(
        ["docker", "build", "--quiet", "--network", "host", "--tag", IMAGE, str(REPOSITORY)],
        check=True,
        timeout=900,
    )
    return IMAGE


@pytest.fixture
def clone(image: str, tmp_path) -> Iterator[Callable[[str], Cluster]]:
    """Makes clones by name, each with its own cluster, which is removed after the test."""
    made: list[Cluster] = []

    def make(name: str = "clone") -> Cluster:
        made.append(Cluster(tmp_path / name, image))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()
