"""Snapshots of weights: the host gets the weights of the moment of the snapshot."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from aclearn.learning.device_snapshot import DeviceSnapshot
from aclearn.policies.network import PolicyNetwork, tensors_of


def test_a_snapshot_is_what_the_weights_were_whatever_becomes_of_them(make) -> None:
    for architecture in (make.images, make.residual, make.flat):
        network = PolicyNetwork(architecture, seed=1)
        if architecture.convolves:
            network.to(memory_format=torch.channels_last)
        expected = tensors_of(network)
        snapshot = DeviceSnapshot(dict(network.named_parameters()))
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(1.0)
        assert list(snapshot) == list(expected)
        assert len(snapshot) == len(expected)
        for name, tensor in snapshot.items():
            assert tensor.dtype == np.float32 and tensor.flags.c_contiguous
            np.testing.assert_array_equal(tensor, expected[name])


def test_threads_that_look_at_the_same_time_get_the_same_arrays() -> None:
    for _ in range(50):
        snapshot = DeviceSnapshot({"a": torch.arange(1000.0), "b": torch.ones(3)})
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda _, s=snapshot: s["a"], range(8)))
        assert all(array is found[0] for array in found)
        assert found[0].tolist() == list(range(1000))
