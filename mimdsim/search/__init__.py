"""The best mapping of a network on a machine, found by search."""
