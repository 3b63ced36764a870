"""Predicts waiting times of several replicas: requests are replayed against measured times."""
