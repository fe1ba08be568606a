"""`monitor.json` in a run folder: where the running monitor answers, and the key of users' actions.

Its mode is 600: who may read it may tell the run what to do.
"""

from __future__ import annotations

import json
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from aclearn.errors import EndpointError, RunFolderError
from aclearn.runs import write_private
from aclearn.wire import parse_endpoint, tcp_endpoint

#: Most bytes of the file that are read.
_MOST_BYTES: Final = 16 * 1024
#: Most bytes of a run's name in a message.
_MOST_NAME_BYTES: Final = 1024


@dataclass(frozen=True)
class MonitorAddress:
    """Where the monitor of a run answers.

    Attributes:
        run: the run's name, which every message carries.
        address: that the monitor binds.
        host, pid: its machine and process.
        keys_dir: folder of the cluster's keys; None without.
        key: of users' actions.
    """

    run: str
    address: str
    host: str
    pid: int
    keys_dir: str | None
    key: str

    def write(self, path: Path) -> None:
        """Write it for this user alone; raises `OSError`."""
        write_private(path, json.dumps(asdict(self)).encode())

    def from_here(self) -> str:
        """The address for a process of this machine.

        Raises:
            EndpointError: it is a socket file of another machine.
        """
        here = self.host == socket.gethostname()
        endpoint = parse_endpoint(self.address)
        if endpoint.transport == "ipc" and not here:
            raise EndpointError(
                f"the monitor runs on {self.host} and answers on that machine alone; open the "
                "dashboard there"
            )
        if not endpoint.is_wildcard:
            return self.address
        loopback = "::1" if ":" in endpoint.host else "127.0.0.1"
        return str(tcp_endpoint(loopback if here else self.host, endpoint.port))


def read_address(path: Path) -> MonitorAddress | None:
    """What a monitor has written; None if there is no such file.

    Raises:
        RunFolderError: it cannot be read, or is damaged.
    """
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(_MOST_BYTES))
        made = MonitorAddress(**found)
        if not _is_usable(made):
            raise ValueError("a field has another type, or a text that nobody can use")
        parse_endpoint(made.address)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunFolderError(f"{path} cannot be read ({error.strerror})") from error
    except (ValueError, TypeError, RecursionError, EndpointError) as error:
        raise RunFolderError(f"{path} is damaged; expected what a monitor has written") from error
    return made


def _is_usable(made: MonitorAddress) -> bool:
    """Whether a message can carry the name, and the file system knows such a folder of keys."""
    texts = (made.run, made.address, made.host, made.key)
    if not all(isinstance(text, str) and text.isprintable() for text in texts):
        return False
    if not 0 < len(made.run.encode()) <= _MOST_NAME_BYTES or type(made.pid) is not int:
        return False
    if made.keys_dir is None:
        return True
    return isinstance(made.keys_dir, str) and b"\0" not in (made.keys_dir.encode() or b"\0")
