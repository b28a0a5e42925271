"""Measurements calibrate the numbers of a machine that they bear on: what `mimdsim calibrate` computes.

Each uncertain number has its interval from its source (`machine/calibrated.py`); so has the cost of every codelet, as a
factor, and, shared by the rows of one formula of a table, whatever else their predictions are doubted for. An interval
is taken as two standard deviations. Of all values within the intervals, those are found that change least from the
sourced ones, in standard deviations, and meet the measurements within their spreads.
"""

from mimdsim.validation.calibration.fit import Measured, Narrowed, calibrate, narrowed_by

__all__ = ["Measured", "Narrowed", "calibrate", "narrowed_by"]
