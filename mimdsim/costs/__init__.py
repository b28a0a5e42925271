"""What things cost, as stateless formulas, shared by planner and profiler.

`library/` holds the vendor's library vertices, `fabric.py` the exchange on a chip, `links.py` the one between chips.
"""
