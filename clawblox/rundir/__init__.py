"""What a run directory holds, and what other processes can ask of the run.

- ``paths``: where the things of a run directory are.
- ``snapshot_files``: which file a caller means by a snapshot.
- ``manifest``: the manifest as a value, and how updates merge.
- ``manifest_updates``: the updates themselves.
- ``manifest_file``: the manifest on disk.
- ``manifest_writer``: the one task that writes a manifest.
- ``save``: how a snapshot becomes a file and an entry of the manifest.
- ``locks``: waiting for a lock that another process holds.
- ``journal``: a file of JSON lines, the last of which holds for its name.
- ``records``: which instances run in a run directory.
- ``claims``: the exclusive right to a name, or to a run directory.
- ``last_saves``: the last saves of instances.
- ``status``: what runs or ran in a run directory.
- ``waiting``: waiting until instances have ended.
- ``lineage``: what the instances of a run directory began from.
- ``lives``: the lives of an instance, and which of its saves belong to each.
- ``interrupted``: which instances can go on, and from what.
- ``run_index``: which run directories a user has.
- ``find_runs``: finding them, running or ended.
- ``presence``: whether an instance serves, or how it ended.
- ``control_client``: asking the orchestrator of a run.
- ``control_server``: answering as the orchestrator of a run.
- ``requests``: what it can be asked, and how it tells the outcomes.
- ``operations``: save, restart, fork and stop from another process.
- ``leftovers``: what a killed orchestrator left behind.
"""
