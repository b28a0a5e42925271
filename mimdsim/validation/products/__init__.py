"""Dense products of tiled machines: the planner's rates, and the matrix-vector product of the vendor's tutorial."""
