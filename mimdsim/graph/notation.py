"""Networks with convolutions as the literature writes them: '2x34x34-12c5-sum2-64c5-sum2-10'.

Input planes (channels x height x width), then '-' between layers: '12c5' is 12 channels over a window of 5 x 5, 'p2'
after it rows and columns of zeros at every edge, 's2' the way to the next place; '10' reads all there is. 'max2',
'avg2' and 'sum2' are pools of spikes; after ':' ('12c5:max2') of a convolution's currents.
"""

from __future__ import annotations

import re

from mimdsim.base.errors import MappingError, shortened
from mimdsim.graph.convolution import Convolution, Planes, Pool, Window

KINDS = {"max": "max", "avg": "average", "sum": "sum"}
NUMBER = r"[1-9]\d{0,6}"
PLANES = re.compile(rf"({NUMBER})x({NUMBER})x({NUMBER})")
POOL = re.compile(rf"(max|avg|sum)({NUMBER})")
WINDOW = re.compile(rf"({NUMBER})c({NUMBER})(?:p({NUMBER}))?(?:s({NUMBER}))?(?::(\w+))?")


def convolutions_of(text: str) -> tuple[Convolution, ...]:
    """The layers; those that read all there is have a window over all planes. Raises MappingError for other text."""
    first, *rest = text.split("-")
    given = PLANES.fullmatch(first)
    if not given:
        raise _wrong(text, first)
    channels, height, width = map(int, given.groups())
    planes, before, found = Planes(channels=channels, height=height, width=width), None, []
    for part in rest:
        if POOL.fullmatch(part) and before is None:
            before = _pool(text, part)
            continue
        window = WINDOW.fullmatch(part)
        if window:
            kernel, pad, stride = int(window[2]), int(window[3] or 0), int(window[4] or 1)
            of = Window(kernel=(kernel, kernel), padding=(pad, pad), stride=(stride, stride))
            after = _pool(text, window[5]) if window[5] else None
        elif re.fullmatch(NUMBER, part):
            of, after = Window.whole(before.over(planes) if before else planes), None
        else:
            raise _wrong(text, part)
        made = int(window[1] if window else part)
        found.append(Convolution(planes=planes, window=of, channels=made, before=before, after=after))
        planes, before = found[-1].result, None
    if before is not None or not found:
        raise _wrong(text, rest[-1] if rest else first)
    return tuple(found)


def _pool(text: str, part: str) -> Pool:
    found = POOL.fullmatch(part)
    if not found:
        raise _wrong(text, part)
    size = int(found[2])
    return Pool(kind=KINDS[found[1]], window=Window(kernel=(size, size), stride=(size, size)))


def _wrong(text: str, part: str) -> MappingError:
    return MappingError(
        f"network '{shortened(text)}': '{shortened(part)}' is not expected there; an example is "
        "'2x34x34-12c5p2s1:max2-sum2-64c5-10'"
    )
