"""Tools that run in the process of their user."""

from __future__ import annotations

import os
from typing import Any

from benchmarks.tools.base import InProcess, launch, wait_until_serving
from benchmarks.worlds import READY_ENV, WorldSpec, write_world

__all__ = ["Clawblox", "Jupyter", "Script"]


class Script(InProcess):
    """``Popen`` and a request per world; stops one world after the other."""

    note = "Popen; polls by urllib; stops one after the other"

    def start(self) -> None:
        """Start all worlds."""
        self._processes = [launch(spec) for spec in self.specs]
        wait_until_serving(self.specs)

    def stop(self) -> None:
        """Stop all worlds."""
        for process in self._processes:
            process.terminate()
            process.wait()


class Clawblox(InProcess):
    """The sync facade."""

    note = "World.start_many, World.stop_all"

    def open(self) -> None:
        """Open the world."""
        from clawblox import World

        self._world = World(dir=write_world(self.directory / "world", "light"))
        self._world.open()

    def start(self) -> None:
        """Start all worlds."""
        env = {READY_ENV: self.specs[0].env[READY_ENV]}
        batch = self._world.start_many(len(self.specs), run_dir=self.directory / "run", env=env)
        batch.raise_if_failed()

    def stop(self) -> None:
        """Stop all worlds."""
        self._world.stop_all().raise_if_failed()

    def close(self) -> None:
        """Close the world."""
        self._world.close()


class Jupyter(InProcess):
    """``jupyter_client``'s local provisioner per world."""

    note = "LocalProvisioner only: readiness and shutdown of a manager speak to kernels"

    def open(self) -> None:
        """Create a provisioner per world."""
        import asyncio

        from jupyter_client.kernelspec import KernelSpec
        from jupyter_client.provisioning import LocalProvisioner

        self._runner = asyncio.Runner()
        self._gather = asyncio.gather
        self._provisioners = [
            LocalProvisioner(kernel_id=spec.name, kernel_spec=KernelSpec(argv=spec.command))
            for spec in self.specs
        ]

    def start(self) -> None:
        """Start all worlds."""
        self._runner.run(self._for_each(self._launch))
        wait_until_serving(self.specs)

    def stop(self) -> None:
        """Stop all worlds."""
        self._runner.run(self._for_each(self._end))

    def close(self) -> None:
        """Close the event loop."""
        self._runner.close()

    async def _for_each(self, act: Any) -> None:
        await self._gather(*map(act, self._provisioners, self.specs))

    @staticmethod
    async def _launch(provisioner: Any, spec: WorldSpec) -> None:
        options = await provisioner.pre_launch(env={**os.environ, **spec.env})
        await provisioner.launch_kernel(options.pop("cmd"), **options)

    @staticmethod
    async def _end(provisioner: Any, _: WorldSpec) -> None:
        await provisioner.terminate()
        await provisioner.wait()
