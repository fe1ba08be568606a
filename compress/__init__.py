"""What an actor can run: a policy's graph and the runtimes that execute it, free of torch.

The compressor chain (pruning, distillation, quantisation) will hand its artifacts to these
runtimes.
"""

from compress.graph import build_graph
from compress.runtime import OnnxPolicy, PolicyRuntime, RefusedTensors, check_tensors

__all__ = ["OnnxPolicy", "PolicyRuntime", "RefusedTensors", "build_graph", "check_tensors"]
