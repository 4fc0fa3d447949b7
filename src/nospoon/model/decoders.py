"""What msgspec shall know of a type before threads decode it.

msgspec looks at a dataclass when it first meets it, and marks it as known before it has looked at
all of its fields (0.22, `DataclassInfo_Convert` of _core.c): a thread that decodes one at that
moment ends the process. So what threads decode is met where its module is imported, by
`msgspec.json.Decoder` or by `meet`; tests/dev/test_decoders.py finds what is not.
"""

from __future__ import annotations

import msgspec


def meet(*types: object) -> None:
    """Of values that `msgspec.convert` makes."""
    for each in types:
        msgspec.json.Decoder(each)
