"""clawblox: start, watch, snapshot, stop and resume interactive worlds, exactly.

Public names are imported when they are first used (PEP 562), so that ``import clawblox`` loads only
the modules that the caller needs.
"""

from __future__ import annotations

from clawblox.lazy_exports import export_lazily

__version__ = "0.1.0"

__getattr__, __dir__ = export_lazily(__name__, __file__)
