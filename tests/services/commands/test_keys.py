"""`aclearn keys`."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from aclearn.errors import AclearnError
from aclearn.wire import load_key, load_list
from services.cli import app
from services.roles import KEY_ROLES


@pytest.fixture
def keys(tmp_path, monkeypatch):
    """Calls the command in a folder of its own; returns what it prints."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["keys", *arguments], catch_exceptions=True)
        if isinstance(result.exception, AclearnError):
            raise result.exception
        assert result.exit_code == 0, result.output
        return str(result.output)

    return call


def test_keys_are_made_added_revoked_rotated_and_listed(keys) -> None:
    keys("new")
    assert {path.stem for path in Path("keys").glob("*.key")} == set(KEY_ROLES)
    bounds = ("--processes", "4", "--unrolls-per-s", "12.5")
    keys("add", "rack7", "--role", "actor", "--role", "evaluator", *bounds)
    key = load_list(Path("keys")).keys["rack7"]
    assert (key.roles, key.processes, key.unrolls_per_s) == (("actor", "evaluator"), 4, 12.5)
    old = load_key(Path("keys/rack7.key")).pairs
    assert "rack7.key" in keys("rotate", "rack7", "--grace", "500")
    assert load_key(Path("keys/rack7.key")).pairs != old
    Path("keys/rack7.key").unlink()
    assert "with `aclearn keys rotate rack7`" in keys("rotate", "monitor")
    keys("revoke", "actor")
    lines = {line.split()[0]: line for line in keys("list").splitlines()}
    assert lines["rack7"].split()[1:5] == ["actor,", "evaluator", "4", "12.5"]
    assert "an old pair for" in lines["rack7"] and "revoked" in lines["actor"]
    assert "allowed" in lines["trainer"]
    keys("new", "--dir", "others")
    assert load_list(Path("others")).keys.keys() == set(KEY_ROLES)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("add", "x", "--role", "pilot"), "--role: 'pilot' is no role; expected one of monitor"),
        (("add", "x", "--role", "monitor"), "--role: the monitor has one key"),
        (("revoke", "x"), "has no key 'x'"),
        (("list", "--dir", "none"), "cannot read keys from none/allowed.json"),
        (("new",), "has keys already"),
    ],
)
def test_what_cannot_be_is_refused_by_name(keys, arguments, said) -> None:
    keys("new")
    with pytest.raises(AclearnError, match=said):
        keys(*arguments)
