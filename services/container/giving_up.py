"""The last words of a container that gives up: they end the run, which needs its role."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import zmq

from aclearn.config import Config
from aclearn.control import StopRun
from aclearn.errors import EndpointError
from aclearn.launch import StopFlag
from aclearn.wire import (
    Client,
    ClientKeys,
    DirectiveAck,
    DirectiveMessage,
    OwnKey,
    StatusRequest,
    ZmqTransport,
    connect_dealer,
    new_incarnation,
)
from services.role.context import own_key
from services.role.monitor_client import Sender
from services.roles import RoleSpec
from services.wiring import ENDPOINTS, SUPERVISOR

_LOGGER = logging.getLogger(__name__)

#: Seconds for the monitor to answer: it may be starting.
_ANSWERED_WITHIN_S = 60.0
#: Seconds from one request to the next.
_ASK_EVERY_S = 1.0
_LOOK_EVERY_S = 0.1


def end_run(
    spec: RoleSpec,
    config: Config,
    monitor: str,
    reason: str,
    stop: StopFlag,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Ask the monitor to end the run until it answers, as `aclearn train` does; at most a minute.

    That takes the supervisor's key, or the trainer's. The log says why if the run goes on.

    Args:
        stop: ends the wait for the answer.
    """
    incarnation = new_incarnation()
    with zmq.Context() as context:
        try:
            key = _key_that_ends(spec, config)
            if key is not None and not _ends(key):
                _LOGGER.error(
                    "event=run_not_ended roles=%s detail='the run goes on: this key cannot end it; "
                    "end it where the key of the supervisor or trainer is, or restart this role'",
                    ",".join(key.roles),
                )
                return
            keys = None if key is None else ClientKeys(key.pair, key.monitor_key)
            socket_ = connect_dealer(context, monitor, routing_id=incarnation.encode(), keys=keys)
        except EndpointError:
            return  # the role failed with the same error and reported it
        client = Client(ZmqTransport(socket_), str(config.run.name), incarnation)
        try:
            refusal = _asked_to_end(client, reason, stop, clock)
        finally:
            client.close(linger_s=1.0)
    if refusal:
        _LOGGER.error("event=run_not_ended detail=%r", refusal)


def _asked_to_end(
    client: Client, reason: str, stop: StopFlag, clock: Callable[[], float]
) -> str | None:
    """Why the run goes on; None once the monitor has agreed to end it, or `stop` is set."""
    send, until, next_ask = Sender(client, clock).send, clock() + _ANSWERED_WITHIN_S, clock()
    while not stop and (now := clock()) < until:
        # the first who asks for the status is the supervisor; a monitor may have started since
        if now >= next_ask and send(StatusRequest()):
            next_ask = now + _ASK_EVERY_S
            send(StopRun(reason).message())
        envelope = client.receive(_LOOK_EVERY_S)
        if envelope is not None and isinstance(answer := envelope.message, DirectiveAck):
            return answer.refusal or None
    return None if stop else "the monitor has not answered"


def _key_that_ends(spec: RoleSpec, config: Config) -> OwnKey | None:
    try:
        return own_key(config, SUPERVISOR)
    except EndpointError:  # this machine has the key of the role alone
        return own_key(config, spec.name)


def _ends(key: OwnKey) -> bool:
    return any(role in ENDPOINTS["monitor"].accepts[DirectiveMessage] for role in key.roles)
