"""Compressed policies: a chain of methods, the artifact it makes, the runtimes that execute it.

    chain = CompressorChain().add(Pruning(0.5)).add(Quantizer("INT8")).add(ONNX())
    visited = Visited({"observation": observations})
    artifact = chain.compress(Policy.of(architecture, tensors), Context(visited))
    policy = ArtifactRuntime(architecture).load(artifact)
    parameters = policy.step(visited.observations).parameters

torch is imported by the first link that computes with it; ONNX artifacts run without it.
"""

from __future__ import annotations

from compress.artifact import Artifact, Fidelity, check_artifact
from compress.chain import CompressorChain
from compress.errors import ChainError, NeedsObservations, RefusedArtifact, RefusedTensors
from compress.graphs.onnx_graph import build_onnx
from compress.graphs.policy_graph import PolicyGraph, check_tensors
from compress.link import Link
from compress.link_check import check_compressor
from compress.methods import LINKS
from compress.methods.distiller import Distiller
from compress.methods.fusion import Fusion
from compress.methods.low_rank import LowRank
from compress.methods.pruning import Pruning
from compress.methods.quantizer import Quantizer
from compress.methods.static_graph import ONNX, TorchScript
from compress.modules.fusion import fold_batch_norm, fold_normalisation, fuse_module
from compress.parse import parse_chain, parse_words
from compress.policy import Context, Policy
from compress.runtimes.artifact_runtime import ArtifactRuntime, check_probe
from compress.runtimes.onnx_runtime import OnnxRuntime
from compress.runtimes.protocols import PolicyRuntime
from compress.settings import ConfiguredLink

__all__ = [
    "LINKS",
    "ONNX",
    "Artifact",
    "ArtifactRuntime",
    "ChainError",
    "CompressorChain",
    "ConfiguredLink",
    "Context",
    "Distiller",
    "Fidelity",
    "Fusion",
    "Link",
    "LowRank",
    "NeedsObservations",
    "OnnxRuntime",
    "Policy",
    "PolicyGraph",
    "PolicyRuntime",
    "Pruning",
    "Quantizer",
    "RefusedArtifact",
    "RefusedTensors",
    "TorchScript",
    "build_onnx",
    "check_artifact",
    "check_compressor",
    "check_probe",
    "check_tensors",
    "fold_batch_norm",
    "fold_normalisation",
    "fuse_module",
    "parse_chain",
    "parse_words",
]
