"""Carts: cart-poles on one rail, in MuJoCo, each balanced by an agent.

An example of a MuJoCo world on ``clawblox.server``. Its resume is exact: the snapshot contains
MuJoCo's whole integration state with the warm start of the solver, and agents see only values
computed from this state.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path

import mujoco  # type: ignore[import-untyped]
import numpy as np

from clawblox.server import Clock, InputError, Json, Simulation, serve

HERE = Path(__file__).parent
CARTS = (1, 2, 3)
STEPS_PER_TICK = 10
FALLEN_RAD = math.radians(60)
INTEGRATION = mujoco.mjtState.mjSTATE_INTEGRATION


class Carts(Simulation):
    """Three cart-poles; an agent that joins takes the first free one."""

    format = "mujoco-state-v1"
    api_doc = (HERE / "API.md").read_text(encoding="utf-8")
    clock = Clock.LOCKSTEP
    ticks_per_input = 2
    max_agents = len(CARTS)

    def __init__(self) -> None:
        self._model = mujoco.MjModel.from_xml_path(str(HERE / "carts.xml"))
        self._data = mujoco.MjData(self._model)
        self._drivers: dict[str, int] = {}
        self._names: dict[str, str] = {}
        self._upright_s = dict.fromkeys(CARTS, 0.0)
        self.tick_rate = 1.0 / self._tick_s

    @property
    def time(self) -> float:
        """MuJoCo's own clock."""
        return float(self._data.time)

    def content_hash(self) -> str:
        """Hash the compiled model and MuJoCo's version; a state depends on both."""
        compiled = np.zeros(mujoco.mj_sizeModel(self._model), np.uint8)
        mujoco.mj_saveModel(self._model, None, compiled)
        rules = f"{STEPS_PER_TICK} {FALLEN_RAD} {mujoco.__version__}"
        return hashlib.sha256(compiled.tobytes() + rules.encode()).hexdigest()

    def join(self, agent_id: str, name: str) -> None:
        """Give the agent the first free cart."""
        self._drivers[agent_id] = min(set(CARTS) - set(self._drivers.values()))
        self._names[agent_id] = name

    def leave(self, agent_id: str) -> None:
        """Free the cart; its motor stops."""
        cart = self._drivers.pop(agent_id)
        del self._names[agent_id]
        self._data.actuator(f"motor-{cart}").ctrl[0] = 0.0

    def act(self, agent_id: str, action: str, data: Json) -> None:
        """Set the force of the motor, or wait; the force holds until it is set again."""
        if action == "Push":
            self._data.actuator(f"motor-{self._drivers[agent_id]}").ctrl[0] = _read_force(data)
        elif action != "Wait":
            raise InputError(f"unknown input type {action!r}: use Push or Wait")

    def step(self) -> None:
        """Advance by ten MuJoCo steps: 0.02 s."""
        mujoco.mj_step(self._model, self._data, STEPS_PER_TICK)
        for cart in CARTS:
            if abs(self._joint(f"hinge-{cart}")[0]) < FALLEN_RAD:
                self._upright_s[cart] += self._tick_s

    def observe(self, agent_id: str) -> Mapping[str, Json]:
        """Return every cart; ``player`` names the agent's own."""
        return {
            "player": {"id": agent_id, "cart": self._drivers[agent_id]},
            "world": {"rail": [-3.0, 3.0], "entities": [self._describe(cart) for cart in CARTS]},
        }

    def snapshot(self) -> dict[str, Json]:
        """Return MuJoCo's integration state, the drivers and the scores."""
        state = np.empty(mujoco.mj_stateSize(self._model, INTEGRATION))
        mujoco.mj_getState(self._model, self._data, state, INTEGRATION)
        return {
            "integration": state.tolist(),
            "drivers": dict(self._drivers),
            "names": dict(self._names),
            "upright_s": [self._upright_s[cart] for cart in CARTS],
        }

    def restore(self, state: Json) -> None:
        """Restore a state that :meth:`snapshot` returned."""
        integration = np.array(state["integration"], dtype=np.float64)
        if integration.shape != (mujoco.mj_stateSize(self._model, INTEGRATION),):
            raise ValueError("the integration state has the wrong size")
        mujoco.mj_setState(self._model, self._data, integration, INTEGRATION)
        self._drivers, self._names = state["drivers"], state["names"]
        self._upright_s = dict(zip(CARTS, state["upright_s"], strict=True))

    @property
    def _tick_s(self) -> float:
        return float(self._model.opt.timestep) * STEPS_PER_TICK

    def _joint(self, name: str) -> tuple[float, float]:
        joint = self._data.joint(name)
        return float(joint.qpos[0]), float(joint.qvel[0])

    def _describe(self, cart: int) -> dict[str, Json]:
        position, velocity = self._joint(f"slide-{cart}")
        angle, angular_velocity = self._joint(f"hinge-{cart}")
        driver = next((agent for agent, driven in self._drivers.items() if driven == cart), None)
        return {
            "id": f"cart-{cart}",
            "driver": driver,
            "driver_name": None if driver is None else self._names[driver],
            "position": float(self._model.body(f"cart-{cart}").pos[0]) + position,
            "velocity": velocity,
            "angle": angle,
            "angular_velocity": angular_velocity,
            "force": float(self._data.actuator(f"motor-{cart}").ctrl[0]),
            "upright_s": self._upright_s[cart],
        }


def _read_force(data: Json) -> float:
    """Read ``{"force": number}`` from -1 to 1."""
    force: Json = data.get("force") if isinstance(data, dict) else None
    if type(force) not in (int, float) or not -1 <= force <= 1:
        raise InputError("Push needs data.force: a number from -1 to 1")
    return float(force)


if __name__ == "__main__":
    serve(Carts())
