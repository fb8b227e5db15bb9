"""Events of instances: handlers, and threads that wait for them.

A signal or connection is a host object with an id, so scripts may keep it across a snapshot:
``17.Touched`` is the event ``Touched`` of instance 17, ``c5`` is the fifth connection.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from clawblox.engine.errors import suggest
from clawblox.engine.scheduler import START_STEPS, Scheduler
from clawblox.engine.slots import Slots
from clawblox.luau import Coroutine, Host, HostObject, HostType, RuntimeFault
from clawblox.luau.core.values import is_function
from clawblox.luau.runtime.suspension import Yield

_Object = TypeVar("_Object")

_CONNECTIONS_PER_STEP: Final = 8  # going through the handlers of a signal


class SignalConnection(HostObject):
    """A handler of a signal.

    Attributes:
        function: The handler; None after disconnection.
        once: Whether it runs for a single event only.
        has_run: Whether it has run.
        signal: The signal; None after disconnection.
    """

    __slots__ = ("function", "has_run", "number", "once", "signal")

    def __init__(self, host_type: HostType, number: int) -> None:
        super().__init__(host_type, f"c{number}")
        self.number = number
        self.signal: Signal | None = None
        self.function: Any = None
        self.once = False
        self.has_run = False

    def __getitem__(self, key: Any) -> Any:
        if key == "Connected":
            return self.function is not None
        return super().__getitem__(key)

    def held(self) -> tuple[Any, ...]:
        """Return the values that it keeps alive, to count against the memory limit."""
        return (self.function, self.signal)

    def _refusal(self, key: Any) -> str:
        return super()._refusal(key) + suggest(key, ("Connected", *self.host_type.methods))

    def disconnect(self) -> None:
        """Remove the handler, even from an event that is being fired."""
        signal = self.signal
        if signal is not None:
            self.function = self.signal = None
            signal.connections.remove(self)
            if not (signal.connections or signal.waiting):
                del signal.kept[signal.name]


class Signal(HostObject):
    """An event of an instance.

    Attributes:
        owner: The instance, kept alive by the signal.
        name: The event.
        connections: The handlers, in the order in which they were connected.
        waiting: The threads that wait for the event, by a number that grows with each wait.

    Args:
        kept: The owner's signals by name; this signal is among them while it has listeners.
    """

    __slots__ = ("connections", "hub", "kept", "name", "owner", "waiting")

    def __init__(
        self, hub: SignalHub, owner: HostObject, name: str, kept: dict[str, Signal]
    ) -> None:
        super().__init__(hub.signal_type, f"{owner.ident}.{name}")
        self.kept = kept
        self.hub = hub
        self.owner = owner
        self.name = name
        self.connections: list[SignalConnection] = []
        self.waiting: dict[int, Coroutine] = {}

    def held(self) -> tuple[Any, ...]:
        """Return the values that it keeps alive, to count against the memory limit."""
        return (self.owner, *self.connections, *self.waiting.values())

    def _refusal(self, key: Any) -> str:
        return super()._refusal(key) + suggest(key, self.host_type.methods)

    def connect(self, function: Any, *, once: bool = False) -> SignalConnection:
        """Add a handler.

        Raises:
            RuntimeFault: The value is not a function.
        """
        if not is_function(function):
            raise RuntimeFault("Attempt to connect failed: Passed value is not a function")
        self.hub.scheduler.charge(START_STEPS)
        connection = self.hub.make_connection()
        self.restore(connection, function, once=once)
        return connection

    def restore(self, connection: SignalConnection, function: Any, *, once: bool) -> None:
        """Add a connection with its handler."""
        connection.signal, connection.function, connection.once = self, function, once
        self.connections.append(connection)
        self.kept[self.name] = self

    def settle(self) -> None:
        """Add the signal to the owner's signals if it has listeners, else remove it."""
        if self.connections or self.waiting:
            self.kept[self.name] = self
        else:
            self.kept.pop(self.name, None)

    def wait(self) -> Yield:
        """Let the running thread wait for the event; return the exception to raise.

        The thread resumes when the event fires, after the handlers, with its arguments.

        Raises:
            LuaError: The thread cannot be suspended here.
        """
        thread, suspension = self.hub.scheduler.park()
        self.add_waiting(thread)
        return suspension

    def add_waiting(self, thread: Coroutine) -> None:
        """Add a parked thread to the threads that wait for the event."""
        self.hub.waits += 1
        self.waiting[self.hub.waits] = thread
        self.kept[self.name] = self

    def fire(self, *values: Any) -> None:
        """Run the handlers in order of connection, then the threads that wait for the event.

        Handlers disconnected by earlier handlers are skipped. Handlers that are connected during
        the event, and threads that wait again, get the next event.

        Raises:
            LuaError: The scripts have used up the steps of this tick.
            WorldHalted: A handler or thread fails, and the error halts the world.
        """
        scheduler = self.hub.scheduler
        scheduler.charge(START_STEPS * (len(self.connections) + len(self.waiting)))
        waits = tuple(self.waiting)
        for connection in tuple(self.connections):
            function = connection.function
            if function is None or (connection.once and connection.has_run):
                continue
            connection.has_run = True
            scheduler.run(function, *values)
            if connection.once:
                connection.disconnect()
        for wait in waits:
            thread = self.waiting.pop(wait, None)
            if thread is not None and thread.status == "suspended":
                scheduler.resume(thread, values)
        if waits:
            self.settle()


