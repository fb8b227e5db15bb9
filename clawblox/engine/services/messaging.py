"""``MessagingService``: messages between the scripts of a world, by topic.

A world is a single place, so a message reaches the subscribers of its own world, in the next tick.
Until then it waits like a thread, and counts as a thread for memory, steps and snapshots.
"""

from __future__ import annotations

from typing import Any, Final

from clawblox.engine.instances.instance import DataModel, Instance
from clawblox.engine.instances.members import instance_argument, text_argument
from clawblox.engine.instances.spec import methods_in
from clawblox.engine.json_text import read_text
from clawblox.engine.scheduler import TICK_S
from clawblox.engine.services.data_stores import value_text
from clawblox.luau import LuaTable, RuntimeFault

MOST_BYTES: Final = 1024
"""Maximum length of a message as JSON text, as in Roblox."""
MOST_LETTERS: Final = 80
"""Maximum length of a topic in bytes, as in Roblox."""
_TOPIC: Final = "*"  # prefix of the names of topic signals
_DELIVER: Final = "MessagingService.deliver"


def deliver(service: Any = None, topic: Any = None, text: Any = None, sent: Any = None) -> Any:
    """Deliver a message to the subscribers of its topic, in its own thread."""
    messaging = instance_argument(service, 1, "deliver")
    name, message = text_argument(topic, 2, "deliver"), text_argument(text, 3, "deliver")
    try:  # a snapshot may be damaged
        decoded = message.encode("latin-1").decode()
        data = read_text(decoded, messaging.model.scheduler.charge, sort=True)
    except ValueError as error:
        raise RuntimeFault(f"the message is damaged: {error}") from None
    messaging.fire(_TOPIC + name, LuaTable({"Data": data, "Sent": sent}))
    return ()


def _topic(value: Any, method: str) -> str:
    topic = text_argument(value, 1, method)
    if not 0 < len(topic) <= MOST_LETTERS:
        raise RuntimeFault(f"{method}: the topic must have 1 to {MOST_LETTERS} bytes")
    return topic


def publish_async(messaging: Instance, topic: Any, message: Any) -> Any:
    """``PublishAsync(topic, message)``, delivered to this world's subscribers in the next tick."""
    model, name = messaging.model, _topic(topic, "PublishAsync")
    text = value_text(message, model.scheduler.charge).encode()
    if len(text) > MOST_BYTES:
        raise RuntimeFault(
            f"PublishAsync: the message must have at most {MOST_BYTES} bytes as JSON, "
            f"not {len(text)}"
        )
    values = (messaging, name, text.decode("latin-1"), model.scheduler.time)
    model.scheduler.start_later(TICK_S, model.host.functions[_DELIVER], values)
    return ()


def subscribe_async(messaging: Instance, topic: Any, callback: Any) -> Any:
    """``SubscribeAsync(topic, callback)``: call back with ``Data`` and ``Sent``.

    ``Sent`` is in seconds of simulation time.
    """
    return messaging.signal(_TOPIC + _topic(topic, "SubscribeAsync")).connect(callback)


def add_messaging(model: DataModel) -> None:
    """Add the methods of the service, and let snapshots store messages."""
    model.host.raw(_DELIVER)(deliver)
    model.classes.add("MessagingService", methods=methods_in(globals(), "messaging"))
