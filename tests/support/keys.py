"""Keys of a cluster in tests."""

from __future__ import annotations

import time
from pathlib import Path

import zmq

from aclearn.wire import (
    Admission,
    Client,
    ClientKeys,
    Server,
    ServerKeys,
    ZmqTransport,
    bind_router,
    connect_dealer,
    create_keys,
    key_path,
    load_key,
    load_list,
    new_incarnation,
)
from services.roles import KEY_ROLES
from services.wiring import ENDPOINTS


def make_keys(directory: Path) -> Path:
    """A folder with a key for each kind of role."""
    create_keys(directory, KEY_ROLES)
    return directory


def client_keys(directory: Path, role: str, server: str | None = None) -> ClientKeys:
    """What a client of the monitor proves, or of the server with that public key."""
    key = load_key(key_path(directory, role))
    return ClientKeys(key.pair(time.time()), server or key.monitor_key(time.time()))


class KeyedServer:
    """A server of that name in the wiring, which proves the monitor's key and knows the list."""

    def __init__(
        self,
        context: zmq.Context,
        directory: Path,
        name: str = "monitor",
        *,
        listed: bool = True,
    ) -> None:
        self.context, self.directory = context, directory
        self.admission = Admission(context)
        if listed:
            self.allow()
        pair = load_key(directory / "monitor.key").pair(time.time())
        keys = ServerKeys(pair, self.admission)
        socket, self.endpoint = bind_router(context, "tcp", keys=keys)
        accepts = ENDPOINTS[name].accepts
        self.channel = Server(ZmqTransport(socket, keys), "run-1", "server", accepts=accepts)
        self._clients: list[Client] = []

    def allow(self) -> None:
        """Read the list again."""
        self.admission.allow(load_list(self.directory).allowed(time.time()))

    def client(self, keys: ClientKeys | str | None, incarnation: str = "") -> Client:
        """A client with these keys, or with the key of that role."""
        if isinstance(keys, str):
            keys = client_keys(self.directory, keys)
        incarnation = incarnation or new_incarnation()
        socket = connect_dealer(
            self.context, self.endpoint, routing_id=new_incarnation().encode(), keys=keys
        )
        client = Client(ZmqTransport(socket), "run-1", incarnation)
        self._clients.append(client)
        return client

    def close(self) -> None:
        """Close it and all clients."""
        for client in self._clients:
            client.close()
        self.channel.close()
        self.admission.close()
