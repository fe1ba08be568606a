"""Resources of a role after its end."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from aclearn.config import Config
from aclearn.errors import EndpointError
from services.role.context import RoleContext, RunEnv
from tests.support.keys import make_keys
from tests.support.system import free_port


def test_the_files_of_sockets_go_with_the_role_and_no_others(tmp_path: Path) -> None:
    config = Config.model_validate({"run": {"name": "r"}, "env": {"id": "CartPole-v1"}})
    (tmp_path / "another").touch()
    context = RoleContext("monitor", 0, config, RunEnv(f"ipc://{tmp_path}/m.sock"))
    try:
        server = context.serve_at(context.run.monitor, ())
        other, _ = context.serve("unrolls")
        assert (tmp_path / "m.sock").is_socket()
        assert len(list(tmp_path.iterdir())) == 3
        server.close()
        other.close()
    finally:
        context.close()
    assert [path.name for path in tmp_path.iterdir()] == ["another"]


@pytest.mark.parametrize(
    ("network", "announced"),
    [
        ({}, "127.0.0.1"),
        ({"announce_host": "10.0.0.7"}, "10.0.0.7"),
        ({"bind_host": "0.0.0.0", "announce_host": "[fd00::7]"}, "[fd00::7]"),
        ({"bind_host": "0.0.0.0"}, socket.gethostname()),
    ],
)
def test_a_role_listens_at_its_port_and_announces_where_others_reach_it(
    tmp_path: Path, network: dict[str, str], announced: str
) -> None:
    make_keys(tmp_path)
    port = free_port()
    config = Config.model_validate(
        {
            "run": {"name": "r"},
            "env": {"id": "CartPole-v1"},
            "network": {"keys_dir": str(tmp_path), "ports": {"unrolls": port}, **network},
        }
    )
    context = RoleContext("trainer", 0, config, RunEnv("tcp://127.0.0.1:5555"))
    try:
        first, endpoint = context.serve("unrolls")
        assert endpoint == f"tcp://{announced}:{port}"
        with pytest.raises(EndpointError, match=rf"cannot bind .*:{port}: the address is in use"):
            context.serve("unrolls")
        second, other = context.serve("weights")  # a free one, which others get too
        assert other.startswith(f"tcp://{announced}:") and other != endpoint
        with socket.create_connection(("127.0.0.1", int(other.rpartition(":")[2]))):
            pass
        first.close()
        second.close()
    finally:
        context.close()


def test_a_routing_id_is_not_the_incarnation_that_others_know(tmp_path: Path) -> None:
    config = Config.model_validate({"run": {"name": "r"}, "env": {"id": "CartPole-v1"}})
    context = RoleContext("actor", 0, config, RunEnv(f"ipc://{tmp_path}/m.sock"))
    try:
        assert len(context.routing_id) == len(context.incarnation) == 32
        assert context.routing_id != context.incarnation.encode()
    finally:
        context.close()
