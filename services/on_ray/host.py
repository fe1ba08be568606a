"""What runs on a node: the versions there, and a Ray actor with one process of ours."""

from __future__ import annotations

import importlib
import importlib.metadata
import io
import os
import platform
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from aclearn.launch import RoleCommand, StopFlag
from aclearn.launch.role_process import RoleProcess
from aclearn.runs.atomic_file import sync_folder, temporary_of, write_aside
from aclearn.runs.checkpoint import remove_checkpoint
from services.role.agreement import code_digest
from services.start.temporary_directory import RAY, temporary_directory

#: In arguments: the folder of an order's files, and the address of its node.
FILES, NODE_IP = "{files}", "{node_ip}"
#: Most bytes of output in one answer.
_OUTPUT_BYTES: Final = 256 * 1024
_LOOK_EVERY_S: Final = 0.05


def versions() -> dict[str, str]:
    """What must be the same on every node."""
    return {
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "ray": importlib.metadata.version("ray"),
        "aclearn": f"{importlib.metadata.version('aclearn')} (code {code_digest()})",
    }


@dataclass(frozen=True)
class Order:
    """A process to start on a node.

    Attributes:
        arguments: of Python there; `FILES` and `NODE_IP` in them are replaced.
        environment: variables added to those of the node.
        restarts: earlier starts of the same role.
        files: name → content, written to a private folder, for this user only.
        folder_name: of a folder there; empty for none.
        folder: its files, as by `pack`.
        abandoned_after_s: after the process's end and the last call, until this actor ends itself;
            0 for one that ends with its driver.
    """

    role: str
    name: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    restarts: int = 0
    files: Mapping[str, bytes] = field(default_factory=dict)
    folder_name: str = ""
    folder: bytes = b""
    abandoned_after_s: float = 0.0


@dataclass(frozen=True)
class Look:
    """News of a process: its new output, and its exit status in the last one."""

    output: bytes
    status: int | None


class ProcessHost:
    """One process in its own session; the driver calls its methods as a Ray actor's.

    The process ends with this actor's own process, which Ray ends with its driver or node.
    """

    def __init__(self, order: Order) -> None:
        # in the main thread: for the kernel, the end of the starting thread is the parent's death
        self._open = ExitStack()
        self.directory = self._open.enter_context(temporary_directory(RAY, StopFlag()))
        for name, content in order.files.items():
            descriptor = os.open(self.directory / name, os.O_WRONLY | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
        self._folder_name = order.folder_name
        if order.folder_name:
            unpack(order.folder, self.directory / order.folder_name)
        arguments = (
            each.replace(FILES, str(self.directory)).replace(NODE_IP, _node_ip())
            for each in order.arguments
        )
        self._log = self.directory / "output.log"
        self._process = RoleProcess(
            RoleCommand(
                order.role,
                order.name,
                (sys.executable, *arguments),
                dict(order.environment),
                self._log,
            ),
            order.restarts,
        )
        self._read = 0
        self._status: int | None = None
        self._called_at = time.monotonic()
        if order.abandoned_after_s:
            threading.Thread(
                target=self._end_if_abandoned, args=(order.abandoned_after_s,), daemon=True
            ).start()

    def _end_if_abandoned(self, after_s: float) -> None:
        while time.monotonic() - self._called_at < after_s:
            if not self._process.exited():
                self._called_at = time.monotonic()
            time.sleep(min(1.0, after_s))
        self.close()
        os._exit(0)

    def place(self) -> tuple[str, int]:
        """Id of this node, and of the process."""
        ray = importlib.import_module("ray")
        return str(ray.get_runtime_context().get_node_id()), int(self._process.pid or 0)

    def look(self, wait_s: float) -> Look:
        """The output since the last call; waits for the exit at most `wait_s`."""
        self._called_at = time.monotonic()
        if self._status is None:
            self._await_exit(wait_s)
        with self._log.open("rb") as log:
            log.seek(self._read)
            output = log.read(_OUTPUT_BYTES)
        self._read += len(output)
        if self._status is None or len(output) == _OUTPUT_BYTES:
            return Look(output, None)
        if not self._folder_name:
            self._open.close()
        return Look(output, self._status)

    def _await_exit(self, wait_s: float) -> None:
        deadline = time.monotonic() + wait_s
        while not self._process.exited():
            if time.monotonic() > deadline:
                return
            time.sleep(_LOOK_EVERY_S)
        with suppress(subprocess.TimeoutExpired):  # a hanging device; the next look tries again
            self._status = self._process.reap()

    def send_signal(self, number: int) -> None:
        """Send the process a signal."""
        self._process.terminate(number)

    def kill(self) -> None:
        """SIGKILL the process and its children."""
        if self._status is None:
            self._process.kill()

    def folder(self) -> bytes:
        """The files of the order's folder as they are now, as by `pack`."""
        self._called_at = time.monotonic()
        return pack(self.directory / self._folder_name)

    def close(self) -> None:
        """Kill the process and remove its files."""
        if self._status is None:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):
                self._status = self._process.reap()
        self._open.close()


