from __future__ import annotations

import sys

import pytest

from aclearn.errors import ConfigError, EnvironmentFailure
from aclearn.extensions import load_extension


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A current folder that was not searched for modules yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_name_in_a_module_of_the_current_folder_is_found(here) -> None:
    (here / "my_parts.py").write_text("import my_helpers\nclass Outer:\n    inner = 7\n")
    (here / "my_helpers.py").write_text("")
    assert load_extension("my_parts:Outer", key="loss.kind").__name__ == "Outer"
    assert load_extension("my_parts:Outer.inner", key="loss.kind") == 7


def test_the_current_folder_hides_no_package(here) -> None:
    (here / "yaml.py").write_text("raise SystemExit")
    assert load_extension("yaml:safe_load", key="x").__module__ == "yaml"


_OPTIONS = "Is its folder that of the configuration, the current one"


@pytest.mark.parametrize(
    ("name", "source", "said"),
    [
        ("my_parst:Loss", "", rf"'my_parst' cannot be .*; did you mean my_parts.*\? {_OPTIONS}"),
        ("my_parts:Los", "class Loss: ...", r"'my_parts:Los': my_parts has no Los; .* mean Loss\?"),
        ("my_parts:Loss.b", "class Loss: a=1", r"my_parts has no Loss\.b"),
        ("my_parts:", "", "expected module:Name, .* got 'my_parts:'"),
        ("my_parts:two words", "", "expected module:Name"),
        (":Loss", "", "expected module:Name"),
        (".my_parts:Loss", "", r"'\.my_parts' cannot be imported \(TypeError"),
        (
            "my_parts:Loss",
            "a = 1\n1 / 0",
            r"\(ZeroDivisionError: .*\) \[line 2 of .*my_parts\.py, ",
        ),
        ("my_parts:Loss", "class A(", r"\(SyntaxError: .*\(my_parts\.py, line 1\)\)"),
        ("my_parts:Loss", "import sys; sys.exit()", r"cannot be imported \(SystemExit\)"),
        (
            "my_parts:Loss",
            "import no_such_library",
            r"No module named 'no_such_library'\) \[line 1",
        ),
    ],
)
def test_what_cannot_be_found_is_told_in_one_line(here, name, source, said) -> None:
    (here / "my_parts.py").write_text(source)
    with pytest.raises(ConfigError, match=said) as raised:
        load_extension(name, key="loss.kind")
    assert str(raised.value).startswith("loss.kind")
    assert "\n" not in str(raised.value)


def test_an_error_is_of_the_class_that_is_asked_for() -> None:
    with pytest.raises(EnvironmentFailure, match=r"^env\.id 'no_such_module:make': module"):
        load_extension("no_such_module:make", key="env.id", error=EnvironmentFailure)
