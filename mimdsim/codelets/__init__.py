"""The codelets, one record each: boxes, arithmetic, cost, source. To add one, see `neurons.py`."""
