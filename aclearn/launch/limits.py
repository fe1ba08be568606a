"""How many files and sockets a role may open."""

from __future__ import annotations

import resource

#: More than 512 processes can want: the trainer has a few connections to each.
_ENOUGH_FILES = 16_384


def allow_many_connections() -> None:
    """Raise this process's own limit of open files as far as the system lets it.

    The usual 1 024 are too few for a trainer with 500 actors, and who cannot connect is not told:
    ZeroMQ tries again for ever.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
