"""The links of a chain: pruning, distillation, quantisation and others."""

from __future__ import annotations

LINKS = {
    "prune": "compress.methods.pruning:Pruning",
    "distill": "compress.methods.distiller:Distiller",
    "low_rank": "compress.methods.low_rank:LowRank",
    "quantize": "compress.methods.quantizer:Quantizer",
    "fuse": "compress.methods.fusion:Fusion",
    "torchscript": "compress.methods.static_graph:TorchScript",
    "onnx": "compress.methods.static_graph:ONNX",
}
"""Our links by their names in a configuration; the `model` of each has its settings."""
