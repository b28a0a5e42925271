"""Cycles of library codelets by the vendor's names and parameters, as its own cycle estimators give them."""