def pack(folder: Path, *, without: str = "") -> bytes:
    """The files and folders of a folder, but for one, as a tar file; locks and links stay."""

    def chosen(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        name = _plain_name(member)
        taken = member.isreg() or member.isdir()
        return member if taken and name != without and not name.endswith(".lock") else None

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(folder, arcname=".", filter=chosen)
    return buffer.getvalue()


def unpack(content: bytes, folder: Path, *, last: str = "", mirrored: str = "") -> None:
    """Write the files of `pack` to a folder, which is made if missing.

    All are written beside their places, then renamed: JSON files after the others, since one
    commits the weights beside it. Then others are removed. A kill at any moment leaves each
    checkpoint old, new, or a rest that `save_checkpoint` knows.

    Args:
        last: file that is renamed after all others.
        mirrored: folder of checkpoints in it that keeps no other file.

    Raises:
        tarfile.TarError: they are damaged, or would be written elsewhere.
        OSError: the disk is full, …; the folder's files are as they were.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        members = [tarfile.data_filter(member, str(folder)) for member in tar]
        for member in members:
            if member.isdir():
                (folder / member.name).mkdir(parents=True, exist_ok=True)
        files = {_plain_name(member): member for member in members if member.isreg()}
        asides = {str(temporary_of(Path(name))) for name in files}
        changed = _write_asides(
            (folder / name, tar.extractfile(files[name]))
            for name in sorted(files.keys() - asides, key=lambda name: not _commits(name))
        )
    for path in sorted(changed, key=lambda path: (path == folder / last, _commits(path.name))):
        os.replace(temporary_of(path), path)
        sync_folder(path.parent)
    gone = [
        path
        for path in ((folder / mirrored).iterdir() if mirrored else ())
        if path.is_file() and f"{mirrored}/{path.name}" not in files
    ]
    for path in sorted(gone, key=lambda path: not _commits(path.name)):
        if _commits(path.name):
            remove_checkpoint(path)
        path.unlink(missing_ok=True)


def _write_asides(files: Iterable[tuple[Path, IO[bytes] | None]]) -> list[Path]:
    """Write beside their places those that have changed, which are returned."""
    changed: list[Path] = []
    try:
        for path, file in files:
            data = b"" if file is None else file.read()
            if not path.is_file() or path.read_bytes() != data:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_aside(path, data)
                changed.append(path)
    except OSError:
        for path in changed:
            temporary_of(path).unlink(missing_ok=True)
        raise
    return changed


def _commits(name: str) -> bool:
    return name.endswith(".json")


def _plain_name(member: tarfile.TarInfo) -> str:
    return os.path.normpath(member.name)


def _node_ip() -> str:
    return str(importlib.import_module("ray").util.get_node_ip_address())
