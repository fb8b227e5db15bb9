"""The searches of ``Workspace``: rays, and parts in boxes, balls and parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from clawblox.engine.instances.instance import Instance
from clawblox.engine.instances.kinds import refuse_value
from clawblox.engine.instances.tree_changes import walk
from clawblox.engine.parts.pivots import part_box
from clawblox.engine.parts.poses import Box, ball_overlaps, boxes_overlap, rotation
from clawblox.engine.parts.syncing import Marks, part_shape
from clawblox.engine.physics.queries import Hit
from clawblox.engine.values.cframe import CFrame
from clawblox.engine.values.query_params import OverlapParams, QueryParams, RaycastResult
from clawblox.engine.values.value import as_list
from clawblox.engine.values.vector3 import triple
from clawblox.luau import HostValue, LuaTable, Vector, make_vector

_SEARCH_STEPS: Final = 100
_PART_STEPS: Final = 10  # of a part that may be a result
_BOX_STEPS: Final = 30  # of a part whose box is compared
_ORDER_STEPS: Final = 1  # of a part of the world, where results are put in order

Accept = Callable[[Instance], bool]


class Searches:
    """The query methods of ``Workspace``, with parts in tree order."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks

    # rays

    def raycast(self, workspace: Instance, origin: Any, direction: Any, params: Any) -> Any:
        """``Raycast(origin, direction, params)``: return the nearest hit, or nil."""
        start, way = _vector(origin, "origin"), _vector(direction, "direction")
        hit = self._first(workspace, start, way, self._filter(params))
        if hit is None:
            return None
        part = self._marks.find(hit.number)
        return RaycastResult(
            part,
            make_vector(*hit.position),
            Vector(*hit.normal),
            hit.distance,
            part.read("Material"),
        )

    def find_part_on_ray(self, workspace: Instance, ray: Any, ignored: Any) -> Any:
        """``FindPartOnRay(ray, ignored)`` and ``FindPartOnRayWithIgnoreList(ray, list)``.

        Returns part, position, normal and material; without a hit, nil and the end of the ray.
        """
        if not isinstance(ray, (HostValue, LuaTable)):
            raise refuse_value("ray", "Ray", ray)
        start, way = _vector(ray["Origin"], "Origin"), _vector(ray["Direction"], "Direction")
        listed = ignored.values() if isinstance(ignored, LuaTable) else (ignored,)
        roots = _numbers(listed)

        def accepts(part: Instance) -> bool:
            return bool(part.read("CanQuery")) and not _is_in(part, roots)

        hit = self._first(workspace, start, way, accepts)
        if hit is None:
            end = make_vector(start.x + way.x, start.y + way.y, start.z + way.z)
            return None, end, Vector(0.0, 0.0, 0.0), None
        part = self._marks.find(hit.number)
        return part, make_vector(*hit.position), Vector(*hit.normal), part.read("Material")

    find_part_on_ray_with_ignore_list = find_part_on_ray

    def _first(
        self, workspace: Instance, start: Vector, way: Vector, accepts: Accept
    ) -> Hit | None:
        """Return the nearest accepted hit of a ray; ties go to the first part in the tree."""
        self._refresh(workspace)
        charge = workspace.model.scheduler.charge
        find = self._marks.find
        length = math.sqrt(way.x * way.x + way.y * way.y + way.z * way.z)
        nearest: list[Hit] = []
        hits = self._marks.space.queries.ray(triple(start), triple(way), length)
        charge(len(hits) * _PART_STEPS)
        for hit in hits:
            if nearest and hit.distance > nearest[0].distance:
                break
            if accepts(find(hit.number)):
                nearest.append(hit)
        if len(nearest) < 2:
            return nearest[0] if nearest else None
        charge(len(self._marks.members) * _ORDER_STEPS)
        by_number = {find(hit.number).number: hit for hit in nearest}
        first = next(iter(_in_tree_order(workspace, by_number)))
        return by_number[first.number]

    # overlaps

    def get_part_bounds_in_box(
        self, workspace: Instance, frame: Any, size: Any, params: Any
    ) -> Any:
        """``GetPartBoundsInBox(cframe, size, params)``, based on bounding boxes."""
        if not isinstance(frame, CFrame):
            raise refuse_value("cframe", "CFrame", frame)
        box = Box(triple(frame.position), triple(_vector(size, "size")), frame.rotation)
        return self._bounded(workspace, params, lambda part: boxes_overlap(part_box(part), box))

    def get_part_bounds_in_radius(
        self, workspace: Instance, centre: Any, radius: Any, params: Any
    ) -> Any:
        """``GetPartBoundsInRadius(position, radius, params)``, based on bounding boxes."""
        at = triple(_vector(centre, "position"))
        if radius.__class__ is not float:
            raise refuse_value("radius", "number", radius)
        return self._bounded(
            workspace, params, lambda part: ball_overlaps(at, radius, part_box(part))
        )

    def get_parts_in_part(self, workspace: Instance, part: Any, params: Any) -> Any:
        """``GetPartsInPart(part, params)``, based on exact shapes."""
        if not isinstance(part, Instance) or "Part" not in part.spec.lineage:
            raise refuse_value("part", "BasePart", part)
        self._refresh(workspace)
        overlapping = self._marks.space.queries.overlapping(
            part_shape(part), triple(part.read("Position")), rotation(part)
        )
        numbers = dict.fromkeys(number for number in overlapping if number != part.number)
        steps = len(numbers) * _PART_STEPS + len(self._marks.members) * _ORDER_STEPS
        workspace.model.scheduler.charge(steps)
        return self._list(_in_tree_order(workspace, numbers), params)

    def _bounded(self, workspace: Instance, params: Any, is_inside: Accept) -> LuaTable:
        members = self._marks.members
        workspace.model.scheduler.charge(len(members) * _BOX_STEPS)
        parts = (instance for instance in walk(workspace) if instance.number in members)
        return self._list(filter(is_inside, parts), params)

    def _list(self, parts: Iterable[Instance], params: Any) -> LuaTable:
        accepted = list(filter(self._filter(params), parts))
        most = params.members["MaxParts"] if isinstance(params, OverlapParams) else 0.0
        return as_list(accepted[: int(most)] if most >= 1.0 else accepted)

    def _refresh(self, workspace: Instance) -> None:
        workspace.model.scheduler.charge(_SEARCH_STEPS)
        self._marks.bring()
        self._marks.space.refresh()

    def _filter(self, params: Any) -> Accept:
        """Return the predicate for parts that count."""
        if params is None:
            return lambda part: bool(part.read("CanQuery"))
        if not isinstance(params, QueryParams):
            raise refuse_value("params", "RaycastParams or OverlapParams", params)
        roots = _numbers(params.filtered)
        includes, members = params.includes, params.members
        group, respects = members["CollisionGroup"], members["RespectCanCollide"]
        finds = self._marks.groups.finds

        def accepts(part: Instance) -> bool:
            if not part.read("CanQuery") or _is_in(part, roots) is not includes:
                return False
            if respects and not part.read("CanCollide"):
                return False
            return finds(group, part.read("CollisionGroup"))

        return accepts


def _vector(value: Any, name: str) -> Vector:
    if value.__class__ is not Vector:
        raise refuse_value(name, "Vector3", value)
    return value


def _numbers(instances: Iterable[Any]) -> dict[int, None]:
    return dict.fromkeys(item.number for item in instances if isinstance(item, Instance))


def _is_in(part: Instance, roots: dict[int, None]) -> bool:
    """Return whether a part is one of some instances, or a descendant of one."""
    if not roots:
        return False
    ancestor: Instance | None = part
    while ancestor is not None:
        if ancestor.number in roots:
            return True
        ancestor = ancestor.parent
    return False


def _in_tree_order(workspace: Instance, numbers: Any) -> Iterator[Instance]:
    left = len(numbers)
    if left:
        for instance in workspace.descendants():
            if instance.number in numbers:
                yield instance
                left -= 1
                if not left:
                    return
