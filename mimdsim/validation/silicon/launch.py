"""What a vertex costs beside itself where nothing is exchanged: a timer before it, one after it, and its launch.

A timer is a vertex on the supervisor that stores the tile's cycle counter. Two of them in a row read values 45 cycles
apart (a constant of the measuring program). That time is the timer's own instructions and one launch: the control
program steps to the next compute set, calls its vertex and is returned to. So with t own cycles of the timer

    two timers in a row                45 = t + launch
    a vertex between two timers             vertex + 45 + launch

No exchange, so no sync either: tiles run on. The rules for the supervisor's stalls are the vendor's (PopLibs' estimates
of its supervisor code): a taken branch and a loaded value that is used at once take 6 cycles, everything else 1.
"""

from __future__ import annotations

TIMER_CYCLES = 45  # tessellate_ipu/core/tile_interpreter_hw_primitives.py, "overhead of measuring a cycle count"
# Load the pointer, read the lower half of the counter, 4 cycles until the pointer has arrived, store, read the upper
# half, store, return value, return (6). Instruction count of our own for CycleCountBarrier in hw_vertex.cpp.
TIMER_OWN_CYCLES = 1 + 1 + 4 + 1 + 1 + 1 + 1 + 6
# Reading the counter may stall like writing a special register (put $CCCSLOAD, 6), and the pointer may be loaded only
# when it is needed: read, load and wait, store, read, store, return value, return.
TIMER_OWN_MOST = 6 + 6 + 1 + 6 + 1 + 1 + 6
# Without any wait for the pointer: the compiler may load it after it has read the counter, and store both at the end.
TIMER_OWN_LEAST = TIMER_OWN_CYCLES - 4
LAUNCH_CYCLES = TIMER_CYCLES - TIMER_OWN_CYCLES
LAUNCH_LEAST = TIMER_CYCLES - TIMER_OWN_MOST
LAUNCH_MOST = TIMER_CYCLES - TIMER_OWN_LEAST
