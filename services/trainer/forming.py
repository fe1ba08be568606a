"""How the ranks of a run find each other, and who must not take part."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import torch
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from aclearn.errors import ConfigError, GroupError, RankLost
from aclearn.learning.ranks import ALONE, Group
from aclearn.learning.ranks.torch_group import TorchGroup
from aclearn.wire import Heartbeat, parse_endpoint, tcp_endpoint
from services.role.agreement import differing, rank_digests
from services.role.context import RoleContext
from services.role.monitor_client import MonitorClient
from services.roles import TRAINER
from services.wiring import GROUP

_LOGGER = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.1
#: Seconds for an answer of the store, and for all to connect once each has confirmed that it is
#: there. That takes milliseconds; a rank that dies meanwhile costs the others this time.
_STORE_WITHIN_S, _CONNECT_WITHIN_S = 5.0, 5.0
_MEMBERS = "members"


def join_group(context: RoleContext, device: torch.device) -> Group | int:
    """This rank's group, once every rank of the run is there; its exit status if it was stopped.

    Rank 0 opens a store, whose address the monitor tells the others. Each puts there what must be
    equal in all of them, and rank 0 compares. It then proposes the members; each of them confirms
    that it still lives, and all connect. A rank that dies before costs a further attempt with its
    successor. Between machines their connections are not encrypted, so without
    `network.plain_group` all are on one machine.

    Raises:
        GroupError: a rank is missing, or this one differs from rank 0; names it.
    """
    if context.config.ranks == 1:
        return ALONE
    if context.run.ranks is not None:
        return context.run.ranks.group(context.index)
    host = _host(context)
    _check_devices(context, device)
    forming = _First(context, host) if context.index == 0 else _Other(context)
    try:
        group = forming.meet(
            lambda store: TorchGroup(
                store,
                rank=context.index,
                size=context.config.ranks,
                device=device,
                host=host,
                within_s=_CONNECT_WITHIN_S,
            )
        )
        return forming.monitor.exit_status if group is None else group
    finally:
        forming.close()


class _Forming:
    """A rank that waits for the others, and tells the monitor that it lives.

    Attributes:
        attempt: number of the newest proposal of members that this rank has confirmed.
        failed: the newest attempt in which not all connected.
    """

    def __init__(self, context: RoleContext, endpoints: Mapping[str, str]) -> None:
        self.context, self.size = context, context.config.ranks
        self.card = rank_digests(context.config)
        self.monitor: MonitorClient = context.join(
            Heartbeat, endpoints, postpones=True, suffix="-ranks"
        )
        self._until = time.monotonic() + context.config.trainer.join_within_s
        self.attempt = self.failed = 0
        _LOGGER.info("event=waits_for_ranks rank=%d of=%d", context.index, self.size)

    def meet(self, connect: Callable[[Store], Group]) -> Group | None:
        """What `connect` makes once all ranks are there; None if the role was stopped.

        Args:
            connect: given a store of their own for all who connect; raises `RankLost`.
        """
        while not self.context.stop and self.monitor.stop_reason is None:
            self.monitor.tick()
            if (store := self.look()) is not None:
                try:
                    return connect(store)
                except RankLost as error:  # it has died since it confirmed, or hangs
                    self.failed = self.attempt
                    _LOGGER.warning("event=ranks_not_connected reason=%r", str(error))
                    continue
            if time.monotonic() > self._until:
                raise GroupError(
                    f"trainer.join_within_s: after {self.context.config.trainer.join_within_s:g} s "
                    f"{self.missing()} of the {self.size} trainers of this run; see its log, or "
                    "start it with `aclearn role trainer` and that --name"
                )
            time.sleep(_LOOK_EVERY_S)
        return None

    def look(self) -> Store | None:
        """One look at the store; once all members have confirmed, the part for their attempt."""
        raise NotImplementedError

    def _confirm(self, store: Store, attempt: int) -> Store | None:
        self.attempt = attempt
        store.set(_confirmed(attempt, self.context.index), "")
        if store.check([_confirmed(attempt, rank) for rank in range(self.size)]):
            return PrefixStore(f"{GROUP}/{attempt}", store)
        return None

    def missing(self) -> str:
        """Which rank is missing, in words."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the connection to the monitor, which goes on to know this rank for a while."""
        self.monitor.channel.close()


