"""An editable install, by the project's files alone, seen from any folder."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest
import setuptools.build_meta

from tests.support.waiting import DEADLINE_S

_ROOT = Path(__file__).parents[2]
_NEEDED = (".importable", "aclearn", "compress", "correctors", "services", "configs", "tests",
           "benchmarks", "docs", "tools", "pyproject.toml", "README.md", "LICENSE")  # fmt: skip


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone in a folder of the package's name, as `git clone` makes it."""
    clone = tmp_path_factory.mktemp("parent") / "aclearn"
    clone.mkdir()
    for name in _NEEDED:
        if (_ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.png", "data")
            shutil.copytree(_ROOT / name, clone / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(_ROOT / name, clone)
    return clone


@pytest.fixture(scope="module")
def site(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `pip install -e .` puts into site-packages."""
    site = tmp_path_factory.mktemp("site")
    with contextlib.chdir(clone), contextlib.redirect_stdout(io.StringIO()):
        wheel = setuptools.build_meta.build_editable(str(site))
    with zipfile.ZipFile(site / wheel) as archive:
        archive.extractall(site)
    return site


def _python(site: Path, code: str, cwd: Path) -> str:
    """What Python prints there, with the install and its dependencies in site-packages."""
    start = (
        f"import site, sys; site.addsitedir({str(site)!r}); "
        f"sys.path.append({str(Path(np.__file__).parents[1])!r})\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-S", "-c", start + code],  # -S: without the install of this environment
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("where", ["the parent", "another folder", "the clone"])
def test_the_package_is_found_from(where: str, clone: Path, site: Path, tmp_path: Path) -> None:
    cwd = {"the parent": clone.parent, "another folder": tmp_path, "the clone": clone}[where]
    code = (
        "import os, aclearn, compress, correctors, services; print(aclearn.Config.__module__)\n"
        "for package in (aclearn, compress, correctors, services): "
        "print(os.path.realpath(package.__path__[0]))"
    )
    name, *places = _python(site, code, cwd).splitlines()
    packages = ("aclearn", "compress", "correctors", "services")
    assert (name, places) == ("aclearn.config.model", [str(clone / p) for p in packages])


def test_nothing_else_of_the_clone_is_importable_or_hides_a_module(
    clone: Path, site: Path, tmp_path: Path
) -> None:
    found = (
        "import importlib.util\n"
        "for name in ('tests', 'benchmarks', 'tools', 'docs', 'configs'):\n"
        "    spec = importlib.util.find_spec(name)\n"
        f"    if spec and {str(clone)!r} in str(spec.submodule_search_locations): print(name)"
    )
    assert _python(site, found, tmp_path) == ""
    (tmp_path / "tests").mkdir()  # a user's, without __init__.py
    (tmp_path / "tests" / "support.py").write_text("mine = 1\n")
    assert _python(site, "import tests.support; print(tests.support.mine)", tmp_path) == "1"


def test_the_folder_of_links_has_the_packages_alone() -> None:
    shown = [path for path in (_ROOT / ".importable").iterdir() if path.suffix != ".egg-info"]
    contracts = tomllib.loads((_ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    assert {path.name: path.readlink() for path in shown} == {
        name: Path("..") / name for name in contracts["root_packages"]
    }
