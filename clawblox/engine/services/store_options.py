"""``DataStoreOptions`` and ``DataStoreSetOptions``: options of data store calls."""

from __future__ import annotations

from typing import Any

from clawblox.engine.instances.instance import METADATA, Instance
from clawblox.engine.instances.members import wrong_argument
from clawblox.engine.instances.spec import ClassTable, methods_in
from clawblox.engine.json_text import read_text, write_text
from clawblox.luau import LuaTable, RuntimeFault


def set_metadata(options: Instance, metadata: Any) -> Any:
    """``SetMetadata(metadata)``: set the metadata that ``SetAsync`` stores with a value."""
    if not isinstance(metadata, LuaTable):
        raise wrong_argument(metadata, 1, "SetMetadata", "table")
    try:
        text = write_text(metadata, options.model.scheduler.charge, strict=True)
    except ValueError as error:
        raise RuntimeFault(f"SetMetadata: {error}") from None
    options.props[METADATA] = text.encode().decode("latin-1")
    return ()


def get_metadata(options: Instance) -> Any:
    """``GetMetadata()``: return a new table."""
    text = options.props.get(METADATA, "{}").encode("latin-1").decode()
    return read_text(text, options.model.scheduler.charge, sort=True)


def set_experimental_features(store_options: Instance, features: Any) -> Any:
    """``SetExperimentalFeatures(features)``, without effect."""
    return ()


def add_store_options(classes: ClassTable) -> None:
    """Add the methods of the options."""
    classes.add("DataStoreOptions", methods=methods_in(globals(), "store_options"))
    classes.add("DataStoreSetOptions", methods=methods_in(globals(), "options"))
