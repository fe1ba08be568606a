"""What a trainer's process has from its making on."""

from __future__ import annotations

import threading

import torch

from aclearn.config import config_of_keys
from aclearn.envs import read_spec
from services.trainer import build


def test_threads_of_a_trainer_compute_without_denormal_numbers() -> None:
    config = config_of_keys({"env.id": "CartPole-v1", "policy.hidden": [4]})
    small = torch.tensor([2.0**-126])  # float32's smallest normal number
    products: list[float] = []

    def halve() -> None:
        products.append((small * 0.5).item())

    halve()
    build.make_trainer(config, read_spec(config.env)).close()
    thread = threading.Thread(target=halve)
    thread.start()
    thread.join(60.0)
    assert products == [2.0**-127, 0.0]
