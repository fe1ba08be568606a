"""What stands before every page: the `Host` check, the token, and headers of defence."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from typing import Final

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Paths that need no token: how to give one, and what that page is made of.
LOGIN: Final = "/login"
#: Path of users' actions.
ACTIONS: Final = "/api/actions"
_OPEN: Final = (LOGIN, "/static/")
_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Refuses requests of other sites and without the token; adds the headers to every answer.

    Args:
        hosts: names that `Host` may have besides `localhost`; a foreign name that leads to this
            machine (DNS rebinding) is refused.
        addresses: whether `Host` may be any IP address, as where the server listens on all.
        token: that every request must have, as `Authorization: Bearer` or by the cookie of
            `cookie_of`; None where only this machine reaches the server.
        actions_token: that an action must have as `Authorization: Bearer`, never in a cookie;
            None: there are no actions.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Iterable[str],
        addresses: bool,
        token: str | None,
        actions_token: str | None,
    ) -> None:
        self._app, self._token, self._actions_token = app, token, actions_token
        self._hosts = {"localhost", *(host.lower() for host in hosts)}
        self._addresses = addresses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        answer = self._refusal(scope) or self._app
        await answer(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers, path = Headers(scope=scope), str(scope["path"])
        if not self._is_ours(headers.get("host", "")):
            return _refused(421, "the Host header names another machine; use the printed address")
        # a link may lead to the page, which sends to the login without a token
        is_page = scope["method"] in ("GET", "HEAD") and path in ("/", LOGIN)
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and not is_page:
            return _refused(403, "a page of another site asks; open the printed address instead")
        if "token" in QueryParams(scope["query_string"]):
            return _refused(
                400, f"a token in an address stays in the browser's history; give it at {LOGIN}"
            )
        if path == ACTIONS:
            return self._refusal_of_action(scope["method"], headers)
        if scope["method"] not in ("GET", "HEAD") and path != LOGIN:
            return _refused(405, "this dashboard only reads")
        if self._token is None or path.startswith(_OPEN) or self._is_known(headers):
            return None
        if path == "/":
            return RedirectResponse(LOGIN, status_code=303)
        return _refused(401, f"a token is needed; give it at {LOGIN}, or as Authorization: Bearer")

    def _refusal_of_action(self, method: str, headers: Headers) -> Response | None:
        if method != "POST":
            return _refused(405, "actions are sent with POST")
        if self._actions_token is None:
            return _refused(403, "this dashboard only reads; start it with --allow-actions")
        if not is_token(_bearer(headers), self._actions_token):
            return _refused(
                401, "an action needs the printed token in the header Authorization: Bearer"
            )
        return None

    def _is_ours(self, host: str) -> bool:
        name = host.lower().rpartition(":")[0] if _has_port(host) else host.lower()
        name = name.removeprefix("[").removesuffix("]")
        if name in self._hosts:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return self._addresses or address.is_loopback

    def _is_known(self, headers: Headers) -> bool:
        if self._token is None or is_token(_bearer(headers), self._token):
            return True
        name, value = cookie_of(self._token, headers.get("host", ""))
        return is_token(_cookie(headers.get("cookie", ""), name), value)


def is_token(given: str, token: str | None) -> bool:
    """Whether this is the token; compared in constant time."""
    if token is None:
        return False
    return hmac.compare_digest(given.encode(errors="surrogatepass"), token.encode())


def cookie_of(token: str, host: str) -> tuple[str, str]:
    """Name and value of the cookie of a browser that has given the token.

    Browsers send it to every port of this machine, so that other servers may read it. It therefore
    lets its holder read and not act, and its name has the port of `Host`.
    """
    port = host.rpartition(":")[2] if _has_port(host) else "80"
    return f"aclearn_{port}", hmac.digest(token.encode(), b"cookie", "sha256").hex()


def names_of(host: str) -> list[str]:
    """The names by which a browser may reach a server at `host`."""
    return [host, socket.gethostname(), socket.getfqdn()] if is_open(host) else [host]


def is_open(host: str) -> bool:
    """Whether other machines can reach a server that listens at `host`."""
    if host == "localhost":
        return False
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return True


def _has_port(host: str) -> bool:
    return host.rpartition(":")[2].isdecimal() and not host.endswith("]")


def _bearer(headers: Headers) -> str:
    """What `Authorization: Bearer` has; "" without one."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return given if scheme.lower() == "bearer" else ""


def _cookie(text: str, name: str) -> str:
    try:
        found = SimpleCookie(text).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value


def _refused(status: int, why: str) -> Response:
    return PlainTextResponse(f"refused: {why}\n", status_code=status)
