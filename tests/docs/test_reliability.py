"""The table of faults names tests that are there."""

import re
from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[1]
_PAGE = (_TESTS.parent / "docs" / "reliability.md").read_text("utf-8")


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([a-z_/0-9]+\.py)(?:::\w+)?`", _PAGE))))
def test_each_test_that_the_table_of_faults_names_is_there(path: str) -> None:
    file = _TESTS / path.removeprefix("tests/")
    source = file.read_text("utf-8")
    named = re.findall(rf"`{path}::(\w+)`", _PAGE)
    assert [name for name in named if f"def {name}(" not in source] == []
