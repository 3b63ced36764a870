"""Varied pictures to measure with, made on demand: deterministic, kept once made."""
