"""The critic of a run's checkpoint, in torch: the actors' models have only the policy."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from aclearn.errors import ArgumentError
from aclearn.policies.ensemble import is_ensemble
from aclearn.policies.network import PolicyNetwork, load_tensors
from aclearn.types import State
from aclearn.types.observation_spec import Observations
from services.evaluator.saved_policy import SavedPolicy


class SavedValue:
    """The value of observations, in units of rewards.

    Raises:
        ArgumentError: it is an ensemble of policies whose critics give no value of a state.
        ConfigError: a network of the user's own cannot be imported.
    """

    def __init__(self, saved: SavedPolicy) -> None:
        if is_ensemble(saved.trained) and saved.trained.critic != "v":
            raise ArgumentError(
                f"{saved.checkpoint.path}: an ensemble has a value where all its members have "
                "critics of states (V), and not all of these have one; ask the members"
            )
        self._network = PolicyNetwork(saved.trained, seed=0)
        load_tensors(self._network, saved.weights)
        self._network.eval()
        self._of_actions = saved.config.loss.critic == "q_values"
        self._reward_scale: float = getattr(saved.config.loss, "reward_scale", 1.0)

    def values(self, leaves: Observations, state: State = ()) -> NDArray[np.float32]:
        """Values `[B]` for leaves `[B, *shape]` and the state before them."""
        with torch.inference_mode():
            given = {name: torch.from_numpy(np.array(leaf)) for name, leaf in leaves.items()}
            output = self._network.step(given, tuple(map(torch.from_numpy, state)))
            values = output.value
            if output.q is not None:
                values = (torch.softmax(output.parameters, 1) * output.q).sum(1)
            elif self._of_actions:
                values = output.parameters.amax(1)
            elif self._network.architecture.has_pair:
                mode, _ = output.parameters.chunk(2, 1)
                values = torch.stack(self._network.action_values(given, mode.tanh())).amin(0)
        assert values is not None
        return (values / self._reward_scale).numpy()
