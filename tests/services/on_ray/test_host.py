"""The host of a process, without Ray."""

from __future__ import annotations

import os
import signal
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aclearn.runs import load_newest, save_checkpoint
from aclearn.runs.atomic_file import write_aside
from services.on_ray import host as module
from services.on_ray.host import FILES, NODE_IP, Look, Order, ProcessHost, pack, unpack
from tests.support.waiting import wait_for


@pytest.fixture
def open_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[..., ProcessHost]]:
    monkeypatch.setattr(module, "_node_ip", lambda: "10.0.0.8")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made: list[ProcessHost] = []

    def make(source: str, *arguments: str, **more: object) -> ProcessHost:
        order = Order("actor", "actor-0", ("-c", source, *arguments), {"GIVEN": "x"}, **more)
        made.append(ProcessHost(order))
        return made[-1]

    yield make
    for each in made:
        each.close()
    assert list(tmp_path.glob("aclearn-*")) == []


def _end(host: ProcessHost) -> tuple[bytes, int]:
    output = b""
    for _ in range(100):
        look: Look = host.look(10.0)
        output += look.output
        if look.status is not None:
            return output, look.status
    raise AssertionError("it does not end")


def test_a_process_has_its_files_for_itself_and_its_whole_output_comes_before_its_status(
    open_host,
) -> None:
    source = (
        "import os, sys, stat\n"
        "path, ip = sys.argv[1:]\n"
        "print(open(path).read(), oct(stat.S_IMODE(os.stat(path).st_mode)), ip)\n"
        "print(os.environ['GIVEN'], os.environ['ACLEARN_RESTARTS'])\n"
        "print('.' * 600_000)\n"
        "sys.exit(3)"
    )
    host = open_host(source, f"{FILES}/key", f"at={NODE_IP}", restarts=2, files={"key": b"secret"})
    output, status = _end(host)
    assert status == 3
    assert output.startswith(b"secret 0o600 at=10.0.0.8\nx 2\n") and len(output) > 600_000
    assert not host.directory.exists()


def test_a_signal_and_a_kill_end_it(open_host) -> None:
    source = "import signal; print('ready', flush=True); signal.pause()"
    for end, status in (
        (lambda host: host.send_signal(signal.SIGTERM), -signal.SIGTERM),
        (lambda host: host.kill(), -signal.SIGKILL),
    ):
        host = open_host(source)
        while not host.look(0.1).output:
            pass
        end(host)
        assert _end(host)[1] == status
        host.kill()  # nothing is left to kill


def test_a_folder_travels_both_ways_without_locks_and_links(open_host, tmp_path: Path) -> None:
    folder = tmp_path / "member-0"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "1.json").write_text("{}")
    (folder / "trainer.lock").write_text("")
    (folder / "own.log").write_text("")
    (folder / "link").symlink_to("/etc/passwd")
    source = "import sys; open(sys.argv[1] + '/new', 'w').write('made there')"
    host = open_host(source, f"{FILES}/m", folder_name="m", folder=pack(folder, without="own.log"))
    assert _end(host)[1] == 0
    back = tmp_path / "back"
    unpack(host.folder(), back)
    files = sorted(str(path.relative_to(back)) for path in back.rglob("*"))
    assert files == ["checkpoints", "checkpoints/1.json", "new"]
    # what the node has pruned is pruned here; other files stay
    (back / "checkpoints" / "0.json").write_text("{}")
    (back / "notes").write_text("")
    unpack(host.folder(), back, last="new", mirrored="checkpoints")
    assert not (back / "checkpoints" / "0.json").exists()
    assert (back / "checkpoints" / "1.json").exists() and (back / "notes").exists()


class Killed(BaseException):
    """A kill at a write."""


@pytest.mark.parametrize("old", [True, False])
def test_a_kill_at_any_write_leaves_the_old_checkpoint_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    there = tmp_path / "there"
    _save(there, 1)
    before = pack(there)
    _save(there, 2)
    (there / "outcome.json").write_text("{}")
    after, calls, limit = pack(there), [0], [0]

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*given: Any, **more: Any) -> Any:
            calls[0] += 1
            if calls[0] > limit[0]:
                raise Killed
            return call(*given, **more)

        return counting

    for number in range(100):
        here = tmp_path / f"here-{number}"
        (here / "checkpoints").mkdir(parents=True)
        if old:
            unpack(before, here)
        calls[0], limit[0] = 0, number
        with monkeypatch.context() as patched:
            for place, name in ((os, "replace"), (os, "open"), (os, "write"), (Path, "unlink")):
                patched.setattr(place, name, counted(getattr(place, name)))
            with suppress(Killed):
                unpack(after, here, last="outcome.json", mirrored="checkpoints")
        found = load_newest(here / "checkpoints")
        label = 0 if found is None else found.label
        assert label in ({1, 2} if old else {0, 2})
        assert label == 2 or not (here / "outcome.json").exists()
        unpack(after, here, last="outcome.json", mirrored="checkpoints")
        assert _files(here) == _files(there)
        if calls[0] <= number:
            assert number > 10
            return
    raise AssertionError("it does not end")


def test_a_full_disk_leaves_a_folder_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    _save(there, 1)
    unpack(pack(there), here)
    before = _files(here)
    _save(there, 2)

    def full(path: Path, data: bytes) -> Path:
        if path.suffix == ".safetensors":
            raise OSError(28, "No space left on device")
        return write_aside(path, data)

    monkeypatch.setattr(module, "write_aside", full)
    with pytest.raises(OSError, match="No space left"):
        unpack(pack(there), here, mirrored="checkpoints")
    assert _files(here) == before


def _save(folder: Path, label: int) -> None:
    tensors = {"weights/a": np.full(1000, label, np.float32)}
    save_checkpoint(
        folder / "checkpoints",
        tensors=tensors,
        state={"architecture": "x", "judged": None},
        label=label,
        keep=1,
    )


def _files(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_a_host_without_a_driver_ends_itself_some_time_after_its_process(
    open_host, monkeypatch: pytest.MonkeyPatch
) -> None:
    exits: list[int] = []
    monkeypatch.setattr(module.os, "_exit", exits.append)
    host = open_host("", abandoned_after_s=0.2)
    wait_for(lambda: exits == [0], "it ends")
    assert not host.directory.exists()


def test_a_tar_file_that_leaves_its_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with tarfile.open(tmp_path / "t.tar", "w") as tar:
        tar.add(tmp_path / "x", arcname="../x")
    with pytest.raises(tarfile.TarError):
        unpack((tmp_path / "t.tar").read_bytes(), tmp_path / "to")
