"""``CollectionService``: instances by their tags."""

from __future__ import annotations

from typing import Any

from clawblox.engine.instances.instance import Instance
from clawblox.engine.instances.members import as_list, get_tags, text_argument, wrong_argument
from clawblox.engine.instances.spec import ClassTable
from clawblox.engine.instances.tags import TAG_ADDED, TAG_REMOVED, TAG_SERVICE


def _instance(value: Any, function: str) -> Instance:
    if not isinstance(value, Instance):
        raise wrong_argument(value, 1, function, "Instance")
    return value


def add_tag(service: Instance, instance: Any, tag: Any) -> Any:
    """``AddTag(instance, tag)``."""
    name = text_argument(tag, 2, "AddTag")
    service.model.tags.add(_instance(instance, "AddTag"), name)
    return ()


def remove_tag(service: Instance, instance: Any, tag: Any) -> Any:
    """``RemoveTag(instance, tag)``."""
    name = text_argument(tag, 2, "RemoveTag")
    service.model.tags.remove(_instance(instance, "RemoveTag"), name)
    return ()


def has_tag(service: Instance, instance: Any, tag: Any) -> Any:
    """``HasTag(instance, tag)``."""
    return text_argument(tag, 2, "HasTag") in _instance(instance, "HasTag").tags


def list_tags(service: Instance, instance: Any) -> Any:
    """``GetTags(instance)``, in the order in which they were added."""
    return get_tags(_instance(instance, "GetTags"))


def get_tagged(service: Instance, tag: Any) -> Any:
    """``GetTagged(tag)``: the instances below ``game``, in the order in which they were made."""
    return as_list(service.model.tags.tagged(text_argument(tag, 1, "GetTagged")))


def get_all_tags(service: Instance) -> Any:
    """``GetAllTags()``, sorted."""
    return as_list(service.model.tags.names())


def get_added_signal(service: Instance, tag: Any) -> Any:
    """``GetInstanceAddedSignal(tag)``: an instance below ``game`` has the tag now."""
    return service.signal(TAG_ADDED + text_argument(tag, 1, "GetInstanceAddedSignal"))


def get_removed_signal(service: Instance, tag: Any) -> Any:
    """``GetInstanceRemovedSignal(tag)``: an instance below ``game`` has the tag no more."""
    return service.signal(TAG_REMOVED + text_argument(tag, 1, "GetInstanceRemovedSignal"))


def add_collection(classes: ClassTable) -> None:
    """Give the service its members."""
    classes.add(
        TAG_SERVICE,
        methods={
            "AddTag": add_tag,
            "RemoveTag": remove_tag,
            "HasTag": has_tag,
            "GetTags": list_tags,
            "GetTagged": get_tagged,
            "GetAllTags": get_all_tags,
            "GetInstanceAddedSignal": get_added_signal,
            "GetInstanceRemovedSignal": get_removed_signal,
        },
    )
