"""How processes are started."""

import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_PACKAGES = ("correctors", "aclearn", "compress", "services")
#: They fork a process that has a ZeroMQ context, or threads, without a new program.
_FORKING = re.compile(
    r"\bos\.fork|\bforkpty\("
    r"|^\s*(?:import|from) (?:multiprocessing|pty|concurrent\.futures\.process)",
    re.MULTILINE,
)


def test_no_process_of_ours_is_forked_but_one_without_threads_and_sockets():
    assert _FORKING.search("import a\n    from multiprocessing import Process\n")
    files = [each for package in _PACKAGES for each in (_ROOT / package).rglob("*.py")]
    assert len(files) > 100
    forking = [each for each in files if _FORKING.search(each.read_text("utf-8"))]
    # it refuses to fork once it has a second thread, and its forks begin with their connections
    assert [each.name for each in forking] == ["forking.py"]
