from __future__ import annotations

from pathlib import Path

from aclearn.views.curve import Curve, Points
from aclearn.views.run_groups import group_runs


def _curve(path: str, **settings: str) -> Curve:
    settings = {key.replace("__", "."): value for key, value in settings.items()}
    return Curve(Path(path), Points([0.0], [0.0], [0.0], [1.0]), settings=settings)


def _labels(*curves: Curve) -> list[tuple[str, int]]:
    return [(group.label, len(group.curves)) for group in group_runs(curves)]


def test_a_label_has_the_keys_that_differ_the_environment_first_and_no_others() -> None:
    assert _labels(
        _curve("a-1", loss__kind="ppo", optimiser__rate="0.1", env__id="A", trainer__epochs="4"),
        _curve("a-2", loss__kind="ppo", optimiser__rate="0.1", env__id="A", trainer__epochs="4"),
        _curve("b", loss__kind="ppo", optimiser__rate="0.2", env__id="A", trainer__epochs="4"),
        _curve("c", loss__kind="ppo", optimiser__rate="0.3", env__id="B", trainer__epochs="4"),
    ) == [("env.id=A rate=0.1", 2), ("env.id=A rate=0.2", 1), ("env.id=B rate=0.3", 1)]


def test_keys_with_one_last_name_are_written_out_and_one_that_is_missing_is_named() -> None:
    assert _labels(
        _curve("a", actors__device="cpu", trainer__device="cpu"),
        _curve("b", actors__device="gpu", trainer__device="gpu", loss__clip="0.2"),
    ) == [
        ("actors.device=cpu trainer.device=cpu clip=(missing)", 1),
        ("actors.device=gpu trainer.device=gpu clip=0.2", 1),
    ]


def test_of_many_keys_so_many_are_shown_as_tell_all_groups_apart() -> None:
    many = {f"a__k{n}": "1" for n in range(9)}
    other = {key: "2" for key in many}
    assert _labels(_curve("a", **many), _curve("b", **other)) == [
        ("k0=1 k1=1 k2=1 k3=1 and 5 keys more", 1),
        ("k0=2 k1=2 k2=2 k3=2 and 5 keys more", 1),
    ]
    # each of six differs from the first in a key of its own
    six = [many, *({**many, f"a__k{n}": "2"} for n in range(6))]
    labels = [label for label, _ in _labels(*(_curve(str(n), **s) for n, s in enumerate(six)))]
    assert len(set(labels)) == 7 and labels[0] == "k0=1 k1=1 k2=1 k3=1 k4=1 k5=1"


def test_a_single_group_has_what_the_names_of_its_runs_have_in_common() -> None:
    same = {"loss__kind": "ppo"}
    assert _labels(_curve("runs/pong-1", **same), _curve("runs/pong-2", **same)) == [("pong", 2)]
    assert _labels(_curve("r/a", **same), _curve("r/b", **same)) == [("a and 1 more", 2)]
    seeds = [_curve(f"runs/pong-seeds-3/seed-{n}", **same) for n in (1, 2)]
    assert _labels(*seeds) == [("pong-seeds-3", 2)]


def test_a_run_without_a_configuration_is_alone_and_equal_names_are_told_apart_by_folders() -> None:
    assert _labels(_curve("x/pong-1"), _curve("y/pong-1"), _curve("pong-2", a="1")) == [
        ("x/pong-1", 1),
        ("y/pong-1", 1),
        ("pong-2", 1),
    ]
    alone = group_runs([_curve("a", k="1"), _curve("b", k="1")], each=True)
    assert [group.label for group in alone] == ["a", "b"]
