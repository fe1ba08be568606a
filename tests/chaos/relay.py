"""A TCP relay between two roles, whose weather can be bad."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tests.support.system import free_port
from tests.support.waiting import DEADLINE_S

#: Roles listen here; where they say that they listen there are relays.
HERE, ANNOUNCED = "127.0.0.1", "127.0.0.2"

Kind = Literal["clear", "delay", "drop", "refuse", "cut_up", "cut_down", "slow", "drip", "mix"]
Way = Literal["up", "down"]

#: Bytes read at a time; seconds by which each is late; bytes a second of 1 Mbit/s.
_CHUNK, DELAY_S, SLOW_BYTES_PER_S = 16_384, 0.5, 125_000
#: Share of the chunks of which a byte is changed.
_MIXED_SHARE = 0.3


@dataclass(frozen=True)
class Weather:
    """What happens to bytes on their way.

    Attributes:
        kind: `delay`: each comes later. `drop`: they vanish, and with the end of the weather the
            connections too. `refuse`: connections are reset. `cut_up`, `cut_down`: those to the
            server, or to the client, wait for the end of the weather. `slow`: 1 Mbit/s. `drip`: one
            at a time. `mix`: some have another value.
        seed: of the bytes that are changed.
    """

    kind: Kind = "clear"
    seed: int = 0


class Relay:
    """Listens at one address and forwards each connection to another, in a thread of its own.

    Attributes:
        passed: number of bytes that it has delivered.
    """

    def __init__(self, listen: tuple[str, int], forward: tuple[str, int]) -> None:
        self.listen, self._forward = listen, forward
        self._weather, self._changed = Weather(), asyncio.Event()
        self._rng = random.Random()
        self._open: set[asyncio.StreamWriter] = set()
        self.passed = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)
        self._thread.start()
        self._server = self._wait_for(asyncio.start_server(self._meet, *listen))
        self.listen = self._server.sockets[0].getsockname()[:2]

    def set(self, weather: Weather) -> None:
        """Change the weather for the bytes that come from now on."""
        self._wait_for(self._set(weather))

    def close(self) -> None:
        """Reset every connection and end the thread."""
        self._wait_for(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        self._loop.close()

    def _wait_for(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)

    async def _set(self, weather: Weather) -> None:
        before, self._weather = self._weather.kind, weather
        self._rng.seed(weather.seed)
        self._changed.set()
        self._changed = asyncio.Event()
        if before == "drop" or weather.kind == "refuse":  # a stream with a gap cannot go on
            self._reset()

    async def _close(self) -> None:
        self._server.close()
        self._reset()
        mine = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in mine:
            task.cancel()
        await asyncio.gather(*mine, return_exceptions=True)

    def _reset(self) -> None:
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._weather.kind == "refuse":
            writer.transport.abort()
            return
        self._open.add(writer)
        there: asyncio.StreamWriter | None = None
        try:
            back, there = await asyncio.open_connection(*self._forward)
            self._open.add(there)
            pumps = [self._pump("up", reader, there), self._pump("down", back, writer)]
            tasks = [asyncio.ensure_future(pump) for pump in pumps]
            try:  # one end that closes takes the other along
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass  # nobody listens there yet, or the relay is closed
        finally:
            for each in (writer, there):
                if each is not None:
                    self._open.discard(each)
                    each.transport.abort()

    async def _pump(
        self, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                while self._weather.kind == f"cut_{way}":
                    await self._changed.wait()
                if self._weather.kind == "drop":
                    continue
                if self._weather.kind == "delay":
                    await asyncio.sleep(DELAY_S)
                elif self._weather.kind == "slow":
                    await asyncio.sleep(len(data) / SLOW_BYTES_PER_S)
                elif self._weather.kind == "mix":
                    data = self._mixed(data)
                size = 1 if self._weather.kind == "drip" else len(data)
                for first in range(0, len(data), size):
                    writer.write(data[first : first + size])
                    await writer.drain()
                self.passed += len(data)

    def _mixed(self, data: bytes) -> bytes:
        if self._rng.random() >= _MIXED_SHARE:
            return data
        changed = bytearray(data)
        changed[self._rng.randrange(len(changed))] ^= self._rng.randrange(1, 256)
        return bytes(changed)


@contextmanager
def relays(links: Sequence[str]) -> Iterator[tuple[dict[str, Relay], dict[str, int]]]:
    """A relay for each connection, and the ports of their two ends.

    Roles listen at `HERE` and announce `ANNOUNCED`, where the relays listen.
    """
    with ExitStack() as stack:
        found, ports = {}, {link: free_port() for link in links}
        for link, port in ports.items():
            found[link] = Relay((ANNOUNCED, port), (HERE, port))
            stack.callback(found[link].close)
        yield found, ports


#: What a relay can be told, beside `clear`.
WEATHERS = tuple(kind for kind in get_args(Kind) if kind != "clear")
