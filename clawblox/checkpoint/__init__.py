"""Checkpoints: archives of a world's and its agents' state (``.ckpt``).

Most public names are imported on first use (PEP 562), so that the small processes that examine
archives import only what they need.

- ``api``: the documented functions, and their async twins.
- ``options``: the options of a save and a load.
- ``save``: a save, from its options to a complete and registered archive.
- ``load``: restores an archive to files in a run directory.
- ``audit``: verifies and compares archives, and repairs their registration.
- ``archive``: the archive as a file.
- ``collect``: chooses the files of an agent for an archive.
- ``secrets``: finds secrets before they get into an archive.
- ``document``: the contents of ``metadata.json``, and the world's snapshot.
- ``refusals``: the errors of refused saves, and the tokens of live worlds.
- ``names``: the allowed names of an archive's members.
- ``progress``: reporting the progress of a save or a check.
- ``recent``: a cache of bounded size.
- ``model``: frozen values.
"""

from __future__ import annotations

from clawblox.lazy_exports import export_lazily

__getattr__, __dir__ = export_lazily(__name__, __file__)
