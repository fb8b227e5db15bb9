"""Checkpoints: archives of a world's and its agents' state (``.ckpt``).

Most public names are imported when they are first used (PEP 562), so that the small processes that
examine archives import no more than they need.

- ``api``: the documented functions, and their async twins.
- ``options``: the options of a save and a load.
- ``save``: a save, from its options to a complete and registered archive.
- ``load``: from an archive to files in a run directory.
- ``audit``: verifying, comparing and repairing archives that exist.
- ``archive``: the archive as a file.
- ``collect``: choosing the files of an agent that go into an archive.
- ``secrets``: finding secrets before they leave.
- ``document``: the contents of ``metadata.json``, and the world's snapshot.
- ``refusals``: the errors of refused saves, and the tokens of live worlds.
- ``names``: the names that a member of an archive may have.
- ``progress``: reporting the progress of a save or a check.
- ``recent``: a memory of bounded size.
- ``model``: frozen values.
"""

from __future__ import annotations

from clawblox.lazy_exports import export_lazily

__getattr__, __dir__ = export_lazily(__name__, __file__)
