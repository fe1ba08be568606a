"""The list of allowed keys, and its changes."""

from __future__ import annotations

import fcntl
import os
import time

import pytest

from aclearn.errors import EndpointError
from aclearn.wire import (
    LIST_FILE,
    WatchedList,
    add_key,
    create_keys,
    load_key,
    load_list,
    revoke_key,
    rotate_keys,
)
from aclearn.wire.key_ring import MOST_KEYS
from aclearn.wire.keys import RoleKey
from services.roles import KEY_ROLES
from tests.support.keys import make_keys


@pytest.fixture
def keys(tmp_path):
    return make_keys(tmp_path / "keys")


def _public(keys, name):
    return load_key(keys / f"{name}.key").pairs[-1].public


def _allowed(keys, now=None):
    """Name → public halves that are allowed, and those that are revoked."""
    found = {}
    for key in load_list(keys).allowed(time.time() if now is None else now):
        found.setdefault((key.name, key.revoked), set()).add(key.public)
    return found


def test_every_kind_of_role_is_on_the_list_with_its_own_key(keys):
    assert _allowed(keys) == {(role, False): {_public(keys, role)} for role in KEY_ROLES}
    assert len({_public(keys, role) for role in KEY_ROLES}) == len(KEY_ROLES)
    known = {load_key(path).monitor[0].public for path in keys.glob("*.key")}
    assert known == {_public(keys, "monitor")}


def test_a_folder_that_its_owner_has_locked_takes_keys(tmp_path):
    # as the private folder of a run on Ray
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        make_keys(tmp_path)
    finally:
        os.close(descriptor)
    assert (tmp_path / "allowed.json").exists()


def test_a_revoked_key_is_told_from_an_unknown_one_and_its_name_may_get_a_new_pair(keys):
    add_key(keys, "rack7", ["actor"], processes=4, unrolls_per_s=50.0)
    old = _public(keys, "rack7")
    [listed] = [key for key in load_list(keys).allowed(time.time()) if key.name == "rack7"]
    assert (listed.roles, listed.processes, listed.unrolls_per_s) == (["actor"], 4, 50.0)

    revoke_key(keys, "rack7")

    assert _allowed(keys).get(("rack7", False)) is None
    assert _allowed(keys)["rack7", True] == {old}
    assert not (keys / "rack7.key").exists()
    with pytest.raises(EndpointError, match="rack7 is revoked already"):
        revoke_key(keys, "rack7")
    add_key(keys, "rack7", ["actor"])
    assert _allowed(keys)["rack7", False] == {_public(keys, "rack7")} != {old}
    assert _allowed(keys)["rack7", True] == {old}


def test_both_pairs_of_a_rotated_key_are_good_for_the_grace_and_the_monitor_waits_for_its_end(keys):
    before = {role: _public(keys, role) for role in KEY_ROLES}
    now = time.time()
    files, _ = rotate_keys(keys, grace_s=60)
    assert {path.stem for path in files} == set(KEY_ROLES)
    for role in KEY_ROLES:
        key, new = load_key(keys / f"{role}.key"), _public(keys, role)
        assert _allowed(keys)[role, False] == {before[role], new}
        assert _allowed(keys, now + 61)[role, False] == {new}
        # clients and the monitor itself change at the same time
        assert key.monitor_key(now) == before["monitor"]
        assert key.monitor_key(now + 61) == _public(keys, "monitor")
        used = before[role] if role == "monitor" else new
        assert key.pair(now).public == used and key.pair(now + 61).public == new


def test_one_key_is_rotated_alone_and_without_grace_the_old_pair_is_over_at_once(keys):
    before = {role: (keys / f"{role}.key").read_bytes() for role in KEY_ROLES}
    old = _public(keys, "actor")
    rotate_keys(keys, ["actor"], grace_s=0)
    assert _allowed(keys)["actor", False] == {_public(keys, "actor")} != {old}
    others = set(KEY_ROLES) - {"actor"}
    assert all((keys / f"{role}.key").read_bytes() == before[role] for role in others)
    rotate_keys(keys, ["monitor"], grace_s=0)
    known = {load_key(path).monitor_key(time.time()) for path in keys.glob("*.key")}
    assert known == {_public(keys, "monitor")}


