"""A box that falls on a plane, in MuJoCo; agents see arrays that MuJoCo derives from the state.

In a running world the derived arrays are one step older than the integrated state, so a restore is
exact only if it restores them too. ``RESTORE`` selects:

- ``integration``: only the integrated state; the derived arrays are those of a new world.
- ``forward``: the arrays are derived from the restored state, which makes them one step too young.
- ``arrays``: all arrays are saved and restored unchanged.
- ``every_step``: they are derived after every step, and after the restore.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping

import mujoco
import numpy as np

from clawblox.server import Clock, InputError, Json, Simulation, serve

RESTORE = os.environ.get("RESTORE", "arrays")
INTEGRATION = mujoco.mjtState.mjSTATE_INTEGRATION
XML = """
<mujoco>
  <option timestep="0.002"/>
  <worldbody>
    <geom type="plane" size="5 5 .1"/>
    <body name="box" pos="0 0 .6" euler="20 30 0">
      <freejoint/>
      <geom type="box" size=".1 .2 .1" mass="1"/>
      <site name="imu"/>
    </body>
  </worldbody>
  <sensor><accelerometer site="imu"/></sensor>
</mujoco>
"""


class Derived(Simulation):
    """The box."""

    format = "mujoco-derived-v1"
    api_doc = (
        '# Box\n\nPush it: `{"type": "Push", "data": [1.0, 0.0, 2.0]}`, or `{"type": "Wait"}`.\n'
    )
    clock = Clock.LOCKSTEP
    tick_rate = 500.0
    ticks_per_input = 5

    def __init__(self) -> None:
        self._model = mujoco.MjModel.from_xml_string(XML)
        self._data = mujoco.MjData(self._model)
        mujoco.mj_forward(self._model, self._data)

    @property
    def time(self) -> float:
        return float(self._data.time)

    def content_hash(self) -> str:
        return hashlib.sha256(f"{XML}{RESTORE}{mujoco.__version__}".encode()).hexdigest()

    def act(self, agent_id: str, action: str, data: Json) -> None:
        if action == "Push" and isinstance(data, list) and len(data) == 3:
            self._data.xfrc_applied[1, :3] = data
        elif action != "Wait":
            raise InputError(f"unknown input {action!r}: use Push or Wait")

    def step(self) -> None:
        mujoco.mj_step(self._model, self._data)
        if RESTORE == "every_step":
            mujoco.mj_forward(self._model, self._data)

    def observe(self, agent_id: str) -> Mapping[str, Json]:
        return {
            "box": self._data.xpos[1].tolist(),
            "acceleration": self._data.sensordata.tolist(),
            "contacts": int(self._data.ncon),
        }

    def snapshot(self) -> Json:
        if RESTORE == "arrays":
            return {
                "time": self._data.time,
                "ncon": self._data.ncon,
                "arrays": {name: array.tolist() for name, array in self._arrays().items()},
            }
        state = np.empty(mujoco.mj_stateSize(self._model, INTEGRATION))
        mujoco.mj_getState(self._model, self._data, state, INTEGRATION)
        return {"integration": state.tolist()}

    def restore(self, state: Json) -> None:
        if RESTORE == "arrays":
            # Contacts are derived and not writable as an array, so they are derived first.
            for name in ("qpos", "qvel"):
                getattr(self._data, name)[:] = state["arrays"][name]
            self._data.time = state["time"]
            mujoco.mj_forward(self._model, self._data)
            for name, array in self._arrays().items():
                array[...] = np.reshape(state["arrays"][name], array.shape)
            return
        mujoco.mj_setState(self._model, self._data, np.array(state["integration"]), INTEGRATION)
        if RESTORE != "integration":
            mujoco.mj_forward(self._model, self._data)

    def _arrays(self) -> dict[str, np.ndarray]:
        names = (
            "qpos qvel qacc qacc_warmstart ctrl act qfrc_applied xfrc_applied xpos xquat xmat xipos"
            " ximat site_xpos site_xmat geom_xpos geom_xmat cvel cacc cfrc_ext cfrc_int sensordata"
        )
        return {name: getattr(self._data, name) for name in names.split()}


if __name__ == "__main__":
    serve(Derived())
