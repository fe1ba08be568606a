"""How ranks find each other: two processes' parts in threads, and a monitor that lists both."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.distributed as dist

from aclearn.config import Config
from aclearn.errors import ConfigError, GroupError
from aclearn.learning.ranks.torch_group import TorchGroup
from aclearn.wire import Heartbeat, Hello, Peer, Peers
from services.role.context import RoleContext
from services.trainer import forming
from services.trainer.forming import join_group
from tests.support.waiting import DEADLINE_S, patience, wait_for

_CPU = torch.device("cpu")


@pytest.fixture
def rank(roles) -> Iterator[Callable[..., RoleContext]]:
    """Makes the contexts of ranks; a thread answers them as a monitor does."""
    server, ended = (
        roles("monitor-0").serve_at(roles.monitor, (Hello, Heartbeat)),
        threading.Event(),
    )

    def monitor() -> None:
        peers: dict[str, Peer] = {}
        clients: set[bytes] = set()
        while not ended.is_set():
            for client, envelope in server.receive(0.02):
                hello = envelope.message
                if isinstance(hello, Hello):
                    name = f"{hello.role}-{hello.number}"
                    peers[name] = Peer(hello.role, name, envelope.incarnation, hello.endpoints, 0)
                    clients.add(client)
                    for each in clients:
                        server.send(each, Peers(len(peers), list(peers.values())))

    def make(index: int, **groups: Any) -> RoleContext:
        context = roles(f"trainer-{index}")
        given = context.config.model_dump(by_alias=True)
        given["trainer"] |= {"processes": 2, "join_within_s": 20.0, **groups.pop("trainer", {})}
        for name, values in groups.items():
            given[name] |= values
        context.config = Config.model_validate(given)
        return context

    with ThreadPoolExecutor(1) as pool:
        answering = pool.submit(monitor)
        yield make
        ended.set()
        answering.result(DEADLINE_S)


def _join(*contexts: RoleContext) -> list[Any]:
    """What `join_group` gives or raises for each."""

    def join(context: RoleContext) -> Any:
        try:
            group = join_group(context, _CPU)
            if isinstance(group, int):
                return group
            gathered = group.gather(torch.tensor([context.index]))
            group.close()
        except GroupError as error:
            return str(error)
        return [int(each) for each in gathered]

    with ThreadPoolExecutor(len(contexts)) as pool:
        return list(pool.map(join, contexts))


def test_two_ranks_find_each_other_on_loopback_alone(rank) -> None:
    assert _join(rank(0), rank(1)) == [[0, 1], [0, 1]]
    # what is of one machine may differ
    places = {"run": {"dir": "elsewhere"}, "supervisor": {"max_restarts": 3}}
    assert _join(rank(0), rank(1, **places)) == [[0, 1], [0, 1]]


def test_ranks_use_another_address_than_loopback_only_where_plain_connections_are_accepted(
    rank,
) -> None:
    # a loopback address too, in place of another machine's
    network = {"bind_host": "127.0.0.2"}
    first = rank(0, network=network)
    assert forming._host(first) == "127.0.0.1"
    plain = [rank(n, network={**network, "plain_group": True}) for n in (0, 1)]
    assert [forming._host(each) for each in plain] == ["127.0.0.2"] * 2
    assert _join(*plain) == [[0, 1], [0, 1]]
    # a rank that cannot reach the other's loopback address says what that takes
    other = rank(1, trainer={"join_within_s": 0.6})
    gone = Peer("trainer", "trainer-0", "x", {"group": "tcp://127.0.0.1:1"}, 0)
    waiting = forming._Other(other)
    waiting.monitor.peers = (gone,)
    assert waiting.look() is None
    assert "cannot be reached at tcp://127.0.0.1:1" in waiting.missing()
    assert "takes network.plain_group: true" in waiting.missing()
    waiting.close()


def test_a_rank_0_that_dies_while_another_connects_is_awaited_again(rank, monkeypatch) -> None:
    def reset(*_: Any, **__: Any) -> None:
        raise dist.DistNetworkError("connection reset")

    monkeypatch.setattr(forming, "TCPStore", reset)
    waiting = forming._Other(rank(1))
    with socket.create_server(("127.0.0.1", 0)) as dying:
        at = f"tcp://127.0.0.1:{dying.getsockname()[1]}"
        waiting.monitor.peers = (Peer("trainer", "trainer-0", "x", {"group": at}, 0),)
        assert waiting.look() is None
    assert f"cannot be reached at {at}: connection reset" in waiting.missing()
    waiting.close()


def test_nobody_connects_with_a_rank_that_died_after_it_came(rank, monkeypatch) -> None:
    first, connects = rank(0), []

    def connect(*arguments: Any, **options: Any) -> TorchGroup:
        connects.append(options["rank"])
        return TorchGroup(*arguments, **options)

    monkeypatch.setattr(forming, "TorchGroup", connect)
    with ThreadPoolExecutor(1) as pool:
        joined = pool.submit(_join, first)
        dead = forming._Other(rank(1))

        def store_of_rank_0() -> str | None:
            dead.monitor.tick()
            return next((p.endpoints["group"] for p in dead.monitor.peers if p.endpoints), None)

        store = dead._connected(wait_for(store_of_rank_0, "rank 0 has a store"))  # it comes
        wait_for(lambda: store.check(["members"]), "its group is proposed")
        dead.close()
        assert _join(rank(1)) == [[0, 1]] and joined.result(DEADLINE_S) == [[0, 1]]
    assert sorted(connects) == [0, 1]  # each once


def test_a_rank_that_dies_as_it_connects_costs_a_further_attempt(rank, monkeypatch) -> None:
    # short: the rank that stays waits so long for the dead one; the next must connect within it
    within_s = min(forming._CONNECT_WITHIN_S, 0.5 * patience())
    monkeypatch.setattr(forming, "_CONNECT_WITHIN_S", within_s)
    connects: list[int] = []

    def connect(*arguments: Any, **options: Any) -> TorchGroup:
        connects.append(options["rank"])
        if connects.count(1) == 1 and options["rank"] == 1:
            raise SystemExit  # its process ends
        return TorchGroup(*arguments, **options)

    monkeypatch.setattr(forming, "TorchGroup", connect)
    with ThreadPoolExecutor(2) as pool:
        joined = pool.submit(_join, rank(0))
        with pytest.raises(SystemExit):
            _join(rank(1))
        assert _join(rank(1)) == [[0, 1]] and joined.result(DEADLINE_S) == [[0, 1]]
    assert sorted(connects) == [0, 0, 1, 1]


@pytest.mark.parametrize("there", [0, 1])
def test_a_group_that_does_not_form_in_time_names_the_missing_rank(rank, there) -> None:
    [words] = _join(rank(there, trainer={"join_within_s": 0.6}))
    assert f"trainer-{1 - there} is missing" in words and "after 0.6 s" in words


def test_a_rank_with_another_configuration_is_refused_by_the_names_of_what_differs(rank) -> None:
    other = {"optimiser": {"learning_rate": 0.5}, "trainer": {"join_within_s": 3.0}}
    first, second = _join(rank(0, trainer={"join_within_s": 3.0}), rank(1, **other))
    assert "trainer-1 cannot learn with trainer-0: it differs in optimiser.learning_rate" in second
    assert "trainer-1 (one came that differs in optimiser.learning_rate) is missing" in first


def test_a_rank_with_other_code_is_refused(rank, monkeypatch) -> None:
    second, of_all = rank(1), forming.rank_digests

    def digests(config: Config) -> dict[str, str]:
        other = {"the code of aclearn": "other"} if config is second.config else {}
        return of_all(config) | other

    monkeypatch.setattr(forming, "rank_digests", digests)
    _, words = _join(rank(0, trainer={"join_within_s": 2.0}), second)
    assert "trainer-1 cannot learn with trainer-0: it differs in " in words
    assert "the code of aclearn" in words and "the same version of aclearn" in words


def test_a_rank_that_waits_for_others_can_be_stopped(rank) -> None:
    contexts = rank(0), rank(1)
    for context in contexts:
        context.stop.set("on purpose")
    assert _join(*contexts) == [1, 1]  # exit statuses


def test_ranks_on_one_machine_need_a_gpu_each(rank) -> None:
    with pytest.raises(ConfigError, match="2 ranks need a GPU each, and this machine has 0"):
        join_group(rank(0), torch.device("cuda"))
