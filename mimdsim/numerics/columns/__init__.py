"""Arithmetic on columns of vertices and messages: boxes, pieces of exchanges, equal stretches, cycles."""
