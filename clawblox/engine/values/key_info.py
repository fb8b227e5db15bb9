"""``DataStoreKeyInfo``: the metadata that a data store keeps with a value."""

from __future__ import annotations

from typing import Any, ClassVar

import attrs

from clawblox.engine.json_text import read_text
from clawblox.engine.values.value import Getters, Value, attributes, checked, instance_check
from clawblox.luau import LuaTable
from clawblox.luau.core.machine import current


@attrs.define(eq=False, repr=False)
class DataStoreKeyInfo(Value):
    """The times of a value's writes, and its user ids and metadata.

    Args:
        created: Time of the key's first write, in milliseconds of simulated time.
        updated: Time of this value's write, in milliseconds of simulated time.
        version: A text that increases with each write.
        tags: User ids and metadata as JSON text in UTF-8, as a Luau string; empty for none.
    """

    created: float
    updated: float
    version: str
    tags: str

    type_name = "DataStoreKeyInfo"
    kinds = (float, float, str, str)
    getters: ClassVar[Getters] = attributes(
        CreatedTime="created", UpdatedTime="updated", Version="version"
    )

    def text(self) -> str:
        """Return the name of the type."""
        return self.type_name

    def read_tag(self, name: str) -> LuaTable:
        """Return a new table of user ids or metadata, possibly empty."""
        if not self.tags:
            return LuaTable()
        text = self.tags.encode("latin-1").decode("utf-8", "replace")
        tags: Any = read_text(text, current.vm.charge, sort=True)
        table = tags.get(name) if isinstance(tags, LuaTable) else None
        return table if isinstance(table, LuaTable) else LuaTable()


_info = instance_check(DataStoreKeyInfo, DataStoreKeyInfo.type_name)


@checked(DataStoreKeyInfo.methods, "GetUserIds", _info)
def _user_ids(info: DataStoreKeyInfo) -> LuaTable:
    return info.read_tag("user_ids")


@checked(DataStoreKeyInfo.methods, "GetMetadata", _info)
def _metadata(info: DataStoreKeyInfo) -> LuaTable:
    return info.read_tag("metadata")
