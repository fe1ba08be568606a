"""What roles say to each other and how: typed messages, their codec, sockets, keys and channels."""

from __future__ import annotations

from aclearn.wire.channels import Client, Server
from aclearn.wire.codec import MAX_FRAMES, MAX_HEADER_BYTES, REASONS, decode, encode
from aclearn.wire.endpoints import Endpoint, parse_endpoint
from aclearn.wire.keys import ClusterKeys, create_keys, load_keys
from aclearn.wire.messages import (
    PROTOCOL_VERSION,
    ActReply,
    ActRequest,
    ArtifactReply,
    ArtifactRequest,
    Beat,
    BeatReply,
    Directive,
    Envelope,
    ErrorReply,
    Hello,
    Message,
    NoNewerWeights,
    ObservationsRequest,
    Peer,
    Peers,
    RecentObservations,
    Status,
    StatusRequest,
    StopRun,
    Unroll,
    UnrollReply,
    Weights,
    WeightsRequest,
)
from aclearn.wire.sockets import bind_router, connect_dealer, new_incarnation
from aclearn.wire.unrolls import check_unroll

__all__ = [
    "MAX_FRAMES",
    "MAX_HEADER_BYTES",
    "PROTOCOL_VERSION",
    "REASONS",
    "ActReply",
    "ActRequest",
    "ArtifactReply",
    "ArtifactRequest",
    "Beat",
    "BeatReply",
    "Client",
    "ClusterKeys",
    "Directive",
    "Endpoint",
    "Envelope",
    "ErrorReply",
    "Hello",
    "Message",
    "NoNewerWeights",
    "ObservationsRequest",
    "Peer",
    "Peers",
    "RecentObservations",
    "Server",
    "Status",
    "StatusRequest",
    "StopRun",
    "Unroll",
    "UnrollReply",
    "Weights",
    "WeightsRequest",
    "bind_router",
    "check_unroll",
    "connect_dealer",
    "create_keys",
    "decode",
    "encode",
    "load_keys",
    "new_incarnation",
    "parse_endpoint",
]
