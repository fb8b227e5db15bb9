"""Run directories: their files, and requests of other processes to the orchestrator of a run.

- ``paths``: paths of the files in a run directory.
- ``snapshot_files``: the file that a caller means by a snapshot.
- ``manifest``: the manifest as a value, and the merging of updates.
- ``manifest_entries``: identity of manifest entries, and their removal.
- ``manifest_updates``: the updates themselves.
- ``manifest_file``: the manifest on disk.
- ``manifest_writer``: the only task that writes a manifest.
- ``saves``: saves of instances, with the rows of their data stores.
- ``recordings``: finds and opens the recordings that the manifests list.
- ``journal``: a file of JSON lines, in which the last line of each name is valid.
- ``records``: the records of the instances in a run directory.
- ``claims``: the exclusive right to a name or a run directory, and its holder.
- ``status``: the instances of a run directory, running or ended.
- ``listed``: instances that are named only in a manifest, without records.
- ``lineage``: the lineage of the instances of a run directory.
- ``lives``: the lives of an instance, from each start to its end, with their saves.
- ``interrupted``: the instances that a resume continues, and their saves.
- ``find_runs``: finds run directories and experiments.
- ``experiments``: the run directories of an experiment.
- ``driver_lease``: the right to drive an experiment if file locks are not reliable.
- ``presence``: whether an instance is serving, its exit, and waiting for its end.
- ``control_client``: sends requests to the orchestrator of a run.
- ``control_server``: answers requests as the orchestrator of a run.
- ``blobs``: files transferred in pieces through the control socket.
- ``requests``: the requests to an orchestrator, and their outcomes.
- ``operations``: save, restart, fork and stop from another process.
- ``leftovers``: files that killed orchestrators left.
"""
