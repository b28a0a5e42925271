"""Measurements of single tiles, of networks and of programs without a halo between chips: vertices between two timers,
compiled loops, a gather, transfers, stencils and sparse products on a wafer."""
