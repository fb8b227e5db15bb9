"""``HttpService``: JSON and unique names. It makes no requests."""

from __future__ import annotations

import uuid
from typing import Any

from clawblox.engine.instances.instance import Instance
from clawblox.engine.instances.spec import ClassTable
from clawblox.engine.json_text import read_text, write_text
from clawblox.luau import RuntimeFault


def json_encode(service: Instance, value: Any) -> Any:
    """``JSONEncode(value)``: with sorted keys; what has no JSON form becomes null."""
    try:
        text = write_text(value, service.model.scheduler.vm.charge, strict=False)
    except ValueError as error:
        raise RuntimeFault(f"JSONEncode: {error}") from None
    return text.encode("utf-8", "replace").decode("latin-1")


def json_decode(service: Instance, text: Any) -> Any:
    """``JSONDecode(text)``: nil for null, and for what is no JSON."""
    if not isinstance(text, str):
        return None
    try:
        decoded = text.encode("latin-1").decode()
        return read_text(decoded, service.model.scheduler.vm.charge)
    except ValueError:
        return None


def generate_guid(service: Instance, in_braces: Any) -> Any:
    """``GenerateGUID(inBraces)``: from the random numbers of the world, so a replay repeats it."""
    random = service.model.scheduler.vm.random
    number = 0
    for _ in range(4):
        number = number << 32 | random.next()
    text = str(uuid.UUID(int=number, version=4)).upper()
    return text if in_braces is False else f"{{{text}}}"


def add_http(classes: ClassTable) -> None:
    """Give the service its members."""
    classes.add(
        "HttpService",
        methods={
            "JSONEncode": json_encode,
            "JSONDecode": json_decode,
            "GenerateGUID": generate_guid,
        },
    )
