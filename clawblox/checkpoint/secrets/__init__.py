"""Finding secrets in what is about to leave.

Which module answers what:

- ``rules``, ``credible``: what credentials look like, and what only looks like one;
- ``known``: which secrets are known by value, and how a value can be written;
- ``shapes``, ``views``, ``base64_runs``, ``matching``: what is in a piece of memory;
- ``accelerator``: in which pieces no shape can be;
- ``windows``, ``verdicts``: how a content of any size becomes pieces, and which are known clean;
- ``beginnings``, ``parts``: where something compressed begins, and opening it;
- ``container``, ``containers``, ``streams``, ``zips``, ``tars``, ``packs``, ``pngs``: what is
  inside;
- ``content``, ``scanner``: one file; all of them.

What cannot be searched is refused, as a finding of the rule ``unscannable``: encrypted members,
formats without a decoder, more than four containers inside one another, what decodes to too
much, and what begins with a right header and is damaged later. Not refused are a container that
merely ends too soon, because all of it that there is has been searched, and bytes that begin like
a container and are none. The bytes of a container are always searched as they are, too.
"""

from __future__ import annotations

from clawblox.checkpoint.secrets.allowances import read_allowances
from clawblox.checkpoint.secrets.content import UNSCANNABLE
from clawblox.checkpoint.secrets.patterns.known import KnownValues, known_values
from clawblox.checkpoint.secrets.patterns.rules import RULESET
from clawblox.checkpoint.secrets.scanner import Scanner

__all__ = [
    "RULESET",
    "UNSCANNABLE",
    "KnownValues",
    "Scanner",
    "known_values",
    "read_allowances",
]
