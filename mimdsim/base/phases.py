"""The phases of a training step, in its order: what graphs, programs, kernels and profiles say of their parts."""

PHASES = ("input", "forward", "loss", "backward", "update")
