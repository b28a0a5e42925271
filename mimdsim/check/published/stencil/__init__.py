"""The published stencil: its program written by hand, and the cycles of its phases."""
