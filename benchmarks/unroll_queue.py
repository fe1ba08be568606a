"""Cost of one unroll from an actor to the trainer, beside a copy in memory.

    python benchmarks/unroll_queue.py [--config FILE] [--seconds 3] [--set key=value ...]

Two processes share one ipc connection. The sender encodes and sends, at most two unrolls ahead of
the replies; the receiver decodes and replies. Prints one JSON line, µs an unroll and an agent step,
and GB/s, of each piece:

* `encode`, `send`: the actor's thread makes the header and passes the frames to ZeroMQ.
* `receive`, `decode`: the trainer's thread takes the frames and makes arrays without a copy.
* `through`: wall time from one unroll to the next, with ZeroMQ's threads and the kernel.
* `memcpy`: one copy of as many bytes in memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zmq
from parts import collect_unrolls, make_env

from aclearn.config import load_config
from aclearn.types import Unroll
from aclearn.wire import UnrollReply, bind_router, connect_dealer, decode, encode, new_incarnation

_CONFIG = Path(__file__).resolve().parent.parent / "configs" / "pong_vtrace.yaml"
_RUN = "benchmark"
#: Unrolls in flight before the sender waits for a reply, as in a run.
_AHEAD = 2
_ANSWER_WITHIN_MS = 10_000
_RECEIVER_ENDS_WITHIN_S = 30.0
#: Unrolls sent before the measurement.
_WARM_UP = 20


class Stopwatch:
    """Time spent in named pieces of a loop, in seconds."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = 0.0

    def start(self) -> None:
        """Begin the next piece."""
        self._last = time.perf_counter()

    def lap(self, piece: str) -> None:
        """Add the time since the last call to `piece`."""
        now = time.perf_counter()
        self.seconds[piece] = self.seconds.get(piece, 0.0) + now - self._last
        self._last = now


def receive(address: str) -> None:
    """The trainer's end, until an empty message; prints each piece's seconds an unroll."""
    context: zmq.Context[Any] = zmq.Context()
    router, _ = bind_router(context, address)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    me, watch, taken = new_incarnation(), Stopwatch(), 0
    while router.poll(_ANSWER_WITHIN_MS):
        watch.start()
        frames = router.recv_multipart(copy=False)
        watch.lap("receive")
        routing_id, *parts = frames
        if len(parts) == 1:
            break
        envelope = decode(parts)
        watch.lap("decode")
        taken += 1
        if taken == _WARM_UP:
            watch.seconds.clear()
        reply = UnrollReply(envelope.sequence, True, "")
        answer = encode(reply, run=_RUN, incarnation=me, sequence=taken)
        router.send_multipart([routing_id.bytes, *answer], copy=False)
    context.destroy(linger=0)
    sys.stdout.write(json.dumps({k: s / (taken - _WARM_UP) for k, s in watch.seconds.items()}))


def send(address: str, unroll: Unroll, seconds: float) -> dict[str, float]:
    """The actor's end for `seconds`; returns seconds an unroll of each piece and of all."""
    context: zmq.Context[Any] = zmq.Context()
    dealer = connect_dealer(context, address, routing_id=new_incarnation().encode())
    dealer.setsockopt(zmq.SNDTIMEO, _ANSWER_WITHIN_MS)
    watch, sent, on_the_way = Stopwatch(), 0, 0
    started = 0.0
    while sent < 2 * _WARM_UP or time.perf_counter() - started < seconds:
        watch.start()
        parts = encode(unroll, run=_RUN, incarnation="benchmark", sequence=sent)
        watch.lap("encode")
        dealer.send_multipart(parts, copy=False)
        watch.lap("send")
        sent, on_the_way = sent + 1, on_the_way + 1
        while on_the_way >= _AHEAD:
            if not dealer.poll(_ANSWER_WITHIN_MS):
                raise TimeoutError(f"no reply from the receiver within {_ANSWER_WITHIN_MS} ms")
            dealer.recv_multipart(copy=False)
            on_the_way -= 1
        if sent == _WARM_UP:
            watch.seconds.clear()
            started = time.perf_counter()
    whole_s = time.perf_counter() - started
    dealer.send(b"")
    context.destroy(linger=1000)
    counted = sent - _WARM_UP
    return {k: s / counted for k, s in watch.seconds.items()} | {"through": whole_s / counted}


def memcpy_seconds(size: int, seconds: float = 0.5) -> float:
    """Seconds for an uncached copy of `size` bytes: each copy goes to another place."""
    places = np.zeros((max(2, 256_000_000 // size), size), np.uint8)
    places[:] = 1  # the pages exist
    copies, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        np.copyto(places[(copies + 1) % len(places)], places[copies % len(places)])
        copies += 1
    return (time.perf_counter() - started) / copies


def unroll_bytes(unroll: Unroll) -> int:
    """Bytes of an unroll's message."""
    parts = encode(unroll, run=_RUN, incarnation="benchmark", sequence=0)
    return sum(memoryview(part).nbytes for part in parts)


def measure(config: Path, overrides: Sequence[str], seconds: float) -> dict[str, Any]:
    """The output line: µs and GB/s of each piece.

    Raises:
        TimeoutError: the receiver does not reply.
        subprocess.CalledProcessError: the receiver failed; its traceback is on stderr.
    """
    loaded = load_config(config, overrides)
    env = make_env(loaded)
    (unroll,) = collect_unrolls(loaded, env, 1)
    env.close()
    with tempfile.TemporaryDirectory(prefix="acq-") as folder:
        address = f"ipc://{folder}/q"
        command = [sys.executable, __file__, "--receive", address]
        receiver = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert receiver.stdout is not None
            receiver.stdout.readline()
            pieces = send(address, unroll, seconds)
            printed, _ = receiver.communicate(timeout=_RECEIVER_ENDS_WITHIN_S)
        finally:
            receiver.kill()
            receiver.wait()
    pieces |= json.loads(printed)
    size = unroll_bytes(unroll)
    pieces["memcpy"] = memcpy_seconds(size)
    steps = int(unroll.valid.sum())
    return {
        "unroll_bytes": size,
        "steps": steps,
        "us": {piece: round(1e6 * s, 1) for piece, s in pieces.items()},
        "us_per_step": {piece: round(1e6 * s / steps, 3) for piece, s in pieces.items()},
        "gb_per_s": {piece: round(size / s / 1e9, 2) for piece, s in pieces.items()},
    }


def main() -> None:
    """Measure and print; with `--receive`, be the trainer's end."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, default=_CONFIG)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument(
        "--set", nargs="+", action="extend", default=[], metavar="key=value", dest="overrides"
    )
    parser.add_argument("--receive", metavar="ADDRESS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.receive:
        receive(options.receive)
        return
    figures = measure(options.config, options.overrides, options.seconds)
    sys.stdout.write(json.dumps({"name": "unroll-queue", **figures}) + "\n")


if __name__ == "__main__":
    main()
