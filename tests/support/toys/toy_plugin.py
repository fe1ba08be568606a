"""A monitor plug-in from outside the packages."""

from __future__ import annotations

import json
from pathlib import Path

from aclearn.control import Directive, MonitorPlugin, SetChain, SetMix


class SetsRung(MonitorPlugin):
    """The rung and the share that a file says, from when it is there: `{"rung": 1}`, say."""

    def __init__(self, file):
        self.file = Path(file)

    def observe(self, indicators):
        said = json.loads(self.file.read_text()) if self.file.exists() else {}
        payloads = {
            "rung": lambda rung: ("compressor", SetChain(rung)),
            "share": lambda share: ("actor", SetMix(share)),
        }
        return [Directive(*payloads[name](value), said) for name, value in said.items()]
