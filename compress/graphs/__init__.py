"""Policies as graphs: layers, units, ONNX."""
