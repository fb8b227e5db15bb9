"""Searches files for secrets before they go into an archive.

- ``scanner``: all files of an archive, and the summary.
- ``content``: searches a file, or content of a container, in overlapping windows, and remembers
  clean content.
- ``findings``: the findings in a file, without the secrets.
- ``matching``: searches a window.
- ``patterns``: finds secrets in a piece of content by shape and by value.
- ``containers``: decodes packed and compressed content.

Content that cannot be searched is a finding of the rule ``unscannable``: encrypted members, formats
without a decoder, more than four nested containers, content that decodes to too many bytes, and
containers with a valid header and damage after it. A truncated container is accepted, because
everything in it has been searched; so are bytes that only start like a container. The raw bytes of
a container are always searched, too.
"""

from __future__ import annotations

from clawblox.checkpoint.secrets.content import UNSCANNABLE
from clawblox.checkpoint.secrets.patterns.known import KnownValues, known_values
from clawblox.checkpoint.secrets.patterns.rules import RULESET
from clawblox.checkpoint.secrets.scanner import Scanner, read_allowances

__all__ = [
    "RULESET",
    "UNSCANNABLE",
    "KnownValues",
    "Scanner",
    "known_values",
    "read_allowances",
]
