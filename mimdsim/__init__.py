"""mimdsim: what-if laboratory for processors of many independent tiles.

Import from the floors directly (`mimdsim.machine`, `mimdsim.program`, ...); this module imports nothing, so that
`mimdsim --help` answers at once. ARCHITECTURE.md shows the floors.
"""

__version__ = "0.1.0"
