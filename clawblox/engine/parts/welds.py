"""Parts that are fixed to others by ``Weld``, ``Motor6D`` and ``WeldConstraint``.

A welded part follows the other, even if it is anchored: its body belongs to the rigid body of the
part at the root. If two joints contradict each other, the joint with the larger number counts; a
joint that would close a cycle is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from clawblox.engine.instances.instance import Instance
from clawblox.engine.parts.poses import read_cframe, write_pose
from clawblox.engine.values.cframe import CFrame, invert, make_cframe, multiply
from clawblox.engine.values.rotations import about_axis

OFFSET: Final = "Offset"
"""Key of `Instance.props`: the pose of a joint's second part relative to the first."""


_MOTOR: Final = "Motor6D"
FRAME_JOINTS: Final = ("Weld", _MOTOR)
"""The classes of joints that position the second part with ``C0`` and ``C1``."""
JOINTS: Final = (*FRAME_JOINTS, "WeldConstraint")
_Z: Final = 2  # the axis of a motor

Link = tuple[Instance, Instance, CFrame]
"""The leader of a part, the part, and its pose relative to the leader."""


class Fixture(NamedTuple):
    """Attachment of a part: its leader, its root, and its poses relative to both."""

    part: Instance
    leader: Instance
    root: Instance
    in_leader: CFrame
    in_root: CFrame


class Welds:
    """The joints below Workspace, and the parts that they fix to others.

    Attributes:
        joints: The joints below Workspace, by number.
        motors: The joints that can turn, by number.
        fixtures: The fixed parts by number, each after its leader.
    """

    def __init__(self, members: Mapping[int, Instance], characters: Mapping[int, None]) -> None:
        self.joints: dict[int, Instance] = {}
        self.motors: dict[int, Instance] = {}
        self.fixtures: dict[int, Fixture] = {}
        self._members = members
        self._characters = characters

    def follow(self, joint: Instance) -> None:
        """Add a joint that has entered Workspace, or remove it after it has left."""
        joint.list_in(self.joints)
        if joint.spec.name == _MOTOR:
            joint.list_in(self.motors)

    def turn(self) -> bool:
        """Turn the motors towards their angles for one tick; return whether any has turned."""
        has_turned = False
        for motor in self.motors.values():
            angle, goal = motor.read("CurrentAngle"), motor.read("DesiredAngle")
            most = motor.read("MaxVelocity")
            if angle != goal and most > 0.0:
                motor.store("CurrentAngle", max(angle - most, min(angle + most, goal)))
                has_turned = True
        return has_turned

    def resolve(self) -> None:
        """Recompute which parts are fixed to which."""
        links: dict[int, Link] = {}
        for number in sorted(self.joints):
            link = self._link(self.joints[number])
            if link is None:
                continue
            leader, part, offset = link
            if not _leads_to(links, leader, part):
                links[part.number] = (leader, part, offset)
        self.fixtures = {}
        for number in links:
            self._fix(number, links)

    def _fix(self, number: int, links: dict[int, Link]) -> None:
        chain = []
        at: int | None = number
        while at in links and at not in self.fixtures:
            chain.append(at)
            at = links[at][0].number
        for follower in reversed(chain):
            leader, part, offset = links[follower]
            above = self.fixtures.get(leader.number)
            root, in_root = leader, offset
            if above is not None:
                root, in_root = above.root, multiply(above.in_root, offset)
            self.fixtures[follower] = Fixture(part, leader, root, offset, in_root)

    def _link(self, joint: Instance) -> Link | None:
        """Return the link of an effective joint, or None."""
        leader, part = joint.read("Part0"), joint.read("Part1")
        members = self._members
        if leader is None or part is None or leader is part or not joint.read("Enabled"):
            return None
        if leader.number not in members or part.number not in members:
            return None
        if joint.spec.name == "WeldConstraint":
            offset = joint.props.get(OFFSET)
            if offset is None:
                offset = multiply(invert(read_cframe(leader)), read_cframe(part))
                joint.props[OFFSET] = offset
            is_held = part.read("Anchored") and not leader.read("Anchored")
            if is_held and leader.number not in self._characters:
                return part, leader, invert(offset)
        else:
            offset = multiply(_first_frame(joint), invert(joint.read("C1")))
        return None if part.number in self._characters else (leader, part, offset)

    def apply(self) -> None:
        """Move each fixed part along with its leader."""
        for part, leader, _, offset, _ in self.fixtures.values():
            frame = multiply(read_cframe(leader), offset)
            if frame != read_cframe(part):
                write_pose(part, frame.position, frame.rotation)


def _first_frame(joint: Instance) -> CFrame:
    """Return ``C0``, for a motor combined with its angle and ``Transform``."""
    frame: CFrame = joint.read("C0")
    if joint.spec.name != _MOTOR:
        return frame
    turn = make_cframe(0.0, 0.0, 0.0, about_axis(_Z, joint.read("CurrentAngle")))
    return multiply(multiply(frame, turn), joint.read("Transform"))


def _leads_to(links: Mapping[int, Link], leader: Instance, part: Instance) -> bool:
    """Return whether a part already leads, directly or indirectly, its intended leader."""
    at = leader
    while at is not part:
        link = links.get(at.number)
        if link is None:
            return False
        at = link[0]
    return True
