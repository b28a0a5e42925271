"""Measured products and networks of GPUs: devices and formats by their labels, programs of frameworks, predictions."""
