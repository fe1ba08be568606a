"""One small message of each kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclearn import wire
from aclearn.types import EpisodeCohort, Unroll


def small_unroll() -> Unroll:
    """T = 3 steps, B = 2 environments, with every optional field.

    The leaf `screen` is a stack of two frames of 1x2x2; there is one reset, at t=2, b=1.
    """
    T, B = 3, 2
    return Unroll(
        generation=1,
        env_steps_before=60,
        env_steps_after=66,
        dropped={"fault": 2},
        observations={
            "screen": np.arange((T + 1) * B * 4, dtype=np.uint8).reshape(T + 1, B, 1, 2, 2),
            "joints": np.linspace(-1, 1, (T + 1) * B * 3, dtype=np.float32).reshape(T + 1, B, 3),
        },
        history={"screen": np.arange(B * 4, dtype=np.uint8).reshape(B, 1, 2, 2)},
        reset_index=np.array([2 * B + 1], np.int32),
        reset_history={"screen": np.zeros((1, 1, 2, 2), np.uint8)},
        actions=np.array([[0, 1], [2, 0], [1, 1]], np.int32),
        behaviour_log_prob=np.array([[-0.5, -1], [-1.5, -2], [0, -3]], np.float32),
        rewards=np.array([[0, 1], [-1, 0.5], [0, 0]], np.float32),
        terminated=np.array([[False, True], [False, False], [False, False]]),
        truncated=np.zeros((T, B), np.bool_),
        valid=np.array([[True, True], [True, False], [True, True]]),
        versions=np.array([7, 7, 8], np.int64),
        chains=["none", "int8>onnx"],
        chain_index=np.array([[0, 0], [1, 0], [1, 1]], np.int32),
        behaviour_parameters=np.linspace(-3, 3, T * B * 3, dtype=np.float32).reshape(T, B, 3),
        state=(np.ones((B, 4), np.float32), np.full((B, 2, 1), 0.5, np.float32)),
        masks=np.array([[[True, True, False], [False, True, True]], [[True] * 3] * 2] * 2),
        policy="red.team-1",
        actor=3,
        first_row=16,
    )


def samples_of_messages() -> dict[str, Any]:
    messages = [
        wire.NumberRequest("actor"),
        wire.Number(3),
        wire.Hello(
            *("actor", 0, "box", 4242, {"unrolls": "ipc:///tmp/t.sock"}),
            *("it was killed", 2, {"env.id": "0b6477aecfbf4beb"}, True),
        ),
        wire.Peers(
            3,
            [wire.Peer("trainer", "trainer-0", "ab12", {"unrolls": "tcp://127.0.0.1:5555"})],
            ["cd34"],
        ),
        wire.AllowedKeys([wire.AllowedKey("k" * 40, "rack7", ["actor"], False, 8, 50.0)]),
        wire.Heartbeat(
            counters={"env_steps": 640},
            gauges={"lag": 1.5},
            dropped={"lag": 20},
            waits={"actions": 0.25},
            episode_returns=[21.0, -3.5],
            episode_policies=["original", "mixed"],
            cohorts=[EpisodeCohort(1.5, 2, 17.5, 30, {"success": 1.0}, {"success": 2})],
            settled_s=2.0,
            clock_s=2.5,
            final=False,
            note="two\nlines",
            parts={"inference": 0.5, "total": 2.0},
            policies={
                "runner": wire.PolicyNumbers(
                    {"env_steps": 320},
                    {"entropy": 0.5},
                    {"lag": 20},
                    [2.0],
                    ["original"],
                    [EpisodeCohort(1.5, 1, 2.0, 15)],
                    1.0,
                )
            },
            actors={"runner": np.array([[97, 98], [99, 0]], np.uint8)},
            actor_steps={"runner": np.array([640, 2**40])},
        ),
        wire.HeartbeatReply(3),
        wire.MembershipReply("wait", "actor-0 lives"),
        wire.DirectiveMessage(
            7, "SetChain", {"rung": 1, "share": 0.25, "once": True, "why": "two\nlines"}
        ),
        wire.DirectiveAck(7, "SetChain: expected a rung from 0 to 1, got 2"),
        wire.StatusRequest(),
        wire.Status('{"env_steps": 640}'),
        wire.Action("a key", "SetChain", {"rung": 1}),
        wire.ActionReply("SetChain: expected a rung below 1"),
        small_unroll(),
        wire.UnrollReply(12, False, "duplicate"),
        wire.WeightsRequest(0, -1),
        wire.Weights(
            1,
            9,
            {"w": np.array([[1, 2, 3], [4, 5, 6]], np.float32), "b": np.array(0.5, np.float32)},
        ),
        wire.NoNewerWeights(),
        wire.JudgeRequest(0, -1),
        wire.WeightsToJudge(1, 9, 640, {"w": np.array([[1, 2], [3, 4]], np.float32)}),
        wire.Judgement(1, 9, 21.5),
        wire.JudgementReply(False),
        wire.ObservationsRequest(64),
        wire.RecentObservations(
            {"screen": np.zeros((2, 2, 2), np.uint8)},
            np.array([[True, False], [True, True]]),
            2,
            np.array([True, False]),
            (np.ones((1, 3), np.float32),),
        ),
        wire.ArtifactRequest(0, -1, "int8>onnx", uncompressed=True),
        wire.ArtifactReply(
            generation=1,
            version=9,
            chain="int8>onnx",
            original="ab" * 8,
            graph='{"precision": "int8"}',
            tensors={
                "policy.weight": np.array([[-127, 3], [0, 5]], np.int8),
                "policy.weight_scale": np.array(0.5, np.float32),
                "policy.input_zero": np.array(3, np.uint8),
                "policy.bias": np.array([7, -9], np.int32),
                "half": np.array([0.5], np.float16),
                "bf16": np.array([0x3F80], np.uint16),
            },
            probe_observations={"screen": np.zeros((1, 1, 2, 2), np.uint8)},
            probe_parameters=np.array([[0.5, -0.5]], np.float32),
            fidelity={"kl_mean": 0.25},
            latency_ms={"1": 0.125},
            min_action_prob=0.0,
            digest="cd" * 16,
        ),
        wire.ActRequest(
            5,
            {"joints": np.array([[0.5, -1, 2], [3, 4, 5]], np.float32)},
            within_s=1.5,
            state=(np.ones((2, 1), np.float32),),
        ),
        wire.ActCancel(5),
        wire.ActReply(
            5,
            1,
            9,
            np.array([2, 0], np.int32),
            np.array([-0.5, -1.5], np.float32),
            behaviour_parameters=np.array([[0, 1, 2], [3, 0, -1]], np.float32),
        ),
        wire.ErrorReply("bad_header", "3 bytes"),
    ]
    return {type(message).__name__: message for message in messages}
