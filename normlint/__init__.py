"""Find and repair problems with the normalisation layers of ONNX models."""

__version__ = "0.1.0"
