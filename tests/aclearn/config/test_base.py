"""A configuration on top of another one (`base`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from aclearn.config import load_config
from aclearn.errors import ConfigError


@pytest.fixture
def write(tmp_path: Path):
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return write


def test_sections_are_joined_key_by_key_and_other_values_replaced(write) -> None:
    write("a.yaml", "env: {id: A-v0, kwargs: {x: 1, y: 2}}\nactors: {processes: 3, groups: 2}\n")
    write("sub/b.yaml", "base: ../a.yaml\nactors: {groups: 4}\ncorrectors: [vtrace]\n")
    c = load_config(
        write("sub/c.yaml", "base: b.yaml\nenv: {kwargs: {z: 3}}\n"), ["actors.groups=5"]
    )
    assert (c.actors.processes, c.actors.groups, c.env.id) == (3, 5, "A-v0")
    assert c.env.kwargs == {"z": 3}  # a value, no section
    assert [each.name for each in c.correctors] == ["vtrace"]
    assert c.experiment == "c"


def test_a_shipped_configuration_is_a_base_by_its_name(write) -> None:
    mine = load_config(write("mine.yaml", "base: accerl/int8\nactors: {processes: 2}\n"))
    shipped = load_config("accerl/int8")
    assert mine.actors == shipped.actors.model_copy(update={"processes": 2})
    assert (mine.compressor, mine.loss) == (shipped.compressor, shipped.loss)


def test_a_mistake_is_told_with_the_file_in_which_it_stands(write) -> None:
    below = write("a.yaml", "env: {id: A-v0}\nactors:\n  processes: none\n  groups: 0\n")
    above = write("b.yaml", "base: a.yaml\n\nactors:\n  groups: -1\n")
    with pytest.raises(ConfigError) as caught:
        load_config(above)
    places = [line.partition(": actors.")[0] for line in str(caught.value).splitlines()]
    assert places == [f"{below}: line 3", f"{above}: line 4"]


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ("b.yaml", "b.yaml is based on this file itself"),
        ("c.yaml", "b.yaml is based on this file itself"),
        ("gone.yaml", "there is no such configuration file"),
        ("pongg", "no configuration comes with aclearn under this name"),
        ("[a.yaml]", "expected a configuration, got a list"),
    ],
)
def test_a_base_that_cannot_be_used_is_named(write, base: str, message: str) -> None:
    write("c.yaml", "base: b.yaml\n")
    path = write("b.yaml", f"base: {base}\nenv: {{id: A-v0}}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value).startswith(f"{path}: base: ")
    assert message in str(caught.value)
