"""Outlines of the shapes in training pictures."""

import math

ANGLES = tuple(math.tau * step / 80 for step in range(80))


def outline(shape: str, turn: float) -> list[tuple[float, float]]:
    """The corners of a shape inside the unit circle, rotated by `turn` radians."""
    at = [(math.cos(a), math.sin(a)) for a in ANGLES]
    if shape == "square":
        at = [(0.8, 0.8), (-0.8, 0.8), (-0.8, -0.8), (0.8, -0.8)]
    elif shape == "diamond":
        at = [(0.0, 1.0), (0.7, 0.0), (0.0, -1.0), (-0.7, 0.0)]
    elif shape == "triangle":
        at = [(0.0, -0.95), (0.9, 0.7), (-0.9, 0.7)]
    elif shape == "cross":
        a, b = 0.9, 0.3
        at = [(b, a), (b, b), (a, b), (a, -b), (b, -b), (b, -a)]
        at += [(-x, -y) for x, y in at]
    elif shape == "star":
        radii = [1.0, 0.42] * 5
        at = [
            (r * math.sin(i * math.pi / 5), -r * math.cos(i * math.pi / 5))
            for i, r in enumerate(radii)
        ]
    elif shape == "heart":
        at = [
            (
                math.sin(a) ** 3 * 0.95,
                -(13 * math.cos(a) - 5 * math.cos(2 * a) - 2 * math.cos(3 * a) - math.cos(4 * a))
                / 17,
            )
            for a in ANGLES
        ]
    c, s = math.cos(turn), math.sin(turn)
    return [(x * c - y * s, x * s + y * c) for x, y in at]
