"""A Ray cluster as this project uses it: its nodes, their versions, and actors that Ray places.

Ray places processes and reports lost ones. It neither restarts them nor carries their data.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from aclearn.errors import ConfigError
from aclearn.launch import StopFlag
from services.on_ray.host import Order, ProcessHost, versions
from services.on_ray.room import Need, Node

_LOGGER = logging.getLogger(__name__)

ADDRESS_VARIABLE: Final = "RAY_ADDRESS"
NODE_ID: Final = "ray.io/node-id"
#: Of the actors of every driver of ours.
NAMESPACE: Final = "aclearn"
#: Seconds for a connection to the cluster's head.
_CONNECT_WITHIN_S: Final = 5.0
#: Seconds for the first process on a node, which loads libraries.
_ANSWER_WITHIN_S: Final = 120.0
_LOOK_EVERY_S: Final = 0.1
#: Seconds between two looks at the list of nodes.
_NODES_EVERY_S: Final = 2.0


def import_ray() -> Any:
    """The module `ray`.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ConfigError(
            "--on ray: Ray is not installed; install it on every node with "
            'pip install "aclearn[ray]", or leave --on out to run on this machine'
        ) from error


@contextmanager
def open_cluster(stop: StopFlag) -> Iterator[RayCluster]:
    """The cluster of RAY_ADDRESS, else one that runs on this machine, else a new one of it alone.

    A program that has called `ray.init` keeps its cluster. Otherwise the end of this context ends
    every process of this driver there, and a new cluster.

    Raises:
        ConfigError: Ray is missing, cannot be reached, or has other versions on a node.
    """
    ray = import_ray()
    if ray.is_initialized():  # by the program that calls us; its end is its own
        cluster = RayCluster(ray)
        cluster.check_nodes(stop)
        yield cluster
        return
    address = os.environ.get(ADDRESS_VARIABLE) or None
    _check_address(address)
    before = signal.getsignal(signal.SIGTERM)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a new cluster tells nobody of itself
    _log_messages(importlib.import_module("ray._private.worker"))
    try:
        ray.init(
            address=address,
            namespace=NAMESPACE,
            log_to_driver=False,
            logging_level=logging.ERROR,
            include_dashboard=False,
        )
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise _not_connected(address, error, versions()) from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)  # ray.init puts one there that ends the process
    try:
        cluster = RayCluster(ray)
        cluster.check_nodes(stop)
        yield cluster
    finally:
        ray.shutdown()


def _check_address(address: str | None) -> None:
    """Raise `ConfigError` for an address that cannot be a cluster's, without Ray's long wait."""
    if address is None or address in ("auto", "local"):
        return
    if "://" in address:
        raise ConfigError(
            f"{ADDRESS_VARIABLE}: {address} is of a Ray client, whose machine is no node of the "
            "cluster; run the command on a node and give its head as HOST:6379"
        )
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_WITHIN_S).close()
    except (OSError, ValueError, OverflowError) as error:
        raise ConfigError(
            f"{ADDRESS_VARIABLE}: no Ray cluster answers at {address} ({error}); start its head "
            "with `ray start --head --port=6379` and give HOST:6379, or unset the variable for a "
            "cluster of this machine alone"
        ) from error


def _not_connected(address: str | None, error: Exception, ours: dict[str, str]) -> ConfigError:
    where = address or "this machine"
    said = " ".join(str(error).split())
    if "ersion mismatch" in said:
        return ConfigError(
            f"--on ray: the cluster at {where} has another Ray or Python ({said}); every node "
            f"needs Python {ours['Python']} and pip install 'ray=={ours['ray']}'"
        )
    return ConfigError(
        f"--on ray: cannot connect to the Ray cluster at {where} ({said}); `ray status` there "
        f"says whether it runs, `ray start --address=HEAD:6379` makes this machine a node of it, "
        "and a cluster with a token takes RAY_AUTH_MODE=token and its ~/.ray/auth_token here. "
        f"Without {ADDRESS_VARIABLE} a cluster of this machine alone is started"
    )


def _log_messages(worker: Any) -> None:
    """Log what Ray says about nodes and processes: it would print it between the console's lines.

    `log_to_driver=False` keeps only the workers' output away.
    """

    def log(data: dict[str, Any], ignore_prefix: bool = False) -> None:
        text = " ".join(map(str, data["lines"])).partition("\n")[0]
        _LOGGER.info("event=ray_says text=%r", text[:300])

    worker.print_to_stdstream = log


