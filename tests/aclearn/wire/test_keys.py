"""Key files: which one a role uses, and what is refused of them."""

from __future__ import annotations

import json
import os
import shutil
import time

import pytest
import zmq

from aclearn.errors import EndpointError
from aclearn.wire import OwnKey, add_key, key_path, load_key, load_list, rotate_keys
from aclearn.wire.keys import KeyPair, PublicKey, RoleKey, new_pair
from tests.support.keys import make_keys


@pytest.fixture
def keys(tmp_path):
    return make_keys(tmp_path / "keys")


def test_keys_are_for_their_owner_only_not_shown_and_not_overwritten(keys, tmp_path):
    path = keys / "actor.key"
    key, text = load_key(path), path.read_bytes()
    assert all(each.stat().st_mode & 0o777 == 0o600 for each in keys.iterdir())
    assert keys.stat().st_mode & 0o777 == 0o700
    assert key.pairs[0].secret not in repr(key) and key.pairs[0].public in repr(key)
    with pytest.raises(EndpointError, match="has keys already"):
        make_keys(keys)
    assert path.read_bytes() == text
    path.chmod(0o640)
    with pytest.raises(EndpointError, match="chmod 600"):
        load_key(path)
    (keys / "allowed.json").chmod(0o604)
    with pytest.raises(EndpointError, match="chmod 600"):
        load_list(keys)
    with pytest.raises(EndpointError, match=r"cannot read keys from .*none: No such.*aclearn keys"):
        key_path(tmp_path / "none", "actor")


def test_the_group_may_read_a_file_of_root_as_in_a_pod(keys, monkeypatch):
    if os.geteuid() != 0:
        pytest.skip("only root makes a file of root")
    path = keys / "actor.key"
    path.chmod(0o440)
    with pytest.raises(EndpointError, match="chmod 600"):
        load_key(path)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert load_key(path).name == "actor"
    path.chmod(0o444)
    with pytest.raises(EndpointError, match="chmod 600"):
        load_key(path)


def test_every_kind_of_role_has_a_key_and_a_host_may_have_one_for_several(keys, tmp_path):
    assert load_key(key_path(keys, "trainer")).roles == ("trainer",)
    made = add_key(keys, "rack7", ["actor", "predictor"])
    assert key_path(keys, "actor").name == "actor.key"  # its own comes first
    host = tmp_path / "host"
    host.mkdir()
    shutil.copy2(made, host)
    assert key_path(host, "actor") == key_path(host, "predictor") == host / "rack7.key"
    with pytest.raises(EndpointError, match="has no key for the role trainer: expected trainer"):
        key_path(host, "trainer")
    shutil.copy2(add_key(keys, "rack8", ["actor"]), host)
    with pytest.raises(EndpointError, match=r"several keys for the role actor: rack7.key, rack8.k"):
        key_path(host, "actor")


@pytest.mark.parametrize("directory", ["file", "file/below", "file/far/below"])
def test_a_file_for_a_folder_is_named(tmp_path, directory):
    (tmp_path / "file").touch()
    with pytest.raises(EndpointError, match=f"^{tmp_path}/file is a file; expected a folder"):
        make_keys(tmp_path / directory)


def _half(keys, name, half):
    """The key with another public half."""
    data = json.loads((keys / f"{name}.key").read_text())
    data["pairs"][0]["public"] = half
    return json.dumps(data)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda _: "", "no key file"),
        (lambda _: "\0" * 1000, "no key file"),
        (lambda _: "{}", "name: Field required"),
        (lambda _: "x" * 70_000, "more than 65536 bytes"),
        (lambda keys: _half(keys, "actor", "a" * 39), r"public: .*at least 40 characters"),
        (lambda keys: _half(keys, "actor", "a" * 41), r"public: .*at most 40 characters"),
        (lambda keys: _half(keys, "actor", "a" * 40), "its halves are not a key pair"),
        (lambda keys: _half(keys, "actor", "\xff" * 40), "public: "),
    ],
)
def test_damaged_keys_and_those_of_a_wrong_length_are_refused(keys, make, said):
    path = keys / "actor.key"
    secret = load_key(path).pairs[0].secret
    path.write_text(make(keys))
    with pytest.raises(EndpointError, match=said) as refused:
        load_key(path)
    assert secret not in str(refused.value)
    (keys / "allowed.json").write_text(make(keys))
    with pytest.raises(EndpointError, match=r"no list of keys|more than 65536"):
        load_list(keys)


def test_a_role_takes_its_replaced_file_and_keeps_its_key_where_that_is_damaged(
    keys, caplog, monkeypatch
):
    monkeypatch.setattr("aclearn.wire.keys._LOOK_EVERY_S", 0.0)
    own = OwnKey(keys, "actor")
    before = own.pair
    rotate_keys(keys, ["actor"], grace_s=60)
    own.look()
    assert before != own.pair == load_key(keys / "actor.key").pairs[0]
    after = own.pair
    (keys / "actor.key").write_text("half a file")
    own.look()
    assert "event=key_not_read" in caplog.text and own.pair is after


def test_a_file_is_read_again_once_its_mode_alone_is_mended(keys, monkeypatch):
    monkeypatch.setattr("aclearn.wire.keys._LOOK_EVERY_S", 0.0)
    own, path = OwnKey(keys, "actor"), keys / "actor.key"
    rotate_keys(keys, ["actor"], grace_s=60)
    path.chmod(0o644)
    before = own.pair
    own.look()
    assert own.pair is before
    path.chmod(0o600)
    own.look()
    assert own.pair == load_key(path).pairs[0]


def test_the_next_pair_is_used_once_the_time_of_the_first_is_over():
    old, new = new_pair(), new_pair()
    key = RoleKey(
        name="monitor",
        roles=("monitor",),
        pairs=(KeyPair(public=old.public, secret=old.secret, until=100.0), new),
        monitor=(PublicKey(public=old.public, until=100.0), PublicKey(public=new.public)),
    )
    assert key.pair(99.0).public == key.monitor_key(99.0) == old.public
    assert key.pair(100.0).public == key.monitor_key(100.0) == new.public
    assert zmq.curve_public(new.secret.encode()).decode() == new.public
    assert key.pair(time.time()) == new
