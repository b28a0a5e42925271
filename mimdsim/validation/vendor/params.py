"""Parameters of vendor figures as text, and the signature that all formulas of the registry share."""

from __future__ import annotations

from collections.abc import Callable

from mimdsim.base.errors import MimdsimError
from mimdsim.costs.library.arithmetic import Elements


class VendorParams(dict[str, str]):
    """Parameters of one vendor figure: text by name."""

    def count(self, name: str, default: int | None = None) -> int:
        """The integer parameter `name`; raises MimdsimError if it is missing without default, or not an integer."""
        text = self.get(name)
        if text is None:
            if default is None:
                raise MimdsimError(f"parameter '{name}' is missing; given: {', '.join(sorted(self)) or 'none'}")
            return default
        try:
            return int(text)
        except ValueError:
            raise MimdsimError(f"parameter '{name}' must be an integer, not '{text}'") from None

    def flag(self, name: str) -> bool:
        """True if `name` is given and not 0."""
        return self.count(name, 0) != 0

    def counts(self, name: str) -> list[int]:
        """The integers of a parameter written as 7|9|33; raises MimdsimError if missing or not integers."""
        return [VendorParams({name: text}).count(name) for text in self.get(name, "").split("|")]


# (template argument such as ADD, number format, parameters) -> cycles
Formula = Callable[[str, str, VendorParams], Elements]


def formats(dtype: str) -> tuple[str, str]:
    """The two formats of "f16/f32" or "f16->f32"; one alone stands for both."""
    first, _, second = dtype.replace("->", "/").partition("/")
    return first, second or first
