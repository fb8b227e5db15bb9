"""Tools that distribute work over a cluster, here on this machine."""

from __future__ import annotations

from benchmarks.tools.base import InProcess, launch, wait_until_serving
from benchmarks.worlds import WorldSpec

__all__ = ["Dask", "Ray"]


class Keeper:
    """An actor that manages a world."""

    def __init__(self, spec: WorldSpec) -> None:
        self._spec = spec
        self._process = launch(spec)

    def wait(self) -> None:
        """Wait until the world serves."""
        wait_until_serving([self._spec])

    def stop(self) -> None:
        """Stop the world."""
        self._process.terminate()
        self._process.wait()


class Ray(InProcess):
    """A Ray actor per world, on a cluster on this machine."""

    note = "an actor a world, which polls"

    def open(self) -> None:
        """Start the cluster."""
        import ray

        self._ray = ray
        ray.init(include_dashboard=False, log_to_driver=False, _temp_dir=str(self.directory))

    def start(self) -> None:
        """Start all worlds."""
        actor = self._ray.remote(num_cpus=0)(Keeper)
        self._actors = [actor.remote(spec) for spec in self.specs]
        self._ray.get([actor.wait.remote() for actor in self._actors])

    def stop(self) -> None:
        """Stop all worlds."""
        self._ray.get([actor.stop.remote() for actor in self._actors])

    def close(self) -> None:
        """End the cluster."""
        self._ray.shutdown()


class Dask(InProcess):
    """A Dask task per world, on a cluster of one worker with a thread per world."""

    note = "a task a world, in one worker process, which polls"

    def open(self) -> None:
        """Start the cluster."""
        from distributed import Client, LocalCluster

        self._cluster = LocalCluster(
            n_workers=1,
            threads_per_worker=len(self.specs),
            dashboard_address=None,
            local_directory=str(self.directory),
        )
        self._client = Client(self._cluster)

    def start(self) -> None:
        """Start all worlds."""
        self._keepers = self._client.map(Keeper, self.specs, pure=False)
        self._client.gather(self._client.map(Keeper.wait, self._keepers, pure=False))

    def stop(self) -> None:
        """Stop all worlds."""
        self._client.gather(self._client.map(Keeper.stop, self._keepers, pure=False))

    def close(self) -> None:
        """End the cluster."""
        self._client.close()
        self._cluster.close()