class RayCluster:
    """The nodes with our versions, and actors on them.

    Attributes:
        here: id of the node of this process.
        address: of that node.
        lost: exceptions of calls whose actor or node is gone.
        notes: sentences for the console, to be taken away.
    """

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self.here: str = ray.get_runtime_context().get_node_id()
        self.address: str = ray.util.get_node_ip_address()
        self.lost: tuple[type[Exception], ...] = (ray.exceptions.RayError,)
        self.notes: list[str] = []
        self._versions = versions()
        self._asked: dict[str, tuple[Node, Any]] = {}
        self._good: dict[str, Node] = {}
        self._bad: set[str] = set()
        self._looked_at = float("-inf")

    def check_nodes(self, stop: StopFlag) -> None:
        """Ask every node for its versions.

        Raises:
            ConfigError: one has others, or does not answer; names it.
        """
        self._ask_new()
        deadline = time.monotonic() + _ANSWER_WITHIN_S
        while self._asked and not stop:
            if sentences := self._judge_answers():
                raise ConfigError("\n".join(sentences))
            if time.monotonic() > deadline:
                silent = ", ".join(node.address for node, _ in self._asked.values())
                raise ConfigError(
                    f"--on ray: no process started within {_ANSWER_WITHIN_S:g} s on {silent}; "
                    "`ray status` says whether the node lives; end it there with `ray stop`"
                )
            time.sleep(_LOOK_EVERY_S)

    def nodes(self) -> list[Node]:
        """The living nodes with our versions; one that has joined is asked for them first."""
        now = time.monotonic()
        if now - self._looked_at >= _NODES_EVERY_S:
            self._looked_at = now
            self._ask_new()
            self.notes += self._judge_answers()
        return list(self._good.values())

    def _ask_new(self) -> None:
        living = {each["NodeID"]: each for each in self._ray.nodes() if each["Alive"]}
        for gone in self._good.keys() - living.keys():
            self.notes.append(f"the node {self._good.pop(gone).address} has left the cluster")
        self._asked = {node: asked for node, asked in self._asked.items() if node in living}
        for name in living.keys() - self._good.keys() - self._asked.keys() - self._bad:
            has = living[name]["Resources"]
            node = Node(
                name,
                living[name]["NodeManagerAddress"],
                has.get("CPU", 0.0),
                has.get("GPU", 0.0),
                living[name].get("Labels", {}),
            )
            ask = self._ray.remote(versions).options(
                num_cpus=0, max_retries=0, label_selector={NODE_ID: name}
            )
            self._asked[name] = (node, ask.remote())

    def _judge_answers(self) -> list[str]:
        """Admit nodes that have answered; a sentence on each that has other versions."""
        sentences: list[str] = []
        for name, (node, answer) in list(self._asked.items()):
            ready, _ = self._ray.wait([answer], timeout=0)
            if not ready:
                continue
            del self._asked[name]
            try:
                sentence = differing(node.address, self._ray.get(answer), self._versions)
            except self.lost as error:
                said = str(error).strip().splitlines()[-1]
                sentence = (
                    f"--on ray: the node {node.address} cannot run aclearn ({said}); install "
                    f'there pip install "aclearn[ray]", from the same source as here'
                )
            if sentence is None:
                self._good[name] = node
            else:
                self._bad.add(name)
                sentences.append(sentence)
        return sentences

    def start(self, order: Order, need: Need, *, detached_as: str | None = None) -> Any:
        """An actor with this process, once Ray has found a node with our versions for it.

        Args:
            detached_as: name under which it outlives this driver, or is found if it has outlived
                another one; None for one that ends with this driver.
        """
        if detached_as is not None:
            with contextlib.suppress(ValueError):  # there is none
                return self._ray.get_actor(detached_as, namespace=NAMESPACE)
        options: dict[str, Any] = {
            "num_cpus": need.num_cpus,
            "num_gpus": need.num_gpus,
            "max_restarts": 0,  # who restarts counts restarts, too
            "max_task_retries": 0,
            "max_concurrency": 4,  # a signal passes by a look that waits
            "scheduling_strategy": "SPREAD",
            "label_selector": {NODE_ID: self._among(need), **need.labels},
        }
        if detached_as is not None:
            options |= {"name": detached_as, "namespace": NAMESPACE, "lifetime": "detached"}
        return self._ray.remote(ProcessHost).options(**options).remote(order)

    def _among(self, need: Need) -> str:
        return need.node_id or f"in({','.join(self._good)})"

    def named(self, prefix: str) -> list[str]:
        """Names of the detached actors that begin with `prefix`."""
        found = self._ray.util.list_named_actors(all_namespaces=True)
        names = (each["name"] for each in found if each["namespace"] == NAMESPACE)
        return sorted(name for name in names if name.startswith(prefix))

    def end_named(self, name: str) -> None:
        """Kill a detached actor, if it is still there."""
        with contextlib.suppress(ValueError):
            self.end(self._ray.get_actor(name, namespace=NAMESPACE))

    def ready(self, call: Any) -> bool:
        """Whether a call has been answered, or never will be."""
        return bool(self._ray.wait([call], timeout=0)[0])

    def answer(self, call: Any, timeout_s: float = 0.0) -> Any:
        """The answer of a call.

        Raises:
            Exception: one of `lost`.
        """
        return self._ray.get(call, timeout=timeout_s)

    def end(self, actor: Any) -> None:
        """Kill an actor, which frees what it took; its process follows within seconds."""
        with contextlib.suppress(*self.lost):
            self._ray.kill(actor)


def differing(address: str, theirs: dict[str, str], ours: dict[str, str]) -> str | None:
    """What a node must have otherwise, as a sentence; None if its versions are ours."""
    words = [
        f"{name} {theirs.get(name, 'missing')} where this machine has {name} {version}"
        for name, version in ours.items()
        if theirs.get(name) != version
    ]
    if not words:
        return None
    return (
        f"--on ray: the node {address} has {', and '.join(words)}; install the same there "
        f"(pip install 'ray=={ours['ray']}', aclearn from the same source) and start Ray again"
    )


def unplaced_words(unplaced: Sequence[Need], nodes: Sequence[Node]) -> str:
    """What no node has room for, and what the nodes have."""
    return (
        f"{'; '.join(need.words for need in unplaced)}; the nodes have "
        f"{'; '.join(node.words for node in nodes) or 'nothing'}"
    )
