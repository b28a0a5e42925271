"""Floor 5: the training graph on a GPU, lowered to kernels and timed; the yardstick for the tiled machine."""
