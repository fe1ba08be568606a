"""The dashboard's process: its socket, its token, its end."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

import psutil
import uvicorn

from aclearn.errors import AclearnError, ConfigError
from aclearn.files import user_cache
from aclearn.runs import write_private
from services.dashboard.app import make_app
from services.dashboard.guard import is_open
from services.dashboard.monitors import Monitors
from services.dashboard.run_index import RunIndex

#: Seconds for open streams of events to end.
_END_WITHIN_S = 2


def serve(runs_dir: Path, *, host: str, port: int, allow_actions: bool = False) -> None:
    """Serve the runs in `runs_dir` until Ctrl-C or SIGTERM; prints the address, and the token.

    Args:
        port: 0 for a free one.
        allow_actions: whether users with the token may tell running runs what to do.

    Raises:
        ConfigError: there is no such folder, or the address cannot be used.
    """
    if not runs_dir.is_dir():
        raise ConfigError(f"there is no folder {runs_dir}; expected the folder of run folders")
    with _listen(host, port) as listener:
        at = listener.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        token = None
        if allow_actions or is_open(host):
            token = _new_token(user_cache() / f"dashboard-token-{at}")
        print(f"dashboard of {runs_dir}: http://{shown}:{at}/", flush=True)
        with RunIndex(runs_dir, user_cache()) as index, Monitors() as monitors:
            app = make_app(
                index,
                monitors,
                host=host,
                token=token if is_open(host) else None,
                actions_token=token if allow_actions else None,
            )
            config = uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=_END_WITHIN_S,
            )
            uvicorn.Server(config).run(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    except (OSError, UnicodeError) as error:  # a name with an empty part is no domain's
        words = getattr(error, "strerror", None) or error
        raise ConfigError(f"--host {host}: no such address ({words})") from error
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"--port {port}: {host}:{port} cannot be used ({error.strerror}){_holder(port)}; "
            "choose another one, or 0 for a free one"
        ) from error
    return listener


def _holder(port: int) -> str:
    """The process that listens at a port, in words; "" where the system does not tell."""
    try:
        found = psutil.net_connections("tcp")
    except (psutil.Error, OSError):
        return ""
    for each in found:
        at = each.laddr[1] if each.laddr else None
        if each.status == psutil.CONN_LISTEN and at == port and each.pid:
            try:
                words = " ".join(psutil.Process(each.pid).cmdline())[:200]
            except psutil.Error:
                words = "it does not tell its command"
            return f"; process {each.pid} listens there: {words}"
    return ""


def _new_token(path: Path) -> str:
    """A token that is printed once, and is in a file that only this user reads."""
    token = secrets.token_urlsafe(24)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(path, f"{token}\n".encode())
    except OSError as error:
        raise AclearnError(f"the token cannot be kept in {path} ({error.strerror})") from error
    print(f"token, which the page asks for once: {token} (also in {path})", flush=True)
    return token
