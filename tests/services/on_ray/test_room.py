from __future__ import annotations

import pytest

from services.on_ray.room import Need, Node, room_for

HEAD = Node("h", "10.0.0.1", 2.0, 1.0)
FAST = Node("f", "10.0.0.2", 4.0, labels={"pool": "cpu", "zone": "a"})
SPOT = Node("s", "10.0.0.3", 3.0, labels={"pool": "spot"})
NODES = [HEAD, FAST, SPOT]


@pytest.mark.parametrize(
    ("need", "count"),
    [
        (Need(1.0), 9),
        (Need(2.0), 1 + 2 + 1),
        (Need(0.5), 18),
        (Need(0.1), 90),  # not 89: rounding
        (Need(1.0, 0.5), 2),
        (Need(0.0, 0.5), 2),
        (Need(1.0, labels={"pool": "cpu"}), 4),
        (Need(1.0, labels={"pool": "!cpu"}), 2 + 3),
        (Need(1.0, labels={"pool": "in(cpu, spot)"}), 7),
        (Need(1.0, labels={"pool": "!in(cpu,spot)"}), 2),
        (Need(1.0, labels={"pool": "cpu", "zone": "b"}), 0),
        (Need(1.0, node_id="s"), 3),
    ],
)
def test_the_room_is_what_fits_on_each_node_alone(need: Need, count: int) -> None:
    assert room_for(need, NODES).count == count


def test_others_take_their_nodes_first_and_those_without_one_take_what_is_most_free() -> None:
    actor = Need(1.0)
    trainer, predictor = Need(2.0, node_id="h"), Need(3.0)
    assert room_for(actor, NODES, [(trainer, None), (predictor, None)]).count == 9 - 2 - 3
    # it runs on s, so only f has room for another one; without a node it would go to f
    assert room_for(predictor, NODES, [(predictor, "s")]).count == 1
    assert room_for(predictor, NODES, [(predictor, None)]).count == 1
    assert room_for(predictor, NODES, [(Need(2.0), "f"), (Need(2.0), "s")]).count == 0
    # a node that has left holds nothing here
    assert room_for(actor, NODES, [(predictor, "gone")]).count == 9


def test_what_no_node_has_room_for_is_named() -> None:
    large = Need(5.0, labels={"pool": "cpu"})
    room = room_for(Need(1.0), NODES, [(large, None), (Need(2.0), None)])
    assert (room.count, list(room.unplaced)) == (7, [large])
    assert large.words == "5 CPUs, pool: cpu" and HEAD.words == "10.0.0.1: 2 CPUs and 1 GPUs"
