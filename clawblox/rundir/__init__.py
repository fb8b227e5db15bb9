"""Run directories: their files, and requests of other processes to the orchestrator of a run.

- ``paths``: where the things of a run directory are.
- ``snapshot_files``: which file a caller means by a snapshot.
- ``manifest``: the manifest as a value, and how updates merge.
- ``manifest_entries``: which entries are the same thing, and which may go.
- ``manifest_updates``: the updates themselves.
- ``manifest_file``: the manifest on disk.
- ``manifest_writer``: the one task that writes a manifest.
- ``saves``: saves of instances, and the rows of data stores beside them.
- ``recordings``: the recordings that the manifests list, and opening them.
- ``journal``: a file of JSON lines, in which the last line of a name is valid.
- ``records``: which instances run in a run directory.
- ``claims``: the exclusive right to a name, or to a run directory, and who has it.
- ``status``: the instances of a run directory, running or ended.
- ``listed``: the instances that a manifest names where there are no records.
- ``lineage``: the lineage of the instances of a run directory.
- ``lives``: the lives of an instance, and which of its saves belong to each.
- ``interrupted``: which instances a resume brings back, and from which save.
- ``find_runs``: which run directories and experiments there are.
- ``experiments``: which run directories belong to an experiment.
- ``driver_lease``: the right to drive an experiment, where locks on files do not hold.
- ``presence``: whether an instance serves, how it ended, and waiting for that.
- ``control_client``: asking the orchestrator of a run.
- ``control_server``: answering as the orchestrator of a run.
- ``blobs``: files that travel through its socket in pieces.
- ``requests``: the requests to it, and their outcomes.
- ``operations``: save, restart, fork and stop from another process.
- ``leftovers``: the remnants of killed orchestrators.
"""
