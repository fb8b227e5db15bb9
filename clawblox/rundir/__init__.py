"""What a run directory holds, and what other processes can ask of the run.

- ``paths``: where the things of a run directory are.
- ``snapshot_files``: which file a caller means by a snapshot.
- ``manifest``: the manifest as a value, and how updates merge.
- ``manifest_updates``: the updates themselves.
- ``manifest_file``: the manifest on disk.
- ``manifest_writer``: the one task that writes a manifest.
- ``records``: which instances run in a run directory, and claims on names.
- ``status``: what runs or ran in a run directory.
- ``control_client``: asking the orchestrator of a run.
- ``control_server``: answering as the orchestrator of a run.
- ``operations``: save, fork and stop from another process.
- ``leftovers``: what a killed orchestrator left behind.
"""
