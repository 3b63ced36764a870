"""The PyTorch engine. Nothing outside of this folder imports PyTorch or Transformers."""
