"""Predictions next to published figures: what `check --references` computes, and the page made of it."""
