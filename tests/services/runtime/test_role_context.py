"""What a role leaves behind."""

from __future__ import annotations

from pathlib import Path

from aclearn.config import Config
from aclearn.launch import StopFlag
from services.runtime.role_context import RoleContext


def test_the_files_of_sockets_go_with_the_role_and_no_others(tmp_path: Path) -> None:
    config = Config.model_validate({"run": {"name": "r"}, "env": {"id": "CartPole-v1"}})
    (tmp_path / "another").touch()
    context = RoleContext("monitor", 0, config, f"ipc://{tmp_path}/m.sock", None, StopFlag())
    try:
        server = context.serve_at(context.monitor, ())
        other, _ = context.serve(())
        assert (tmp_path / "m.sock").is_socket()
        assert len(list(tmp_path.iterdir())) == 3
        server.close()
        other.close()
    finally:
        context.close()
    assert [path.name for path in tmp_path.iterdir()] == ["another"]
