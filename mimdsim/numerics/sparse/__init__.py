"""Vertices that follow lists of spikes."""
