"""Vertices on boxes of arrays."""
