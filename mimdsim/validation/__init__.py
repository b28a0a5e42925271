"""Predictions next to published figures and claims, and machines calibrated against measurements."""

from mimdsim.validation.calibration import calibrate
from mimdsim.validation.claims import reproduce
from mimdsim.validation.reference_table import Row
from mimdsim.validation.tables import validate

__all__ = ["Row", "calibrate", "reproduce", "validate"]