def test_a_watched_list_sees_revocation_and_the_end_of_a_grace(keys, monkeypatch):
    monkeypatch.setattr("aclearn.wire.keys._LOOK_EVERY_S", 0.0)
    now = [time.time()]
    watched = WatchedList(keys, lambda: now[0])
    old = _public(keys, "actor")

    def holds(public):
        watched.look()
        return any(key.public == public and not key.revoked for key in watched.allowed)

    rotate_keys(keys, ["actor"], grace_s=100)
    assert holds(_public(keys, "actor")) and holds(old)
    now[0] += 101
    assert not holds(old)
    revoke_key(keys, "evaluator")
    assert watched.look() and any(key.revoked for key in watched.allowed)
    (keys / "allowed.json").write_text("damaged")
    seen = watched.allowed
    assert not watched.look() and watched.allowed == seen


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda keys: revoke_key(keys, "rack9"), "has no key 'rack9'; expected one of monitor, tr"),
        (lambda keys: revoke_key(keys, "monitor"), "aclearn keys rotate monitor --grace 0"),
        (lambda keys: rotate_keys(keys, ["rack9"], grace_s=1), "has no key 'rack9'"),
        (lambda keys: add_key(keys, "actor", ["actor"]), "has a key actor already"),
        (lambda keys: add_key(keys, "../x", ["actor"]), "key '../x': "),
        (lambda keys: add_key(keys, "a" * 33, ["actor"]), "at most 32 characters"),
        (lambda keys: add_key(keys, "b", ["actor"], processes=0), "processes: "),
        (lambda keys: add_key(keys / "none", "b", ["actor"]), "cannot read keys from"),
    ],
)
def test_changes_that_cannot_be_are_refused_and_change_nothing(keys, change, said):
    before = {path.name: path.read_bytes() for path in keys.iterdir()}
    with pytest.raises(EndpointError, match=said):
        change(keys)
    assert {path.name: path.read_bytes() for path in keys.iterdir()} == before


def test_the_monitor_is_rotated_without_the_file_of_a_key_which_is_named(keys):
    add_key(keys, "rack7", ["actor"]).unlink()
    old = _allowed(keys)["rack7", False]
    files, missing = rotate_keys(keys, ["monitor"], grace_s=0)
    assert {path.stem for path in files} == set(KEY_ROLES) and missing == ["rack7"]
    assert _allowed(keys)["rack7", False] == old
    [made], missing = rotate_keys(keys, ["rack7"], grace_s=0)
    assert load_key(made).monitor_key(time.time()) == _public(keys, "monitor") and not missing


def test_a_full_list_forgets_what_was_revoked_or_replaced_first(keys, monkeypatch):
    monkeypatch.setattr("aclearn.wire.key_ring.MOST_KEYS", len(KEY_ROLES) + 2)
    for name in ("a", "b"):
        add_key(keys, name, ["actor"])
    for name in ("b", "a"):
        revoke_key(keys, name)
    add_key(keys, "c", ["actor"])
    assert list(load_list(keys).keys) == [*KEY_ROLES, "a", "c"]
    rotate_keys(keys, ["c"], grace_s=60)
    assert "a" not in load_list(keys).keys
    with pytest.raises(EndpointError, match="valid keys"):
        rotate_keys(keys, ["c"], grace_s=60)  # the first half of it holds
    now = time.time() + 61
    monkeypatch.setattr(time, "time", lambda: now)
    add_key(keys, "d", ["actor"])
    assert _allowed(keys)["c", False] == {_public(keys, "c")}


def test_a_list_that_no_message_could_carry_is_refused(keys, monkeypatch):
    monkeypatch.setattr("aclearn.wire.key_ring.MOST_KEYS", len(KEY_ROLES))
    with pytest.raises(EndpointError, match=f"at most {len(KEY_ROLES)} are possible"):
        add_key(keys, "rack7", ["actor"])
    assert MOST_KEYS > 100 and isinstance(load_key(keys / "actor.key"), RoleKey)


@pytest.mark.parametrize("fault", ["damaged", "missing"])
def test_a_folder_of_keys_without_a_list_says_how_to_go_on(tmp_path, fault) -> None:
    create_keys(tmp_path / "keys", ["actor"])
    listed = tmp_path / "keys" / LIST_FILE
    if fault == "damaged":
        listed.write_text("{")
    else:
        listed.unlink()
    with pytest.raises(EndpointError, match=r"move all files of this folder away, or .* --dir"):
        create_keys(tmp_path / "keys", ["actor"])
