"""Nano: a tiny Qwen3-VL model trained on synthetic pictures."""
