"""Roles in one process: contexts with real sockets, and stand-ins for their peers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from aclearn.config import Config, EnvConfig, MonitorConfig, RunConfig
from aclearn.policies import Architecture, Convolution, build_architecture
from aclearn.types import OBSERVATION, ObservationSpec, PolicyOutput, Unroll, UnrollSpec
from aclearn.wire import Heartbeat, Peer
from compress import RefusedTensors
from services.role.context import RoleContext, RunEnv
from tests.support.checked_swaps import swaps_checked
from tests.support.clock import Clock
from tests.support.env_specs import plain_spec
from tests.support.unrolls import quiet_unroll
from tests.support.waiting import DEADLINE_S, wait_for

IMAGES = build_architecture(
    "tiny", ObservationSpec.plain((2, 8, 8), "uint8"), 3, (Convolution(4, 4, 2),), (6,)
)
FLAT = build_architecture(
    "flat", ObservationSpec.plain((3,), "float32"), 4, (), (5,), "tanh", separate_value=True
)


class KnownPeers:
    """A membership's peers, set by hand."""

    def __init__(self) -> None:
        self.peers: tuple[Peer, ...] = ()
        self.revoked: frozenset[str] = frozenset()
        self.revision = -1

    def learn(self, *peers: Peer, revision: int | None = None) -> None:
        """Set the peers, as from the monitor."""
        self.peers = tuple(peers)
        self.revision = self.revision + 1 if revision is None else revision


class RecordingRuntime:
    """Records the weights that it loads; its output is the first tensor."""

    def __init__(self) -> None:
        self.swapped: list[dict[str, np.ndarray]] = []
        self.refuse = False
        self.on_swap: Callable[[], None] = lambda: None

    def load(self, tensors: dict[str, np.ndarray]) -> SimpleNamespace:
        self.on_swap()
        if self.refuse:
            raise RefusedTensors("weights['a']: not finite")
        self.swapped.append({name: np.array(tensor) for name, tensor in tensors.items()})
        [row] = self.swapped[-1].values()

        def step(observations, state=()):
            return PolicyOutput(np.tile(row, (len(observations[OBSERVATION]), 1)), state=state)

        return SimpleNamespace(step=step)


class KeptContext(RoleContext):
    """A context that keeps its channels open, including unused ones."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.channels: list[object] = []

    def serve(self, name, **options):
        server, endpoint = super().serve(name, **options)
        self.channels.append(server)
        return server, endpoint

    def serve_at(self, address, accepts, **options):
        server = super().serve_at(address, accepts, **options)
        self.channels.append(server)
        return server

    def connect(self, endpoint, suffix="", **options):
        client = super().connect(endpoint, suffix, **options)
        self.channels.append(client)
        return client


class Roles:
    """Makes role contexts in one directory; counts their names."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._contexts: list[RoleContext] = []
        self.monitor = f"ipc://{folder}/m.sock"

    def __call__(self, name: str, *, run: str = "run-1") -> RoleContext:
        role, _, index = name.partition("-")
        config = Config(
            run=RunConfig(name=run),
            env=EnvConfig(id="CartPole-v1"),
            monitor=MonitorConfig(heartbeat_every_s=0.05),
        )
        context = KeptContext(role, int(index), config, RunEnv(self.monitor))
        self._contexts.append(context)
        return context

    def close(self) -> None:
        for context in self._contexts:
            context.close()


@pytest.fixture(autouse=True)
def every_swap_is_checked(request: pytest.FixtureRequest) -> Iterator[None]:
    """After every swap the outputs are torch's for the new weights."""
    wrong = request.node.get_closest_marker("computes_wrongly") is not None
    with nullcontext() if wrong else swaps_checked():
        yield


@pytest.fixture
def roles(tmp_path: Path) -> Iterator[Roles]:
    """Makes role contexts, which are closed after the test."""
    roles = Roles(tmp_path)
    yield roles
    roles.close()


#: The condition must do the waiting or be quick.
wait_until = partial(wait_for, pause_s=0.0)


def next_message(server, meanwhile: Callable[[], object] = lambda: None):
    """The next (routing_id, envelope) of a server, calling `meanwhile` while there is none."""

    def look():
        meanwhile()
        return server.receive(0.01, limit=1)

    return wait_until(look, "a message comes")[0]


def nothing_comes(server, meanwhile: Callable[[], object] = lambda: None) -> bool:
    """Whether no message arrives within the time that one in flight would need."""
    for _ in range(5):
        meanwhile()
        if server.receive(0.01, limit=1):
            return False
    return True


def make_unroll(architecture: Architecture = FLAT, T: int = 3, B: int = 2, **changes) -> Unroll:
    """A well-formed unroll; images are stacks of two frames."""
    rng = np.random.default_rng(1)
    history = None
    if architecture is IMAGES:
        frames = rng.integers(0, 256, (T + 1, B, 1, 8, 8), np.uint8)
        history = rng.integers(0, 256, (B, 1, 8, 8), np.uint8)
    else:
        frames = rng.normal(size=(T + 1, B, 3)).astype(np.float32)
    fields = {
        "history": history,
        "actions": rng.integers(0, architecture.parameter_count, (T, B)).astype(np.int32),
        "behaviour_log_prob": np.full((T, B), -1.0, np.float32),
        "rewards": np.ones((T, B), np.float32),
    }
    return quiet_unroll(frames, **{**fields, **changes})


@pytest.fixture(scope="session")
def tools() -> SimpleNamespace:
    """All of this file by name (test files cannot import a conftest)."""
    return SimpleNamespace(
        Clock=Clock,
        KnownPeers=KnownPeers,
        RecordingRuntime=RecordingRuntime,
        images=IMAGES,
        flat=FLAT,
        image_unrolls=UnrollSpec(plain_spec((2, 8, 8), "uint8", 3, 2), 3, most_rows=64),
        flat_unrolls=UnrollSpec(plain_spec((3,), "float32", 4), 3, most_rows=64),
        wait_until=wait_until,
        next_message=next_message,
        nothing_comes=nothing_comes,
        make_heartbeat=Heartbeat,
        make_unroll=make_unroll,
        deadline_s=DEADLINE_S,
    )
