"""The pages in docs/: links and the keys and commands that they name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from aclearn.config.loss import ALGORITHMS
from aclearn.config.policies import schema_key
from tools.key_pages import describe_config

_ROOT = Path(__file__).parents[2]
_PAGES = [
    *(_ROOT / name for name in ("README.md", "CHANGELOG.md", "benchmarks/README.md")),
    *sorted((_ROOT / "docs").glob("**/*.md")),
]
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
#: Files that name a page of docs/.
_NAMED = re.compile(r"\bdocs/[\w/]+\.md\b")


def _prose(page: Path) -> str:
    return _FENCED.sub("", page.read_text("utf-8"))


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", _prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(_ROOT)))
def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    broken = []
    for link in _LINK.findall(_prose(page)):
        target, _, anchor = link.partition("#")
        if re.match(r"\w+:", target):
            continue
        path = (page.parent / target).resolve() if target else page
        if not path.exists() or (anchor and anchor not in _anchors(path)):
            broken.append(link)
    assert broken == []


def _sources() -> Iterator[Path]:
    for folder in ("aclearn", "benchmarks", "compress", "configs", "correctors", "services"):
        yield from (_ROOT / folder).glob("**/*.*")
    yield from (*_ROOT.glob("*.yml"), _ROOT / "Makefile", _ROOT / "CHANGELOG.md")


def test_every_page_that_a_message_or_comment_names_exists() -> None:
    named = {
        name
        for path in _sources()
        if path.suffix in (".py", ".yaml", ".yml", ".md", "")
        for name in _NAMED.findall(path.read_text("utf-8"))
    }
    assert "docs/configuration.md" in named
    assert sorted(name for name in named if not (_ROOT / name).exists()) == []


@pytest.mark.parametrize(
    "page",
    [page for page in _PAGES if page.name != "CHANGELOG.md"],  # which names former keys
    ids=lambda page: str(page.relative_to(_ROOT)),
)
def test_every_key_of_the_configuration_that_a_page_names_exists(page: Path) -> None:
    keys = {entry.key for entry in describe_config()}
    keys |= {
        f"loss.{key}"
        for model in map(ALGORITHMS.model, ALGORITHMS.names)
        for key in model.model_fields
    }
    known = keys | {key.rpartition(".")[0] for key in keys}
    sections = "|".join({key.partition(".")[0] for key in keys})
    named = re.findall(rf"`((?:{sections})\.\w[\w.]*)", page.read_text("utf-8"))
    files = ("py", "yaml", "log", "jsonl", "json", "md", "onnx", "key")
    unknown = {
        key for key in named if schema_key(key) not in known and key.rpartition(".")[2] not in files
    }
    assert unknown == set()
