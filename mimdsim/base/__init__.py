"""Units, errors, strict descriptions and random streams. Knows nothing of machines or networks."""
