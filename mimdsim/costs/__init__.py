"""What things cost, as stateless formulas, shared by planner and profiler.

`library/` holds the vendor's library vertices, `fabric/` the exchange on a chip, by model, `chip_links.py` the
links between chips and to the host, `isa_costs.py` the costs that a machine brings of its own, `core_costs.py` those
that follow from a table of its core, and what vertices load and store.
"""
