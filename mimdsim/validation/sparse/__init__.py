"""Sparse times dense products planned as the vendor's library plans them, and their published rates."""
