"""The dashboard's pages, data and defences, asked in process."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from aclearn.runs.lock import lock_all
from services.dashboard.app import make_app
from services.dashboard.monitors import Monitors
from services.dashboard.run_index import RunIndex

_LINE = {
    "time_s": 4.0,
    "env_steps": 100,
    "learned_steps": 90,
    "updates": 3,
    "return_mean_100": 2.5,
    "lag_mean": 1.0,
    "lag_max": 2.0,
    "entropy": 0.7,
    "dropped_steps": {"lag": 10},
    "queue_fill": 0.5,
    "wait_share": {"trainer": {"unrolls": 0.1, "working": 0.9}},
}
_DECISION = {
    **{"time_s": 3, "verdict": "kept", "reason": "measured", "temperature": 0.0},
    **{"counts": {"actors": 2}, "kept": {"actors": 2}, "rate": 5.0, "baseline": None},
}
_TOKEN = "a-token-of-a-test"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        (tmp_path / "runs" / name / "logs").mkdir(parents=True)
        path = tmp_path / "runs" / name
        seed = "ab".index(name)
        (path / "config.yaml").write_text(f"run: {{target_return: 9, seed: {seed}}}\n")
        lines = [{"time_s": 1.0, "env_steps": 0, "learned_steps": 0}, _LINE]
        (path / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
        (path / "logs" / "actor-0.log").write_text("first\n<script>alert(1)</script>\n")
        (path / "tuner.jsonl").write_text(f'half"}}\n{json.dumps(_DECISION)}\n')
    return tmp_path / "runs"


def _client(
    runs: Path,
    *,
    host: str = "127.0.0.1",
    token: str | None = None,
    at: str = "127.0.0.1:8000",
    actions_token: str | None = None,
) -> tuple[TestClient, RunIndex]:
    index = RunIndex(runs, runs.parent / "store")
    while index.look():
        pass
    app = make_app(index, Monitors(), host=host, token=token, actions_token=actions_token)
    return TestClient(app, f"http://{at}", follow_redirects=False), index


def test_the_table_has_all_runs(runs: Path) -> None:
    client, _ = _client(runs)
    found = client.get("/api/runs").json()
    assert [(run["id"], run["return"], run["env_steps"]) for run in found["runs"]] == [
        ("a", 2.5, 100),
        ("b", 2.5, 100),
    ]
    assert list(found["axes"]) == ["env_steps", "time_s", "learned_steps"]


def test_a_run_has_flow_figures_decisions_charts_and_curves(runs: Path) -> None:
    client, _ = _client(runs)
    run = client.get("/api/run", params={"id": "a"}).json()
    assert [box["role"] for box in run["flow"]["boxes"]] == ["trainer"]
    assert run["flow"]["queues"] == {"training queue": 0.5}
    assert run["figures"]["Return"] == "2.50"
    assert run["progress"]["label"] == "return of 9, no mean yet"
    [decisions] = run["decisions"]
    assert decisions["rows"] == [["0:00:03", "kept", "actors 2", "actors 2", "5/s", "measured"]]
    titles = [chart["title"] for chart in run["charts"]]
    assert titles[-3:] == [
        "dropped steps by reason",
        "tuner's counts",
        "tuner's rates (per second)",
    ]
    assert run["curves"]["lines"]["dropped_steps/lag"] == [None, 10]
    assert run["dropped"] == "lag 10"
    assert run["compression"] == {}


def test_runs_of_equal_settings_are_one_curve_and_a_deleted_one_is_left_out(runs: Path) -> None:
    client, _ = _client(runs)
    query = {"run": ["a", "b", "gone"], "figure": "entropy", "axis": "learned_steps"}
    found = client.get("/api/compare", params=query).json()
    assert found["targets"] == []
    [line] = found["lines"]
    assert (line["note"], line["x"][-1]) == ("mean of 2 runs, 95 % interval", 90)
    each = client.get("/api/compare", params={**query, "each": "true"}).json()
    assert [(line["label"], line["x"], line["y"]) for line in each["lines"]] == [
        ("a", [90], [0.7]),
        ("b", [90], [0.7]),
    ]


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ({"run": ["a"] * 51}, "at most 50 runs at a time, got 51"),
        ({"run": ["a"], "figure": "<b>"}, "figure: expected one of return_mean_100, "),
        ({"run": ["a"], "axis": "weeks"}, "axis: of env_steps, "),
    ],
)
def test_a_comparison_of_too_many_runs_or_of_unknown_figures_is_refused(
    runs: Path, query: dict[str, list[str]], why: str
) -> None:
    client, _ = _client(runs)
    answer = client.get("/api/compare", params=query)
    assert answer.status_code == 400
    assert why in answer.json()["error"]
    assert "<b>" not in answer.text


def test_logs_are_text_as_they_stand(runs: Path) -> None:
    client, _ = _client(runs)
    answer = client.get("/api/logs", params={"id": "b"})
    assert answer.json() == {"actor-0": ["first", "<script>alert(1)</script>"]}
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("id", ["gone", "../a", "/etc", "<b>", ""])
def test_a_run_that_is_not_in_the_folder_is_not_found(runs: Path, id: str) -> None:
    client, _ = _client(runs)
    for path in ("/api/run", "/api/logs"):
        answer = client.get(path, params={"id": id})
        assert answer.status_code == 404
        assert answer.json() == {"error": "there is no such run; it may have been deleted"}


def test_a_run_deleted_while_it_is_shown_is_not_found(runs: Path) -> None:
    client, index = _client(runs)
    shutil.rmtree(runs / "a")
    # its files are gone, and the index does not know it yet
    assert client.get("/api/run", params={"id": "a"}).status_code == 200
    index.look()
    assert client.get("/api/run", params={"id": "a"}).status_code == 404


@pytest.mark.parametrize("path", ["/", "/api/runs", "/static/vendor/uPlot.min.css", "/nothing"])
def test_every_answer_has_the_headers_of_defence(runs: Path, path: str) -> None:
    client, _ = _client(runs)
    headers = client.get(path).headers
    parts = headers["content-security-policy"].split("; ")
    policy = dict(part.split(" ", 1) for part in parts)
    assert policy["script-src"] == policy["style-src"] == "'self'"
    assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    ("at", "status"),
    [
        ("127.0.0.1:8000", 200),
        ("localhost:8000", 200),
        ("[::1]:8000", 200),
        ("localhost", 200),
        ("evil.example:8000", 421),
        ("localhost.evil.example", 421),
        ("192.168.0.7:8000", 421),
        ("<script>", 421),
        ("", 421),
    ],
)
def test_a_hostile_host_is_refused_on_loopback(runs: Path, at: str, status: int) -> None:
    client, _ = _client(runs)
    answer = client.get("/api/runs", headers={"host": at})
    assert answer.status_code == status
    assert "<script>" not in answer.text


def test_pages_of_other_sites_and_changes_are_refused(runs: Path) -> None:
    client, _ = _client(runs)
    other = client.get("/api/runs", headers={"sec-fetch-site": "cross-site"})
    assert other.status_code == 403
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert client.request(method, "/api/runs").status_code == 405


def test_without_the_token_an_open_dashboard_shows_nothing(runs: Path) -> None:
    client, _ = _client(runs, host="0.0.0.0", token=_TOKEN, at="192.168.0.7:8000")
    assert client.get("/api/runs").status_code == 401
    assert client.get("/").headers["location"] == "/login"
    assert client.get("/login").status_code == 200
    link = {"sec-fetch-site": "cross-site"}  # a browser marks the redirected request too
    assert client.get("/", headers=link).headers["location"] == "/login"
    assert client.get("/login", headers=link).status_code == 200
    given = json.dumps({"token": _TOKEN})
    assert client.post("/login", content=given, headers=link).status_code == 403
    wrong = {"authorization": "Bearer another"}
    assert client.get("/api/runs", headers=wrong).status_code == 401
    right = {"authorization": f"Bearer {_TOKEN}"}
    assert client.get("/api/runs", headers=right).status_code == 200


def test_the_token_is_given_once_and_kept_in_a_cookie_that_scripts_cannot_read(runs: Path) -> None:
    client, _ = _client(runs, host="0.0.0.0", token=_TOKEN, at="192.168.0.7:8000")
    for body in ({"token": "another"}, {"token": 3}, {"token": "\ud800"}, [], None):
        assert client.post("/login", content=json.dumps(body)).status_code == 403
    assert client.post("/login", content=b"x" * 5000).status_code == 403
    long = json.dumps({"token": _TOKEN, "more": "x" * 5000})
    assert client.post("/login", content=long).status_code == 403
    no_cookie = client.get("/api/runs", headers={"cookie": "aclearn@8000=1"})
    assert no_cookie.status_code == 401
    answer = client.post("/login", json={"token": _TOKEN})
    assert answer.status_code == 200
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get("/api/runs").status_code == 200


def test_another_server_of_the_machine_that_gets_the_cookie_cannot_act_with_it(runs: Path) -> None:
    at = {"host": "0.0.0.0", "token": _TOKEN, "actions_token": _TOKEN}
    client, _ = _client(runs, at="192.168.0.7:8000", **at)
    client.post("/login", json={"token": _TOKEN})
    ((name, value),) = client.cookies.items()
    assert name == "aclearn_8000"
    assert value != _TOKEN
    bearer = {"authorization": f"Bearer {value}"}
    assert client.post("/api/actions", json=_ACTION, headers=bearer).status_code == 401
    client.cookies.clear()
    assert client.get("/api/runs", headers=bearer).status_code == 401
    for port, status in (("8000", 200), ("8001", 401)):
        other, _ = _client(runs, at=f"192.168.0.7:{port}", **at)
        other.cookies.set(name, value)
        assert other.get("/api/runs").status_code == status
        other.cookies.set(name, _TOKEN)
        assert other.get("/api/runs").status_code == 401


def test_a_token_in_an_address_is_refused_even_if_it_is_right(runs: Path) -> None:
    client, _ = _client(runs, host="0.0.0.0", token=_TOKEN, at="192.168.0.7:8000")
    right = {"authorization": f"Bearer {_TOKEN}"}
    answer = client.get("/api/runs", params={"token": _TOKEN}, headers=right)
    assert answer.status_code == 400
    assert "history" in answer.text
    assert _TOKEN not in answer.text


_ACTION = {"run": "a", "kind": "SetActors", "values": {"count": 2}}
_RIGHT = {"authorization": f"Bearer {_TOKEN}"}


def test_a_dashboard_that_only_reads_refuses_every_action(runs: Path) -> None:
    client, _ = _client(runs)
    answer = client.post("/api/actions", json=_ACTION, headers=_RIGHT)
    assert answer.status_code == 403
    assert answer.text == "refused: this dashboard only reads; start it with --allow-actions\n"
    assert client.get("/api/run", params={"id": "a"}).json()["acts"] is False


def test_an_action_needs_the_token_in_a_header(runs: Path) -> None:
    client, _ = _client(runs, actions_token=_TOKEN)
    client.cookies.set("aclearn_8000", _TOKEN)  # as a browser has it; no page of its own gives it
    assert client.post("/api/actions", json=_ACTION).status_code == 401
    wrong = {"authorization": "Bearer another"}
    assert client.post("/api/actions", json=_ACTION, headers=wrong).status_code == 401
    in_address = client.post("/api/actions", params={"token": _TOKEN}, json=_ACTION, headers=_RIGHT)
    assert in_address.status_code == 400
    assert client.get("/api/actions", headers=_RIGHT).status_code == 405
    other = {**_RIGHT, "sec-fetch-site": "cross-site"}
    assert client.post("/api/actions", json=_ACTION, headers=other).status_code == 403
    assert client.get("/api/runs").status_code == 200  # to read takes no token on loopback


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        (_ACTION, 409, "the run is not running: unfinished"),
        ({**_ACTION, "run": "../a"}, 404, "there is no such run"),
        ({**_ACTION, "run": "gone"}, 404, "there is no such run"),
        ({**_ACTION, "values": [2]}, 400, "expected run, kind and values"),
        ({"run": "a"}, 400, "expected run, kind and values"),
        ([], 404, "there is no such run"),
    ],
)
def test_an_action_that_cannot_be_is_refused_with_its_reason(
    runs: Path, body: object, status: int, why: str
) -> None:
    client, _ = _client(runs, actions_token=_TOKEN)
    answer = client.post("/api/actions", json=body, headers=_RIGHT)
    assert answer.status_code == status
    assert why in answer.json()["error"]


def test_a_deterministic_run_takes_no_actions_and_answers_nobody(runs: Path) -> None:
    (runs / "a" / "config.yaml").write_text("run: {deterministic: true}\n")
    with closing(lock_all(runs / "a")):
        client, _ = _client(runs, actions_token=_TOKEN)
        answer = client.post("/api/actions", json=_ACTION, headers=_RIGHT)
        assert answer.status_code == 409
        assert answer.json()["error"].startswith("refused: SetActors: a run with run.deterministic")
        told = client.get("/api/run", params={"id": "a"}).json()["monitor"]
    assert told["words"].startswith("a run with run.deterministic is one process")
    assert told["actions"] == {}


def test_a_live_run_of_a_folder_without_monitor_is_shown_from_its_files(runs: Path) -> None:
    with closing(lock_all(runs / "a")):
        client, index = _client(runs, actions_token=_TOKEN)
        answer = client.post("/api/actions", json=_ACTION, headers=_RIGHT)
        assert answer.status_code == 409
        assert "no monitor has said in the run folder where" in answer.json()["error"]
        run = client.get("/api/run", params={"id": "a"}).json()
        assert run["monitor"]["words"].endswith("this is what the files say")
        assert run["flow"]["boxes"][0]["processes"] is None
    index.look()
    assert client.get("/api/run", params={"id": "a"}).json()["monitor"] is None
