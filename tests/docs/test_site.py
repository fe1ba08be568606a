"""The site of docs/ and its pages that are generated from docstrings."""

from __future__ import annotations

import inspect
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import aclearn
from tests.support.waiting import run_python
from tools import learning_table
from tools.reference_pages import PAGES, reference_pages

_ROOT = Path(__file__).parents[2]


def _build(folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the site from a copy, so that nothing is written into the checkout."""
    shutil.copy(_ROOT / "zensical.toml", folder)
    shutil.copytree(_ROOT / "docs", folder / "docs", dirs_exist_ok=True)
    return run_python("-m", "zensical", "build", "--strict", cwd=folder)


def _pages(entries: list[Any]) -> Iterator[str]:
    """The pages of a menu in zensical.toml: texts, and sections or titles of them."""
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            (below,) = entry.values()
            yield from _pages(below if isinstance(below, list) else [below])


def test_the_site_builds_without_a_broken_link_and_its_menu_has_every_page(tmp_path: Path) -> None:
    built = _build(tmp_path)
    assert built.returncode == 0, built.stdout + built.stderr
    assert (tmp_path / "build" / "site" / "reference" / "aclearn" / "index.html").is_file()
    menu = tomllib.loads((_ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"]
    docs = _ROOT / "docs"
    assert sorted(_pages(menu)) == sorted(str(p.relative_to(docs)) for p in docs.glob("**/*.md"))


def test_a_broken_link_stops_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "astray.md").write_text("# Astray\n\n[nowhere](metrics.md#nowhere)\n")
    built = _build(tmp_path)
    assert built.returncode != 0
    assert "astray.md" in built.stdout + built.stderr


def test_the_reference_pages_say_what_the_docstrings_say() -> None:
    pages = reference_pages()
    assert {page.name for page in PAGES.glob("*.md")} == set(pages)
    for name, text in pages.items():
        if (PAGES / name).read_text("utf-8") != text:
            pytest.fail(f"docs/reference/{name} is older than the docstrings: run `make docs`")


def test_a_reference_page_has_the_whole_of_what_a_function_returns() -> None:
    page = " ".join((PAGES / "aclearn.md").read_text("utf-8").split())
    public = [getattr(aclearn, name) for name in aclearn.__all__]
    members = [m for c in public if inspect.isclass(c) for m in vars(c).values()]
    docs = [inspect.getdoc(item) or "" for item in (*public, *members)]
    returned = [doc.partition("\nReturns:\n")[2].partition("\n\n")[0] for doc in docs]
    returned = [words for words in returned if words]
    assert len(returned) >= 3
    for words in returned:
        assert f"Returns: {' '.join(words.split())}" in page


def test_the_table_of_results_has_the_raw_figures() -> None:
    assert learning_table.PAGE.read_text("utf-8") == learning_table.page(), "run `make docs`"
