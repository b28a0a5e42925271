"""Measurements of single tiles and of one chip without halo: vertices between two timers, compiled loops, a gather."""
