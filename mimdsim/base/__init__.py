"""The version; units, errors, strict descriptions and random streams. Knows nothing of machines or networks."""

__version__ = "0.1.0"
