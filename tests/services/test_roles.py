"""The table of roles: its entries for a configuration, and that no module has another one."""

from __future__ import annotations

import ast
import inspect
import pkgutil
from pathlib import Path

import pytest

import aclearn
import compress
import services
from aclearn.config import Config, config_from_yaml
from aclearn.views.flow import ORDER
from services import wiring
from services.roles import ROLES, WRITERS

_PACKAGES = [Path(package.__path__[0]) for package in (aclearn, compress, services)]
_RANKS = "trainer: {processes: 2}\nactors: {processes: 3}\n"
_CHAIN = "compressor: {chain: [int8, onnx], processes: 2}\n"
_JUDGES = "evaluator: {every_s: 60}\n"
_ASKS = "actors: {inference: predictor, processes: 3}\npredictor: {processes: 2, threads: 4}\n"


@pytest.mark.parametrize(
    ("settings", "processes", "without_torch"),
    [
        ("", [1, 1, 0, 0, 8, 0], {"monitor", "predictor", "actor", "evaluator"}),
        (_ASKS, [1, 1, 2, 0, 3, 0], {"monitor", "predictor", "actor", "evaluator"}),
        (_CHAIN, [1, 1, 0, 2, 8, 0], {"monitor", "predictor", "actor", "evaluator"}),
        ("actors: {runtime: torch}\n", [1, 1, 0, 0, 8, 0], {"monitor", "predictor", "evaluator"}),
        ("compressor: {chain: [int8, torchscript]}\n", [1, 1, 0, 1, 8, 0], {"monitor"}),
        (_RANKS, [1, 2, 0, 0, 3, 0], {"monitor", "predictor", "actor", "evaluator"}),
        (_JUDGES, [1, 1, 0, 0, 8, 1], {"monitor", "predictor", "actor", "evaluator"}),
    ],
)
def test_how_many_processes_a_configuration_needs_and_which_of_them_are_small(
    settings, processes, without_torch
) -> None:
    config = config_from_yaml("env: {id: CartPole-v1}\n" + settings)
    default = config_from_yaml("env: {id: CartPole-v1}").actors.processes
    expected = [default if count == 8 else count for count in processes]
    assert [spec.processes(config) for spec in ROLES.values()] == expected
    for spec in ROLES.values():
        assert (spec.processes(config) == 0) == (spec.unused(config) is not None)
    small = {name for name, spec in ROLES.items() if not spec.imports_torch(config)}
    assert small == without_torch


def test_trainers_have_fixed_numbers_and_clients_of_their_own() -> None:
    config = config_from_yaml("env: {id: CartPole-v1}\n" + _RANKS)
    trainer = ROLES["trainer"]
    assert [trainer.rank_for(client, config) for client in range(4)] == [
        *("trainer-0", "trainer-1", "trainer-0", "trainer-1")
    ]
    assert (trainer.fixed(config), ROLES["monitor"].fixed(config)) == (2, 1)
    assert ROLES["actor"].fixed(config) is None
    resident = config_from_yaml(
        "env: {id: CartPole-v1}\nresident: {envs: 8, devices: 3}\nactors: {}\n"
    )
    assert trainer.processes(resident) == trainer.fixed(resident) == 3


def test_names_of_a_tuned_role_are_free_for_others_beyond_the_most_that_the_tuner_may_start() -> (
    None
):
    config = config_from_yaml(
        "env: {id: CartPole-v1}\nactors: {processes: 2}\n"
        "tuner: {enabled: true, counts: [actors], max_actors: 5}\n"
    )
    assert ROLES["actor"].most_processes(config) == 5
    assert ROLES["actor"].processes(config) == 2
    assert ROLES["predictor"].most_processes(config) == config.predictor.processes


def test_every_entry_point_and_check_takes_a_context() -> None:
    for spec in ROLES.values():
        for name in (spec.entry_point, spec.check):
            if name:
                assert next(iter(inspect.signature(pkgutil.resolve_name(name)).parameters)) == (
                    "context"
                )
    assert WRITERS == ("monitor", "trainer")


def test_no_other_module_lists_the_roles() -> None:
    found = []
    for path in (path for folder in _PACKAGES for path in folder.rglob("*.py")):
        if path == Path(
            wiring.__file__
        ):  # rights by message: a new role has none until it is there
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            items = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", ())
            named = {item.value for item in items or () if isinstance(item, ast.Constant)}
            # some groups of the configuration have a role's name
            if named == set(ORDER):  # the way of the data, which a new role need not be on
                continue
            if len(named & ROLES.keys()) > 2 and not named <= Config.model_fields.keys():
                found.append(f"{path}:{node.lineno}")
    assert found == []
