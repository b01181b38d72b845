"""ONNX files: their bytes, and a Graph as plain data."""
