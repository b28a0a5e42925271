"""Several vertices, or a whole layer, in one pass, bit-identical to running them one after another."""
