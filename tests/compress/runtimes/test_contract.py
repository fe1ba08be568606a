"""The contract of a policy in ONNX Runtime: leaves, state and value by the names of a model."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from aclearn.types import zeroed
from compress.runtimes.onnx_runtime import OnnxExecutable


def _recurrent_session() -> onnxruntime.InferenceSession:
    """Two leaves and two states: state_0' = state_0 / 2 + position, state_1' = state_1 + 1."""

    def value(name, *shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", *shape])

    constants = [
        helper.make_tensor("half", TensorProto.FLOAT, [], [0.5]),
        helper.make_tensor("one", TensorProto.FLOAT, [], [1.0]),
        helper.make_tensor("last", TensorProto.INT64, [1], [1]),
    ]
    later = [value("next_state_0", 2)]
    nodes = [
        helper.make_node("Mul", ["state_0", "half"], ["faded"]),
        helper.make_node("Add", ["faded", "position"], ["next_state_0"]),
        helper.make_node("Add", ["state_1", "one"], ["next_state_1"]),
        helper.make_node("Add", ["next_state_0", "speed"], ["parameters"]),
        helper.make_node("ReduceSum", ["next_state_1", "last"], ["value"], keepdims=0),
    ]
    model = helper.make_model(
        helper.make_graph(
            nodes,
            "recurrent",
            # in an order on which no code may rely
            [value("state_1", 1), value("speed", 2), value("state_0", 2), value("position", 2)],
            [value("next_state_1", 1), value("value"), value("parameters", 2), *later],
            constants,
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )
    onnx.checker.check_model(model)
    return onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )


def test_leaves_state_and_value_go_by_their_names_and_episodes_start_with_zeros() -> None:
    policy, rng = OnnxExecutable(_recurrent_session()), np.random.default_rng(0)
    state = ()
    memory, count = np.zeros((3, 2)), np.zeros(3)
    for t in range(6):
        position, speed = rng.normal(size=(2, 3, 2)).astype(np.float32)
        starts = rng.random(3) < 0.4
        memory, count = np.where(starts[:, None], 0, memory), np.where(starts, 0, count)
        memory, count = memory / 2 + position, count + 1
        output = policy.step(
            {"speed": speed, "position": position}, zeroed(state, starts) if t else state
        )
        if not t:  # without a state, all start
            memory, count = position, np.ones(3)
        np.testing.assert_allclose(output.parameters, memory + speed, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(output.value, count)
        assert output.q is None
        state = output.state
        assert [(part.shape, part.dtype) for part in state] == [
            ((3, 2), np.float32),
            ((3, 1), np.float32),
        ]


def test_a_state_of_too_few_parts_is_refused() -> None:
    policy = OnnxExecutable(_recurrent_session())
    leaves = {name: np.zeros((1, 2), np.float32) for name in ("speed", "position")}
    with pytest.raises(ValueError, match="state_1"):
        policy.step(leaves, (np.zeros((1, 2), np.float32),))
