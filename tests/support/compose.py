"""Runs docker-compose.yml with a real engine, in a copy of a fresh clone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from pathlib import Path
from typing import Any

import yaml

from services.roles import ROLES
from tests.support.waiting import DEADLINE_S, patience, wait_for

REPOSITORY = Path(__file__).parents[2]
#: Owner of the clone, if the tests may change it: neither root nor the image's own user.
OWNER = 12_345


def docker(*arguments: str, check: bool = True, within_s: float = DEADLINE_S) -> str:
    done = subprocess.run(
        ["docker", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=within_s,
        stdin=subprocess.DEVNULL,
    )
    if check:
        assert done.returncode == 0, done.stdout
    return done.stdout


def pause(*containers: str) -> None:
    """Freezes them; asks again where the engine gives up, as it may with version 1 of cgroups.

    There, no thread freezes that waits for a disk or for the start of a child.
    """
    for container in containers:
        told = []

        def stands_still(container: str = container, told: list[str] = told) -> bool:
            told.append(docker("pause", container, check=False))
            return docker("inspect", "--format", "{{.State.Paused}}", container).strip() == "true"

        wait_for(stands_still, f"{container} is paused", context=told.pop)


class Cluster:
    """A clone of the repository and its docker-compose cluster.

    Attributes:
        folder: the clone.
        image: of its containers.
        environment: of every docker-compose.
    """

    def __init__(self, folder: Path, image: str) -> None:
        self.folder, self.image = folder, image
        folder.mkdir()
        for path in (*REPOSITORY.glob("docker-compose*.yml"), REPOSITORY / "Dockerfile"):
            shutil.copy(path, folder)
        shutil.copytree(REPOSITORY / "configs", folder / "configs")
        folder.chmod(0o700)
        self.owner = os.geteuid() or OWNER
        self.give(folder)
        self.project = f"aclearn-test-{uuid.uuid4().hex[:8]}"
        self.environment = {
            **os.environ,
            "COMPOSE_PROJECT_NAME": self.project,
            "IMAGE": image,
            "DOCKER_BUILDKIT": "0",
        }

    def give(self, folder: Path) -> None:
        """Give `folder` and its contents to the clone's owner."""
        for path in (folder, *folder.rglob("*")):
            os.chown(path, self.owner, -1)

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start docker-compose; its output goes to `log`."""
        with self.log.open("a") as sink:
            return subprocess.Popen(
                ["docker-compose", "--no-ansi", *arguments],
                cwd=self.folder,
                env=self.environment | environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                text=True,
            )

    @property
    def log(self) -> Path:
        return self.folder.with_suffix(".log")

    def compose(self, *arguments: str, within_s: float = 90.0, **environment: str) -> str:
        """The output of a docker-compose that must succeed."""
        before = self.log.stat().st_size if self.log.exists() else 0
        done = self.start(*arguments, **environment)
        try:
            wait_for(lambda: done.poll() is not None, f"{arguments} has ended", within_s=within_s)
        finally:
            done.kill()
            done.wait()
        output = self.log.read_text()[before:]
        assert done.wait() == 0, output
        return output

    def containers(self, service: str, project: str = "") -> list[str]:
        label = "com.docker.compose"
        return docker(
            *("ps", "--all", "--quiet", "--no-trunc"),
            *("--filter", f"label={label}.project={project or self.project}"),
            *("--filter", f"label={label}.service={service}"),
        ).split()

    def state(self, container: str) -> dict[str, Any]:
        [found] = json.loads(docker("inspect", container))
        return found["State"] | {"RestartCount": found["RestartCount"]}

    def exit_codes(self, project: str = "") -> dict[str, list[int]]:
        states = {r: [self.state(c) for c in self.containers(r, project)] for r in ROLES}
        running = [r for r, found in states.items() if any(s["Running"] for s in found)]
        assert running == [], running
        return {r: [s["ExitCode"] for s in found] for r, found in states.items()}

    def logs(self) -> str:
        label = f"label=com.docker.compose.project={self.project}"
        containers = docker("ps", "--all", "--quiet", "--filter", label).split()
        return "\n".join(map(self._output, containers))

    def _output(self, container: str) -> str:
        # an engine may never answer for a container that it is starting again; it may be gone too
        for _ in range(4):
            try:
                return docker("logs", container, check=False, within_s=20 * patience())
            except subprocess.TimeoutExpired:
                continue
        raise AssertionError(f"docker logs {container}: no answer")

    def report(self) -> str:
        """This project's containers with their states and output, and the newest metrics."""
        label = f"label=com.docker.compose.project={self.project}"
        listed = docker("ps", "--all", "--filter", label)
        return f"{self.folder.name}\n{listed}\n{self.logs()}\n{self.lines()[-1:]}\n"

    def run(self, name: str = "cluster-seed1") -> Path:
        return self.folder / "runs" / name

    def lines(self, name: str = "cluster-seed1") -> list[dict[str, Any]]:
        path = self.run(name) / "metrics.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.split("\n")[:-1]]

    def last(self, key: str, name: str = "cluster-seed1") -> Any:
        lines = self.lines(name)
        return lines[-1][key] if lines else 0

    def wait_until_learned(
        self, beyond: int = 0, *, name: str = "cluster-seed1", within_s: float = 60.0
    ) -> None:
        wait_for(
            lambda: self.last("learned_steps", name) > beyond,
            f"more than {beyond} steps are learned",
            within_s=within_s,
            context=self.logs,
        )

    def close(self) -> None:
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "1")


def override(cluster: Cluster, **services: dict[str, object]) -> None:
    """Add settings to the clone, which docker-compose reads automatically."""
    path = cluster.folder / "docker-compose.override.yml"
    path.write_text(yaml.safe_dump({"services": services}))
