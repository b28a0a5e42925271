"""Columns of vertices and messages themselves: boxes, pieces of exchanges, what is alike, cycles."""
