"""Floor 1: the arithmetic of vertices, compiled by numba (no fastmath, cached), over columns of vertices.

Every function takes whole arrays and int64 columns, one entry per vertex, and writes in place. float32 sums run in
the order of the listed ids, as one worker context would do them.
"""
