"""Measurements of qwink: speed, load, costs, quality. Nothing that answers imports this package."""
