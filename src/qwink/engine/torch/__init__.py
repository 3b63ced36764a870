"""The PyTorch engine. Only this folder imports PyTorch and Transformers."""