class _First(_Forming):
    """Rank 0: opens the store and compares the others with itself."""

    def __init__(self, context: RoleContext, host: str) -> None:
        listening = socket.create_server((host, 0))
        port = listening.getsockname()[1]
        self._store = TCPStore(
            host,
            port,
            None,
            True,
            timedelta(seconds=_STORE_WITHIN_S),
            False,
            master_listen_fd=listening.detach(),  # its own would listen at every address
        )
        self._refused: dict[int, str] = {}
        self._proposed: dict[int, str] = {}
        super().__init__(context, {GROUP: str(tcp_endpoint(host, port))})

    def look(self) -> Store | None:
        there = {0: self.context.incarnation}
        for rank in range(1, self.size):
            if (card := _read(self._store, _card(rank))) is None:
                continue
            differs = differing(card["digests"], self.card)
            if not differs:
                there[rank] = card["incarnation"]
                continue
            words = ", ".join(differs)
            self._refused[rank] = words
            _LOGGER.error("event=rank_refused rank=%d differs=%r", rank, words)
            self._store.set(_refusal(card["incarnation"]), words)
            self._store.delete_key(_card(rank))
        if len(there) < self.size:
            return None
        attempt = self.attempt
        if there != self._proposed or self.failed == attempt:
            attempt, self._proposed = attempt + 1, there
            self._store.set(_MEMBERS, json.dumps({"attempt": attempt, "incarnations": there}))
        return self._confirm(self._store, attempt)

    def missing(self) -> str:
        missing = []
        for rank in self._without(_card) or self._without(partial(_confirmed, self.attempt)):
            came = self._refused.get(rank)
            but = "" if came is None else f" (one came that differs in {came})"
            missing.append(f"{TRAINER.name}-{rank}{but}")
        return f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"

    def _without(self, key: Callable[[int], str]) -> list[int]:
        return [rank for rank in range(1, self.size) if not self._store.check([key(rank)])]


class _Other(_Forming):
    """A rank that finds rank 0's store through the monitor."""

    def __init__(self, context: RoleContext) -> None:
        super().__init__(context, {})
        self._store: TCPStore | None = None
        self._endpoint, self._unreachable = "", ""

    def look(self) -> Store | None:
        endpoints = [p.endpoints[GROUP] for p in self.monitor.peers if GROUP in p.endpoints]
        if not endpoints:
            return None
        try:
            if self._store is None or endpoints[0] != self._endpoint:
                self._endpoint = endpoints[0]
                self._store, self.failed = self._connected(self._endpoint), 0
            return self._look_into(self._store) if self._store is not None else None
        except RuntimeError as error:  # rank 0 is gone: its successor has another store
            self._store, self._unreachable = None, f"{self._endpoint}: {error}"
            return None

    def _look_into(self, store: TCPStore) -> Store | None:
        mine = self.context.incarnation
        if store.check([_refusal(mine)]):
            raise GroupError(
                f"{self.context.name} cannot learn with {TRAINER.name}-0: it differs in "
                f"{store.get(_refusal(mine)).decode()}; start it with the run's own configuration "
                "(its config.yaml) and the same version of aclearn"
            )
        members = _read(store, _MEMBERS)
        if members is None or members["attempt"] == self.failed:
            return None
        if members["incarnations"][str(self.context.index)] != mine:
            return None  # a predecessor's: rank 0 proposes again once it sees this one's card
        return self._confirm(store, members["attempt"])

    def _connected(self, endpoint: str) -> TCPStore | None:
        address = parse_endpoint(endpoint)
        try:  # the store itself would write a page about it into the log
            socket.create_connection((address.host, address.port), _STORE_WITHIN_S).close()
        except OSError as error:
            self._unreachable = f"{endpoint}: {error}"
            return None
        store = TCPStore(
            address.host, address.port, None, False, timedelta(seconds=_STORE_WITHIN_S)
        )
        card = {"incarnation": self.context.incarnation, "digests": self.card}
        store.set(_card(self.context.index), json.dumps(card))
        return store

    def missing(self) -> str:
        first = f"{TRAINER.name}-0"
        if self._store is not None:
            return f"{first} has found another one missing"
        if not self._endpoint:
            return f"{first} is missing"
        return (
            f"{first} cannot be reached at {self._unreachable}; it is missing, or trainers are on "
            "several machines, which takes network.plain_group: true"
        )


def _host(context: RoleContext) -> str:
    """The address at which the other ranks reach this one."""
    network = context.config.network
    if not network.plain_group:
        return "127.0.0.1"
    address = tcp_endpoint(network.announce_host or network.bind_host)
    return socket.gethostbyname(socket.gethostname() if address.is_wildcard else address.host)


def _check_devices(context: RoleContext, device: torch.device) -> None:
    there = torch.cuda.device_count()
    if device.type == "cuda" and not context.config.network.plain_group:
        ranks = context.config.ranks
        if there < ranks:
            raise ConfigError(
                f"trainer.processes: {ranks} ranks need a GPU each, and this machine has {there}; "
                f"set it (or resident.devices) to {there}, or the device to cpu"
            )


def _card(rank: int) -> str:
    return f"card/{rank}"


def _confirmed(attempt: int, rank: int) -> str:
    return f"confirmed/{attempt}/{rank}"


def _refusal(incarnation: str) -> str:
    return f"refused/{incarnation}"


def _read(store: TCPStore, key: str) -> dict[str, Any] | None:
    return json.loads(store.get(key)) if store.check([key]) else None
