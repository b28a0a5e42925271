"""Published stencils as programs written by hand: a blur by phases (Mk1), solvers and a triad by steps (Mk2)."""
