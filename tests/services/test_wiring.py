"""The page of the wiring says what a run does: who connects to whom, sends what, obeys what."""

from __future__ import annotations

from pathlib import Path

import pytest

from aclearn.control import DIRECTIVES, Payload, StopRole
from aclearn.wire import ErrorReply, decode
from services.role.context import RoleContext
from services.roles import ROLES
from services.wiring import ENDPOINTS, QUESTIONS
from tests.support.whole_run import WholeRun
from tools import wiring_picture


def _role_of(name: str) -> str:
    return name.rpartition("-")[0]


@pytest.mark.parametrize("inference", ["local", "predictor"])
@pytest.mark.parametrize("ladder", [[], [["onnx"], []]], ids=["plain", "ladder"])
def test_a_run_is_wired_as_the_page_says(tmp_path: Path, monkeypatch, inference, ladder) -> None:
    obeyed: dict[str, set[type[Payload]]] = {}
    join = RoleContext.join

    def observed(context, *arguments, on=None, **options):
        obeyed[context.role] = set(on or {})
        return join(context, *arguments, on=on, **options)

    monkeypatch.setattr(RoleContext, "join", observed)
    run = WholeRun(tmp_path, actors={"inference": inference}, compressor={"ladder": ladder})
    network = run.network
    sent: set[tuple[str, str, type]] = set()

    def note(sender, receiver, frames) -> None:
        sent.add((_role_of(sender), _role_of(receiver), type(decode(frames).message)))

    run.faults.observe = note
    asked = {(q.role, q.endpoint) for q in QUESTIONS if q.asked(run._config)}
    living = {_role_of(name) for name in run.roles}
    expected = {pair for pair in asked if pair[0] in living}
    expected |= {(role, "monitor") for role in living - {"monitor"}}

    def connections() -> set[tuple[str, str]]:
        """Role of the client and name of the endpoint."""
        return {(_role_of(c.owner), c.address.rpartition("/")[2]) for c in network.clients.values()}

    run.run_until(lambda: connections() >= expected, "every client is connected")
    run.run_until(lambda: run.monitor.state.line.get("updates", 0) >= 3, "three updates")
    assert connections() == expected
    run.close()
    for sender, receiver, kind in sent - {m for m in sent if m[2] is ErrorReply}:
        ours = [e for e in ENDPOINTS.values() if e.role == receiver and kind in e.accepts]
        ours += [e for e in ENDPOINTS.values() if e.role == sender and kind in e.sends]
        assert ours, f"{sender} sends {kind.__name__} to {receiver}"
    for role in living:
        needs = ROLES[role].needs(run._config)
        assert set(needs) >= {ENDPOINTS[name].role for client, name in asked if client == role}
    by_role = {role: {kind for kind in DIRECTIVES if role in kind.roles} for role in obeyed}
    if inference == "predictor" or not ladder:
        by_role["actor"] = set()  # it has one policy
    assert obeyed == by_role and StopRole not in set().union(*obeyed.values())


def test_the_page_of_the_architecture_has_the_printed_picture() -> None:
    assert wiring_picture.PAGE.read_text("utf-8") == wiring_picture.page(), "make docs"
