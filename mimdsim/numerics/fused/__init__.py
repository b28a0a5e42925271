"""Several vertices, or a whole layer, in one pass, with the bits of one after another."""
