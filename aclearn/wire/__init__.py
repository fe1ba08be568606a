"""Messages between roles: their types, codec, sockets, keys and channels."""

from __future__ import annotations

from aclearn.wire.admission import Admission, ClientKeys, ServerKeys
from aclearn.wire.channels import ChannelPoller, Client, Server
from aclearn.wire.codec import MAX_FRAME_BYTES, decode, encode
from aclearn.wire.connections import most_connections
from aclearn.wire.endpoints import (
    Endpoint,
    check_peer_address,
    claim_ipc_path,
    parse_endpoint,
    tcp_endpoint,
)
from aclearn.wire.in_process import InProcessNetwork
from aclearn.wire.key_ring import (
    LIST_FILE,
    WatchedList,
    add_key,
    create_keys,
    load_list,
    revoke_key,
    rotate_keys,
)
from aclearn.wire.keys import KeyPair, OwnKey, key_path, load_key, new_pair
from aclearn.wire.messages import (
    REPLY_WITHIN_S,
    ActCancel,
    ActReply,
    ActRequest,
    ArtifactReply,
    ArtifactRequest,
    Envelope,
    ErrorReply,
    Judgement,
    JudgementReply,
    JudgeRequest,
    Message,
    NoNewerWeights,
    ObservationsRequest,
    RecentObservations,
    UnrollReply,
    Weights,
    WeightsRequest,
    WeightsToJudge,
)
from aclearn.wire.monitor_messages import (
    Action,
    ActionReply,
    AllowedKey,
    AllowedKeys,
    DirectiveAck,
    DirectiveMessage,
    Heartbeat,
    HeartbeatReply,
    Hello,
    MembershipReply,
    Number,
    NumberRequest,
    Peer,
    Peers,
    PolicyNumbers,
    Status,
    StatusRequest,
)
from aclearn.wire.sockets import bind_router, connect_dealer, new_incarnation
from aclearn.wire.transport import Transport, ZmqTransport
