"""Predictions next to published figures, and machines calibrated against measurements."""

from mimdsim.validation.calibration import calibrate
from mimdsim.validation.tables import Row, validate

__all__ = ["Row", "calibrate", "validate"]
