"""The pages of the dashboard and their data."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

from sse_starlette.sse import EventSourceResponse
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from aclearn.control.directives import StopRun
from aclearn.errors import RunFolderError
from aclearn.views.run_state import RUNNING
from services.dashboard.charts import AXES
from services.dashboard.comparison import COMPARED, compare
from services.dashboard.guard import (
    ACTIONS,
    LOGIN,
    Guard,
    cookie_of,
    is_open,
    is_token,
    names_of,
)
from services.dashboard.monitor_view import DETERMINISTIC
from services.dashboard.monitors import ActionRefused, Monitors, act
from services.dashboard.run_index import IndexedRun, RunIndex
from services.dashboard.run_view import logs, run_view
from services.dashboard.searches import search_view

STATIC: Final = Path(__file__).parent / "static"
#: Seconds between two looks for a change to tell the page of.
_EVERY_S: Final = 1.0
#: Runs in one comparison at most.
_MOST_RUNS: Final = 50
_MOST_FORM_BYTES: Final = 4096
#: Why a run ends that a user stops.
_STOPPED: Final = "stopped by a user in the dashboard"


def make_app(
    index: RunIndex,
    monitors: Monitors,
    *,
    host: str,
    token: str | None,
    actions_token: str | None = None,
) -> Starlette:
    """The application: reads from `index` and `monitors`, and changes no file.

    Args:
        host: at which it will listen.
        token: that a reader needs; None for loopback only.
        actions_token: that an action needs; None: there are no actions.
    """
    pages = _Pages(index, monitors, token, acts=actions_token is not None)
    guard = Middleware(
        Guard,
        hosts=names_of(host),
        addresses=is_open(host),
        token=token,
        actions_token=actions_token,
    )
    return Starlette(
        routes=[
            Route("/", pages.page),
            Route("/api/runs", pages.runs),
            Route("/api/run", pages.run),
            Route("/api/logs", pages.logs),
            Route("/api/compare", pages.compare),
            Route("/api/search", pages.search),
            Route("/api/best", pages.best),
            Route("/api/events", pages.events),
            Route(ACTIONS, pages.act, methods=["POST"]),
            Route(LOGIN, pages.login_page, methods=["GET"]),
            Route(LOGIN, pages.login, methods=["POST"]),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        middleware=[guard],
    )


class _Pages:
    def __init__(
        self, index: RunIndex, monitors: Monitors, token: str | None, *, acts: bool
    ) -> None:
        self._index, self._monitors = index, monitors
        self._token, self._acts = token, acts

    async def page(self, request: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    async def login_page(self, request: Request) -> Response:
        return FileResponse(STATIC / "login.html")

    async def login(self, request: Request) -> Response:
        """A JSON object with the token gives a cookie that scripts cannot read."""
        given = (await _object_in(request)).get("token")
        token = self._token
        if token is None or not isinstance(given, str) or not is_token(given, token):
            return PlainTextResponse("refused: this is not the token\n", status_code=403)
        answer = PlainTextResponse("welcome\n")
        name, value = cookie_of(token, request.headers.get("host", ""))
        answer.set_cookie(name, value, httponly=True, samesite="strict")
        return answer

    async def runs(self, request: Request) -> Response:
        """The table of runs."""
        return JSONResponse(self._table())

    async def run(self, request: Request) -> Response:
        """What the page shows of one run."""
        run = self._named(request)
        if run is None:
            return _gone(request)
        told = self._monitors.look(run.path) if run.state == RUNNING else None
        view = await asyncio.to_thread(run_view, run, told)
        return JSONResponse({**view, "acts": self._acts})

    async def act(self, request: Request) -> Response:
        """Tell a running run what a user wants: its id, the directive's kind, and its values."""
        wanted = await _object_in(request)
        run = self._index.find(str(wanted.get("run", "")))
        kind, values = wanted.get("kind"), wanted.get("values", {})
        if run is None:
            return _gone(request)
        if not isinstance(kind, str) or not isinstance(values, dict):
            return _refused("expected run, kind and values: two names and a JSON object")
        if run.state != RUNNING:
            return _refused(f"the run is not running: {run.state}", 409)
        if run.setting("run", "deterministic") is True:
            return _refused(f"{kind[:64]}: {DETERMINISTIC}", 409)
        if kind == StopRun.__name__:
            values = {"reason": _STOPPED}
        try:
            await asyncio.to_thread(act, run.path, kind, values)
        except ActionRefused as error:
            return _refused(str(error), 409)
        return JSONResponse({"done": True})

    async def logs(self, request: Request) -> Response:
        """The newest lines of the logs of a run's roles."""
        run = self._named(request)
        return _gone(request) if run is None else JSONResponse(await asyncio.to_thread(logs, run))

    async def compare(self, request: Request) -> Response:
        """The curves of some runs; a deleted one is left out."""
        query = request.query_params
        ids, figure = query.getlist("run"), query.get("figure", next(iter(COMPARED)))
        axis = query.get("axis", next(iter(AXES)))
        if len(ids) > _MOST_RUNS:
            return _refused(f"at most {_MOST_RUNS} runs at a time, got {len(ids)}")
        if figure not in COMPARED or axis not in AXES:
            return _refused(
                f"figure: expected one of {', '.join(COMPARED)}; axis: of {', '.join(AXES)}"
            )
        found = [run for id in dict.fromkeys(ids) if (run := self._index.find(id)) is not None]
        each = query.get("each") == "true"
        return JSONResponse(await asyncio.to_thread(compare, found, figure, axis, each=each))

    async def search(self, request: Request) -> Response:
        """What the page shows of a sweep or a population."""
        return await self._searched(request, JSONResponse)

    async def best(self, request: Request) -> Response:
        """The best configuration of a sweep or a population, as a file to train from."""

        def file_of(view: dict[str, Any]) -> Response:
            if view["yaml"] is None:
                return _gone(request)
            headers = {"content-disposition": 'attachment; filename="best.yaml"'}
            return Response(view["yaml"], media_type="application/yaml", headers=headers)

        return await self._searched(request, file_of)

    async def _searched(
        self, request: Request, answer: Callable[[dict[str, Any]], Response]
    ) -> Response:
        id, kind = (request.query_params.get(name, "") for name in ("id", "kind"))
        for search in self._index.searches():
            if (search.id, search.kind) == (id, kind):
                break
        else:
            return _gone(request)
        inside = search.path != self._index.runs_dir
        try:
            return answer(await asyncio.to_thread(search_view, search, inside=inside))
        except RunFolderError as error:
            return JSONResponse({"error": str(error)}, status_code=409)

    async def events(self, request: Request) -> Response:
        """A message with the table each time that something has changed."""

        async def changes() -> AsyncIterator[dict[str, str]]:
            told = (-1, -1)
            while not await request.is_disconnected():
                revisions = (self._index.revision, self._monitors.revision)
                if revisions != told:
                    told = revisions
                    yield {"event": "runs", "data": json.dumps(self._table())}
                await asyncio.sleep(_EVERY_S)

        stream: Response = EventSourceResponse(changes())
        return stream

    def _table(self) -> dict[str, Any]:
        runs = self._index.runs()
        return {
            "dir": str(self._index.runs_dir),
            "revision": self._index.revision,
            "monitors": self._monitors.revision,
            "axes": AXES,
            "figures": COMPARED,
            "runs": [run.row() for run in runs],
            "searches": [search.row() for search in self._index.searches()],
        }

    def _named(self, request: Request) -> IndexedRun | None:
        return self._index.find(request.query_params.get("id", ""))


async def _object_in(request: Request) -> dict[str, Any]:
    """The JSON object in a request; {} if there is none, or it is too long."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _MOST_FORM_BYTES:
            return {}
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _refused(why: str, status: int = 400) -> Response:
    return JSONResponse({"error": f"refused: {why}"}, status_code=status)


def _gone(request: Request) -> Response:
    return JSONResponse(
        {"error": "there is no such run; it may have been deleted"}, status_code=404
    )
