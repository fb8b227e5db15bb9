"""What a run directory holds, and what other processes can ask of the run.

- ``paths``: where the things of a run directory are.
- ``snapshot_files``: which file a caller means by a snapshot.
- ``manifest``: the manifest as a value, and how updates merge.
- ``manifest_entries``: which entries are the same thing, and which may go.
- ``manifest_updates``: the updates themselves.
- ``manifest_file``: the manifest on disk.
- ``manifest_writer``: the one task that writes a manifest.
- ``saves``: saves of instances, and the rows of data stores beside them.
- ``journal``: a file of JSON lines, the last of which holds for its name.
- ``records``: which instances run in a run directory.
- ``claims``: the exclusive right to a name, or to a run directory, and who has it.
- ``status``: what runs or ran in a run directory.
- ``lineage``: what the instances of a run directory began from.
- ``lives``: the lives of an instance, and which of its saves belong to each.
- ``interrupted``: which instances can go on, and from what.
- ``find_runs``: which run directories there are.
- ``presence``: whether an instance serves, how it ended, and waiting for that.
- ``control_client``: asking the orchestrator of a run.
- ``control_server``: answering as the orchestrator of a run.
- ``blobs``: files that travel through its socket in pieces.
- ``requests``: what it can be asked, and how it tells the outcomes.
- ``operations``: save, restart, fork and stop from another process.
- ``leftovers``: what killed orchestrators left behind.
"""
