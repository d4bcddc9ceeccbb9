"""Overlap of polygons, as functions that generated modules carry.

A polygon is the signed sum of the triangles between its first corner and its edges, so the
intersection of two polygons is the signed sum of the intersections of their triangles.
"""

from __future__ import annotations

import numpy as np

from compiler.ir.types import Array


def signed_area(corners: Array) -> float:
    """Return the area of a polygon [corners, 2], negative if its corners are clockwise.

    >>> signed_area(np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 1.0]]))
    1.0
    """
    x, y = corners[:, 0], corners[:, 1]
    return float(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2


def cut(corners: Array, start: Array, end: Array) -> Array:
    """Return the part of a convex polygon to the left of a line."""
    along = end - start
    side = along[0] * (corners[:, 1] - start[1]) - along[1] * (corners[:, 0] - start[0])
    vertices: list[Array] = []
    for i in range(len(corners)):
        here, before = side[i], side[i - 1]
        if here * before < 0:
            vertices.append(
                corners[i - 1] + (corners[i] - corners[i - 1]) * before / (before - here)
            )
        if here >= 0:
            vertices.append(corners[i])
    return np.array(vertices).reshape(-1, 2)


def intersection_area(one: Array, other: Array) -> float:
    """Return the area of the intersection of two counterclockwise triangles."""
    for i in range(3):
        one = cut(one, other[i - 1], other[i])
    return signed_area(one) if len(one) > 2 else 0.0


def triangles(corners: Array) -> list[tuple[Array, float]]:
    """Return the triangles of a polygon, counterclockwise, each with its sign 1 or -1."""
    fan = [corners[[0, i, i + 1]] for i in range(1, len(corners) - 1)]
    areas = [signed_area(triangle) for triangle in fan]
    pairs = zip(fan, areas, strict=True)
    return [
        (triangle if area > 0 else triangle[::-1], np.sign(area))
        for triangle, area in pairs
        if area
    ]


def polygon_overlaps(one: Array, others: Array) -> Array:
    """Return the intersection over union of a polygon (x, y of each corner) with others."""
    corners = one.astype(np.float64).reshape(-1, 2)
    mine, area = triangles(corners), abs(signed_area(corners))
    overlaps: list[float] = []
    for points in others.astype(np.float64):
        theirs = points.reshape(-1, 2)
        parts = [a * b * intersection_area(t, u) for t, a in mine for u, b in triangles(theirs)]
        intersection = abs(sum(parts))
        whole = area + abs(signed_area(theirs)) - intersection
        overlaps.append(intersection / whole if whole > 0 else 0.0)
    return np.array(overlaps)
