"""The folder of compiled kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("aclearn.resident")
from aclearn.resident.warp_setup import KERNEL_CACHE_VARIABLE, kernel_cache


def test_the_folder_is_the_stated_one_else_one_of_the_users_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv(KERNEL_CACHE_VARIABLE, raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert kernel_cache() == tmp_path / ".cache/aclearn/kernels"
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert kernel_cache() == Path("/cache/aclearn/kernels")
    monkeypatch.setenv(KERNEL_CACHE_VARIABLE, "/stated")
    assert kernel_cache() == Path("/stated")


def test_a_kernel_is_compiled_once_into_the_folder(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from aclearn.resident.warp_setup import wp\n\n"
        "@wp.kernel\ndef small(): pass\n\n"
        "wp.launch(small, 1, device='cpu')\n"
    )
    environment = os.environ | {KERNEL_CACHE_VARIABLE: str(tmp_path)}

    def compiled() -> dict[Path, int]:
        subprocess.run([sys.executable, str(program)], env=environment, check=True, timeout=300)
        return {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.o")}

    first = compiled()
    assert len(first) == 1
    assert compiled() == first
