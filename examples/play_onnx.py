"""Plays an exported policy with onnxruntime and gymnasium alone.

    aclearn export runs/cartpole-1 --to policy.onnx
    python play_onnx.py policy.onnx CartPole-v1

The model's metadata say how an observation of the environment becomes the model's inputs, and the
model's outputs are the environment's action. Atari games need gymnasium's `AtariPreprocessing` and
`FrameStackObservation`, which give the screens that the policy was trained on.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import gymnasium
import numpy as np
import onnxruntime


class OnnxPolicy:
    """The most probable action, or the mean, for one observation after another.

    Args:
        path: of the model.
    """

    def __init__(self, path: str) -> None:
        self._session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        about = self._session.get_modelmeta().custom_metadata_map
        self._seen = json.loads(about["observation"])
        self._taken = json.loads(about["action"])
        self._masked = json.loads(about["masked"])
        self._kept = json.loads(about["state"])
        self.begin()

    def begin(self) -> None:
        """Begin an episode: forget the pictures of the last one, and what the policy remembers."""
        self._frames: dict[str, list[Any]] = {}
        self._state = [np.zeros((1, part["units"]), np.float32) for part in self._kept]

    def act(self, observation: Any, mask: Any = None) -> Any:
        """The action for the environment.

        Args:
            observation: as the environment gives it.
            mask: bool, the allowed actions; for an environment with action masks.
        """
        given = {}
        for part in self._seen:
            value = observation
            for key in part["path"]:
                value = value[key]
            frame = _leaf(part, value)
            # the first picture of an episode fills the stack
            frames = self._frames.get(part["input"], [frame] * part["frames"])
            self._frames[part["input"]] = frames = [*frames[1:], frame]
            given[part["input"]] = np.concatenate(frames)[None]
        if self._masked:
            parts = mask if isinstance(mask, tuple) else (mask,)  # an array for each choice
            given["action_mask"] = np.concatenate([np.ravel(m) for m in parts]).astype(bool)[None]
        given |= {part["input"]: x for part, x in zip(self._kept, self._state, strict=True)}
        names = [part["output"] for part in (*self._taken, *self._kept)]
        outputs = self._session.run(names, given)
        self._state = outputs[len(self._taken) :]
        actions = zip(self._taken, outputs, strict=False)
        return _nested({tuple(part["path"]): value[0] for part, value in actions})


def _leaf(part: dict[str, Any], value: Any) -> Any:
    """A part of an observation as the model's input has it."""
    if part["kind"] == "choices":
        chosen = np.ravel(value) - part["starts"]
        each = zip(part["counts"], chosen, strict=True)
        return np.concatenate([np.eye(count, dtype=np.float32)[i] for count, i in each])
    array = np.asarray(value, part["input_dtype"])
    if part["kind"] != "image":
        return array.ravel()
    if part["channels"] == "last":
        array = array.transpose(2, 0, 1)
    return array[None] if array.ndim == 2 else array


def _nested(values: dict[tuple[Any, ...], Any]) -> Any:
    """Dict and Tuple actions of their parts."""
    if () in values:
        return values[()]
    inner: dict[Any, dict[tuple[Any, ...], Any]] = {}
    for (key, *rest), value in values.items():
        inner.setdefault(key, {})[tuple(rest)] = value
    built = {key: _nested(below) for key, below in inner.items()}
    return tuple(built.values()) if [*built] == [*range(len(built))] else built


def main() -> None:
    """Play one episode."""
    path, name = sys.argv[1:]
    policy, env = OnnxPolicy(path), gymnasium.make(name)
    observation, info = env.reset(seed=1)
    total, ended = 0.0, False
    while not ended:
        action = policy.act(observation, info.get("action_mask"))
        observation, reward, terminated, truncated, info = env.step(action)
        total, ended = total + float(reward), terminated or truncated
    print(f"return {total:g}")


if __name__ == "__main__":
    main()
