"""The matrix unit of a tile: accumulating units that hold coefficients and take a row of inputs every few cycles."""

from __future__ import annotations

from pydantic import Field

from mimdsim.base.schema import SourcedSection


class MatrixUnit(SourcedSection):
    """How many units work at once, by number formats (of the data, of the partial sums), and how they are fed.

    One pass multiplies `*_channels` inputs of every row with the coefficients of all units. Coefficients are loaded by
    the supervisor, `coefficient_load_bytes_per_cycle`, before every pass.
    """

    half_half_units: int = Field(gt=0)
    half_float_units: int = Field(gt=0)
    float_float_units: int = Field(gt=0)
    half_channels: int = Field(gt=0)
    float_channels: int = Field(gt=0)
    coefficient_load_bytes_per_cycle: int = Field(gt=0)

    def units(self, dtype: str, partials_dtype: str) -> int:
        """Units for data in `dtype` and sums in `partials_dtype` ("f16" or "f32"; sums never narrower than data)."""
        if dtype == "f32":
            return self.float_float_units
        return self.half_float_units if partials_dtype == "f32" else self.half_half_units

    def channels(self, dtype: str) -> int:
        """Inputs of a pass for data in `dtype`."""
        return self.float_channels if dtype == "f32" else self.half_channels
