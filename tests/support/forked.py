"""A server whose forks run Python source, as `python -c SOURCE` does."""

from __future__ import annotations

import socket
import sys

from aclearn.launch.forking import become_fork

if __name__ == "__main__":
    arguments = become_fork(socket.socket(fileno=int(sys.argv[1])))
    if arguments is not None:
        _, source, *others = arguments
        sys.argv = ["-c", *others]
        exec(compile(source, "<string>", "exec"), {"__name__": "__main__"})
