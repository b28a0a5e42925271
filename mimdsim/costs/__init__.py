"""What things cost, as stateless formulas, shared by planner and profiler.

`library/` holds the vendor's library vertices, `exchange_endpoint.py` the exchange on a chip and between chips,
`isa_costs.py` the costs that a machine brings of its own.
"""
