"""Passes over a lowered program."""
