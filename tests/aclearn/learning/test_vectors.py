"""Tensors whose memory is one vector."""

from __future__ import annotations

import torch

from aclearn.learning.vectors import in_one_vector


def test_each_tensor_keeps_its_numbers_and_its_order_in_a_part_of_its_own() -> None:
    torch.manual_seed(0)
    last = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    given = {
        "a row": torch.randn(3, 4),
        "channels last": last,
        "every second column": torch.randn(4, 8)[:, ::2],  # with gaps between its numbers
        "turned": torch.randn(5, 3).T,
        "a number": torch.randn(()),
    }
    tensors = [torch.nn.Parameter(tensor) for tensor in given.values()]
    before = [tensor.detach().clone() for tensor in tensors]
    vector = in_one_vector(tensors)
    assert len(vector) == sum(tensor.numel() for tensor in tensors)
    for tensor, old in zip(tensors, before, strict=True):
        torch.testing.assert_close(tensor.detach(), old, rtol=0, atol=0)
        assert tensor.untyped_storage().data_ptr() == vector.untyped_storage().data_ptr()
    assert tensors[1].is_contiguous(memory_format=torch.channels_last)
    # every number of the vector belongs to one tensor
    with torch.no_grad():
        vector.zero_()
        for tensor in tensors:
            tensor += 1.0
    assert vector.eq(1.0).all()
