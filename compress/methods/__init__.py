"""The links of a chain: pruning, distillation, quantisation and others."""
