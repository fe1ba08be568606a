"""The directory of a run's sockets."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from aclearn.errors import EndpointError
from aclearn.launch import StopFlag
from aclearn.wire.endpoints import IPC_PATH_MAX_BYTES
from services.start.temporary_directory import socket_directory


@pytest.mark.parametrize("spare", [0, 1])
def test_a_long_path_of_temporary_files_is_named(spare, monkeypatch) -> None:
    # "/aclearn-run-" and 8 characters, "/" and the longest file's name: 8 characters and ".sock"
    most = IPC_PATH_MAX_BYTES - len("/aclearn-run-12345678/12345678.sock")
    with tempfile.TemporaryDirectory(prefix="s") as short:  # pytest's own paths are long
        path = Path(short) / ("x" * (most + spare - len(short) - 1))
        path.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(path))
        if spare:
            words = f"TMPDIR: .* {most + 1} bytes, .* allows {most}; set"
            with pytest.raises(EndpointError, match=words), socket_directory(StopFlag()):
                pass
        else:
            with socket_directory(StopFlag()) as directory:
                assert len(str(directory / "12345678.sock")) == IPC_PATH_MAX_BYTES
        assert list(path.iterdir()) == []
        monkeypatch.undo()