class SignalHub:
    """Creates signals and connections, and finds connections by id.

    Args:
        host: Registry of their types.
        scheduler: Runs the handlers.

    Attributes:
        scheduler: The same as the argument.
        made: Number of connections created so far.
        waits: Number of waits for signals so far; not in snapshots, since only their order counts.
    """

    def __init__(self, host: Host, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.signal_type = host.type(HostType("RBXScriptSignal"))
        self.connection_type = host.type(HostType("RBXScriptConnection"))
        self.made = 0
        self.waits = 0
        self._signals: WeakValueDictionary[str, Signal] = WeakValueDictionary()
        self._restored: WeakValueDictionary[int, SignalConnection] = WeakValueDictionary()
        _add_methods(host, self.signal_type, self.connection_type)

    def find_signal(self, owner: HostObject, name: str, kept: dict[str, Signal]) -> Signal:
        """Return the signal of an event whose name a script has chosen.

        It is the same object while it is referenced. The engine references only signals with
        listeners, so a script that requests endless signals does not use memory of the engine.

        Args:
            owner: The instance.
            name: The event.
            kept: The owner's signals by name.
        """
        ident = f"{owner.ident}.{name}"
        signal = self._signals.get(ident)
        if signal is None:
            signal = self._signals[ident] = Signal(self, owner, name, kept)
        return signal

    def make_connection(self) -> SignalConnection:
        """Return a new connection."""
        self.made += 1
        return SignalConnection(self.connection_type, self.made)

    def restored_connection(self, number: int) -> SignalConnection:
        """Return a snapshot's connection by number, disconnected at its first mention."""
        connection = self._restored.get(number)
        if connection is None:
            connection = self._restored[number] = SignalConnection(self.connection_type, number)
        return connection


def signal_document(signal: Signal, slots: Slots) -> list[Any]:
    """Return a signal with listeners for a snapshot."""
    connections = [
        [connection.number, slots.put(connection.function), connection.once]
        for connection in signal.connections
    ]
    return [signal.ident, connections, [slots.put(thread) for thread in signal.waiting.values()]]


def restore_signal(
    signal: Signal, connections: list[list[Any]], waiting: list[int], slots: Slots
) -> None:
    """Give a restored signal its handlers and waiting threads.

    Raises:
        ValueError: The snapshot is damaged.
    """
    hub = signal.hub
    for number, function, once in connections:
        handler = slots.take_function(function)
        signal.restore(hub.restored_connection(number), handler, once=once)
    for number in waiting:
        thread = slots.take_as(number, Coroutine)
        signal.add_waiting(thread)
        hub.scheduler.restore_parked(thread)


def _add_methods(host: Host, signal_type: HostType, connection_type: HostType) -> None:
    def connect(signal: Any = None, function: Any = None, *_: Any) -> Any:
        return _checked(signal, Signal, "Connect").connect(function)

    def once(signal: Any = None, function: Any = None, *_: Any) -> Any:
        return _checked(signal, Signal, "Once").connect(function, once=True)

    def wait(signal: Any = None, *_: Any) -> Any:
        raise _checked(signal, Signal, "Wait").wait()

    def disconnect(connection: Any = None, *_: Any) -> Any:
        signal = _checked(connection, SignalConnection, "Disconnect").signal
        if signal is not None:
            signal.hub.scheduler.charge(len(signal.connections) // _CONNECTIONS_PER_STEP)
            connection.disconnect()
        return ()

    methods = {signal_type: (connect, once, wait), connection_type: (disconnect,)}
    for host_type, functions in methods.items():
        for function in functions:
            name = function.__name__.capitalize()
            host_type.methods[name] = host.raw(f"{host_type.name}:{name}")(function)


def _checked(value: Any, wanted: type[_Object], name: str) -> _Object:
    if not isinstance(value, wanted):
        raise RuntimeFault(f"Expected ':' not '.' calling member function {name}")
    return value
