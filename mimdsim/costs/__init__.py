"""Floor 3: what things cost, as formulas without state. Planner and profiler read the same ones.

`library/` holds the vendor's library vertices; `fabric.py` the exchange on a chip, `links.py` that
between chips.
"""
