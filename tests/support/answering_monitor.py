"""A monitor's state behind a real socket, for those that ask it."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

import zmq

from aclearn.wire import Admission, OwnKey, Server, ServerKeys, ZmqTransport, bind_router, load_list
from services.monitor.address_file import MonitorAddress
from services.wiring import ENDPOINTS
from tests.support.monitor import Monitor

KEY = "a key of a test"


class Answering:
    """A monitor's state behind a socket, in a thread; it can fall silent."""

    def __init__(self, tools, folder: Path, address: str, keys_dir: Path | None = None) -> None:
        self.monitor = Monitor(tools, actions_key=KEY)
        for name in ("trainer-0", "actor-0", "actor-1"):
            self.monitor.hello(name, name)
        self.silent, self._stop = threading.Event(), threading.Event()
        self._context = zmq.Context[zmq.Socket[bytes]]()
        keys = None
        if keys_dir is not None:
            keys = ServerKeys(OwnKey(keys_dir, "monitor").pair, Admission(self._context))
            keys.admission.allow(load_list(keys_dir).allowed(time.time()))
        bound, endpoint = bind_router(self._context, address, keys=keys)
        self._server = Server(
            ZmqTransport(bound, keys), "r", "m", accepts=ENDPOINTS["monitor"].accepts
        )
        self.address = MonitorAddress(
            "r", endpoint, socket.gethostname(), os.getpid(), keys_dir and str(keys_dir), KEY
        )
        self.address.write(folder / "monitor.json")
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for routing_id, envelope in self._server.receive(0.02):
                if not self.silent.is_set():
                    for answer in self.monitor.state.take(routing_id, envelope, 0.0):
                        self._server.send(answer.routing_id, answer.message)
        self._server.close()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._context.destroy(linger=0)
