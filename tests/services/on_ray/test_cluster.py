"""Clusters that cannot be used, and nodes that join, leave or have other versions."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from aclearn.errors import ConfigError
from aclearn.launch import StopFlag
from services.on_ray import cluster as module
from services.on_ray.cluster import RayCluster, differing, open_cluster
from services.on_ray.host import versions

OURS = versions()


def test_ray_that_is_missing_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(ConfigError, match=r'not installed.*pip install "aclearn\[ray\]"'),
        open_cluster(StopFlag()),
    ):
        pass


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:.*ray start --head"),
        ("10.0.0.7", "no Ray cluster answers at 10.0.0.7"),
        ("ray://10.0.0.7:10001", "of a Ray client.*run the command on a node"),
    ],
)
def test_an_address_without_a_cluster_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, address: str, words: str
) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ConfigError, match=words), open_cluster(StopFlag()):
        pass


def test_a_difference_names_the_node_both_versions_and_the_command() -> None:
    assert differing("10.0.0.8", dict(OURS), OURS) is None
    sentence = differing("10.0.0.8", OURS | {"ray": "2.59.0"}, OURS)
    assert sentence is not None
    assert f"10.0.0.8 has ray 2.59.0 where this machine has ray {OURS['ray']}" in sentence
    assert f"pip install 'ray=={OURS['ray']}'" in sentence
    other = differing("10.0.0.8", {"ray": OURS["ray"], "Python": OURS["Python"]}, OURS)
    assert other is not None and "has aclearn missing where" in other


def test_a_program_s_own_connection_is_used_and_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = Scripted()
    ray.living, ray.has = ["a"], {"a": OURS}
    monkeypatch.setattr(module, "import_ray", lambda: ray)
    with open_cluster(StopFlag()) as cluster:
        assert [node.id for node in cluster.nodes()] == ["a"]
    assert not ray.ended


class Lost(Exception):
    pass


class Scripted:
    """The module `ray` with nodes as scripted; a node answers with its entry in `has`."""

    def __init__(self) -> None:
        self.living: list[str] = []
        self.has: dict[str, Any] = {}
        self.util = SimpleNamespace(get_node_ip_address=lambda: "10.0.0.1")
        self.exceptions = SimpleNamespace(RayError=Lost)
        self.ended = False

    def is_initialized(self) -> bool:
        return True

    def shutdown(self) -> None:
        self.ended = True

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: "a")

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {
                "NodeID": name,
                "Alive": name in self.living,
                "NodeManagerAddress": f"ip-{name}",
                "Resources": {"CPU": 2.0},
                "Labels": {},
            }
            for name in ("a", "b", "c")
        ]

    def remote(self, function: Any) -> Any:
        return SimpleNamespace(
            options=lambda **given: SimpleNamespace(
                remote=lambda: given["label_selector"][module.NODE_ID]
            )
        )

    def wait(self, calls: list[str], timeout: float) -> tuple[list[str], list[str]]:
        return [each for each in calls if each in self.has], []

    def get(self, call: str) -> Any:
        if isinstance(self.has[call], Exception):
            raise self.has[call]
        return self.has[call]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(
        module,
        "time",
        SimpleNamespace(
            monotonic=lambda: clock.now, sleep=lambda s: setattr(clock, "now", clock.now + 10.0)
        ),
    )
    return clock


def _ids(cluster: RayCluster, clock: SimpleNamespace) -> list[str]:
    clock.now += 2.0
    return sorted(node.id for node in cluster.nodes())


def test_a_node_that_joins_takes_part_once_it_has_said_the_same_versions(
    clock: SimpleNamespace,
) -> None:
    ray = Scripted()
    ray.living, ray.has = ["a"], {"a": OURS}
    cluster = RayCluster(ray)
    cluster.check_nodes(StopFlag())
    assert _ids(cluster, clock) == ["a"]
    ray.living += ["b", "c"]
    assert _ids(cluster, clock) == ["a"]
    ray.has |= {"b": OURS, "c": OURS | {"ray": "2.59.0"}}
    assert _ids(cluster, clock) == ["a", "b"]
    [note] = cluster.notes
    assert "ip-c has ray 2.59.0" in note
    assert _ids(cluster, clock) == ["a", "b"] and len(cluster.notes) == 1
    ray.living.remove("b")
    assert _ids(cluster, clock) == ["a"]
    assert cluster.notes[1:] == ["the node ip-b has left the cluster"]


@pytest.mark.parametrize(
    ("has", "words"),
    [
        ({"a": OURS, "b": OURS | {"Python": "3.9"}}, "ip-b has Python 3.9 where"),
        (
            {"a": OURS, "b": Lost("Traceback\nModuleNotFoundError: No module named 'services'")},
            "ip-b cannot run aclearn .*No module named 'services'.*pip install",
        ),
        ({"a": OURS}, "no process started within 120 s on ip-b"),
    ],
)
def test_a_run_does_not_begin_with_a_node_that_cannot_take_part(
    clock: SimpleNamespace, has: dict[str, Any], words: str
) -> None:
    ray = Scripted()
    ray.living, ray.has = ["a", "b"], has
    with pytest.raises(ConfigError, match=words):
        RayCluster(ray).check_nodes(StopFlag())
