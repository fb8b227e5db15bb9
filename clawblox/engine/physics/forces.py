"""What makes dynamic bodies move: velocities, impulses and forces."""

from __future__ import annotations

from rapier3d import Vec3

from clawblox.engine.physics.bodies import DYNAMIC, Bodies
from clawblox.engine.physics.numbers import FASTEST_TURN, Triple, checked


class Forces:
    """Velocities of bodies, and what changes them; nothing happens to one that is not dynamic."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._pushed: dict[int, None] = {}

    def velocity(self, number: int) -> tuple[Triple, Triple]:
        """Return the linear (studs/s) and angular (rad/s) velocity of a body."""
        rigid = self._bodies.by_number[number].rigid
        return rigid.linvel.to_tuple(), rigid.angvel.to_tuple()

    def set_velocity(
        self, number: int, linear: Triple | None = None, angular: Triple | None = None
    ) -> None:
        """Set what is given of the velocity of a dynamic body; others have none.

        Raises:
            ValueError: A number is not finite.
        """
        body = self._bodies.by_number[number]
        is_dynamic = body.traits.motion is DYNAMIC
        if linear is not None:
            linear = checked("A velocity", linear)
            if is_dynamic:
                body.rigid.linvel = Vec3(*linear)
        if angular is not None:
            angular = checked("An angular velocity", angular, FASTEST_TURN)
            if is_dynamic:
                body.rigid.angvel = Vec3(*angular)
        body.rigid.wake_up()

    def root(self, number: int) -> int | None:
        """Return the body that a body is fixed to, itself if it is free; None without a body."""
        body = self._bodies.by_number.get(number)
        return None if body is None else body.fixed_to or number

    def is_dynamic(self, number: int) -> bool:
        """Return whether forces move a body."""
        return number in self._bodies.dynamic

    def body_mass(self, number: int) -> float:
        """Return the mass of a dynamic body with all that is fixed to it."""
        return self._bodies.by_number[number].rigid.mass

    def push(self, number: int, force: Triple, at: Triple | None = None) -> None:
        """Let a force act on a dynamic body during the next step.

        Args:
            number: The body.
            force: The force, in mass times studs per second squared.
            at: The point in the world where it acts; None is the centre of mass.

        Raises:
            ValueError: A number is not finite.
        """
        rigid = self._bodies.dynamic[number].rigid
        checked("A force", force)
        self._pushed[number] = None
        if at is None:
            rigid.add_force(force)
        else:
            rigid.add_force_at_point(force, checked("A position", at))

    def twist(self, number: int, torque: Triple) -> None:
        """Let a torque act on a dynamic body during the next step.

        Raises:
            ValueError: A number is not finite.
        """
        checked("A torque", torque)
        self._pushed[number] = None
        self._bodies.dynamic[number].rigid.add_torque(torque)

    def inertia_times(self, number: int, change: Triple) -> Triple:
        """Return a body's moment of inertia times a vector, such as an angular acceleration."""
        rigid = self._bodies.by_number[number].rigid
        properties = rigid.mass_properties
        frame = rigid.rotation * properties.principal_inertia_local_frame
        x, y, z = frame.inverse().transform_vector(change).to_tuple()
        a, b, c = properties.principal_inertia.to_tuple()
        impulse: Triple = frame.transform_vector((a * x, b * y, c * z)).to_tuple()
        return impulse

    def apply_impulse(self, number: int, impulse: Triple, at: Triple | None = None) -> None:
        """Change the velocity of a dynamic body at once.

        Args:
            number: The body; nothing happens to one that is not dynamic.
            impulse: Mass times studs per second.
            at: The point in the world where it acts; None is the centre of mass.

        Raises:
            ValueError: A number is not finite.
        """
        body = self._bodies.dynamic.get(number)
        checked("An impulse", impulse)
        if body is None:
            return
        if at is None:
            body.rigid.apply_impulse(impulse)
        else:
            body.rigid.apply_impulse_at_point(impulse, checked("A position", at))

    def apply_angular_impulse(self, number: int, impulse: Triple) -> None:
        """Change the angular velocity of a dynamic body at once.

        Raises:
            ValueError: A number is not finite.
        """
        body = self._bodies.dynamic.get(number)
        checked("An impulse", impulse)
        if body is not None:
            body.rigid.apply_torque_impulse(impulse)

    def end(self) -> None:
        """Take away the forces and torques of a step that is over."""
        for number in self._pushed:
            rigid = self._bodies.dynamic[number].rigid
            rigid.reset_forces(False)
            rigid.reset_torques(False)
        self._pushed.clear()
