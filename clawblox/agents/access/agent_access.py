"""AgentAccess: the address under which one agent knows its world, and the proxy behind it.

The address is recorded in ``<agent dir>/world_access.json``, because the agent's conversation
contains it; if it changed, the agent could not be resumed. An agent outside the sandbox gets a port
of its own. A sandboxed agent gets ``http://<name of the world>``; each of its processes passes on a
listening socket in its network namespace.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import weakref
from typing import Any, Final

import anyio
import anyio.abc
import attrs
import msgspec

from clawblox.agents.access.grant import Grant, host_name
from clawblox.agents.access.proxy import Proxy, ProxyLimits
from clawblox.agents.layout import AgentDir
from clawblox.errors import AgentResumeError, AgentSetupError, UsageError
from clawblox.system.files import make_private_dir, publish_bytes
from clawblox.system.port_leases import LEASE_RANGE
from clawblox.system.ports import (
    NoFreePort,
    PortBusy,
    PortLease,
    open_listener,
    take_free_port,
    take_port,
)
from clawblox.system.record_file import RecordError, RecordFormat
from clawblox.system.sockets import close_in_forked_child

_HOST: Final = "127.0.0.1"
MAX_RECORD_BYTES: Final = 64 << 10
_RECORD_HINT: Final = "restore the file; without it, the agent gets another address"
_PORT_URL = re.compile(rf"http://{re.escape(_HOST)}:([1-9][0-9]{{0,4}})")
_NAME_URL = re.compile(r"http://([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)")


@attrs.frozen
class _RecordedAddress:
    base_url: str


_FORMAT: Final = RecordFormat(
    kind="the record of an address",
    decoder=msgspec.json.Decoder(_RecordedAddress),
    max_bytes=MAX_RECORD_BYTES,
    hint=_RECORD_HINT,
)

_holders: weakref.WeakValueDictionary[int, AgentAccess] = weakref.WeakValueDictionary()
"""Holder of each port in this process, by port number."""


@attrs.define(eq=False, slots=False)
class AgentAccess:
    """One agent's access to its world. Thread-safe, except :meth:`serve`.

    Args:
        agent: Full name of the agent.
        directory: Its directory.
        is_sandboxed: Whether its programs run in the sandbox.
        limits: Its limits in the proxy.
    """

    _agent: str
    _directory: AgentDir
    _is_sandboxed: bool = attrs.field(kw_only=True)
    _limits: ProxyLimits = attrs.field(factory=ProxyLimits, kw_only=True)

    def __attrs_post_init__(self) -> None:
        self._address_lock = threading.Lock()  # also held during disk access
        self._lock = threading.Lock()
        self._granted: Grant | None = None
        self._base_url: str | None = None
        self._own: tuple[PortLease, socket.socket] | None = None
        self._is_resting = False
        self._is_closed = False
        self._listeners: set[socket.socket] = set()
        self._served: set[socket.socket] = set()
        self._changed: int | None = None

    @property
    def granted(self) -> Grant | None:
        """Latest grant of a world; None before the first."""
        return self._granted

    @property
    def base_url(self) -> str | None:
        """Address under which the agent knows its world; None before the first grant."""
        return self._base_url

    @property
    def host(self) -> str | None:
        """Host name that must resolve to 127.0.0.1 in the sandbox; None without a sandbox."""
        named = _NAME_URL.fullmatch(self._base_url or "")
        return named[1] if named else None

    # -- its address --------------------------------------------------------------------------

    def begin(self) -> None:
        """Allow addresses to be opened again after :meth:`close`."""
        self._is_closed = False

    def grant(self, grant: Grant) -> str:
        """Give the agent access to a world, replacing any previous world. Blocks.

        The address accepts connections immediately and answers while :meth:`serve` runs.

        Args:
            grant: The grant of the world.

        Returns:
            The address under which the agent knows the world.

        Raises:
            UsageError: The access was closed, so nothing would release the address.
            AgentResumeError: The agent knows its world under an address that is no longer
                available.
            AgentSetupError: No address is available, or the address cannot be recorded.
        """
        with self._address_lock:
            self._require_begun()
            self._is_resting = False
            recorded = self.read_recorded()
            base_url = self._base_url or recorded or self._new_address(grant.world)
            self._open_at(base_url)
            try:
                if recorded is None:
                    self._record(base_url, grant.world)
            except BaseException:
                self._give_back()
                raise
            self._base_url, self._granted = base_url, grant
        self._note_change()
        return base_url

    def open(self) -> None:
        """Reopen the address if it was handed over; do nothing before a grant. Blocks.

        Raises:
            UsageError: The access was closed.
            AgentResumeError: The address is in use.
        """
        with self._address_lock:
            self._require_begun()
            self._is_resting = False
            if self._base_url is not None:
                self._open_at(self._base_url)
        self._note_change()

    def rest(self) -> None:
        """Keep the address, but allow another agent of this process to take it if needed.

        Another agent needs it to continue this agent's conversation from a checkpoint.
        """
        self._is_resting = True

    def close(self) -> None:
        """Release the address and close the sockets of processes. Idempotent.

        :meth:`serve` closes the sockets that it uses. No address can be opened until :meth:`begin`,
        because a thread may still try for a cancelled caller.
        """
        with self._address_lock:
            self._is_closed = True
            self._give_back()

    def _require_begun(self) -> None:
        if self._is_closed:
            raise UsageError(
                "this agent was closed in the meantime", hint="connect it while it is open"
            )

    def hand_over(self, listener: socket.socket | None) -> None:
        """Serve on the listening socket of a new process too, and close the previous socket.

        Args:
            listener: The socket; this object takes ownership. None for a process that is not in a
                sandbox.
        """
        with self._lock:
            own = set() if self._own is None else {self._own[1]}
            for old in self._listeners - own - self._served:
                old.close()  # sockets still being served are closed later
            self._listeners = own
            if listener is not None:
                listener.setblocking(False)
                close_in_forked_child(listener)
                self._listeners.add(listener)
        self._note_change()

    def _give_back(self) -> None:
        with self._lock:
            for listener in self._listeners - self._served:
                listener.close()
            self._listeners.clear()
            own, self._own = self._own, None
        if own is not None:
            own[0].release()
        self._note_change()

    def _new_address(self, world: str) -> str:
        if self._is_sandboxed:
            return f"http://{host_name(world)}"
        try:
            lease = take_free_port(_HOST)
        except (NoFreePort, OSError) as error:
            raise AgentSetupError(f"no address is available for it: {error}") from error
        self._keep(*self._listen(lease))
        return f"http://{_HOST}:{lease.port}"

    def _open_at(self, base_url: str) -> None:
        """Open the port of the address, if it has a port."""
        port_url = _PORT_URL.fullmatch(base_url)
        if port_url is None or self._own is not None:
            return
        port = int(port_url[1])
        holder = _holders.get(port)
        try:
            own = None if holder is None else holder._hand_on()
            self._keep(*(own or self._listen(take_port(_HOST, port))))
        except (PortBusy, OSError) as error:
            raise self._busy_error(base_url, port, error) from error

    def _hand_on(self) -> tuple[PortLease, socket.socket] | None:
        """Hand over the port with its listening socket if the agent rests; else return None.

        The socket is a duplicate. This object may still be serving its own socket, but accepts no
        more connections there, and closes it when it stops.
        """
        # An agent that uses its address does not rest; waiting for it could take forever.
        if not self._address_lock.acquire(blocking=False):
            return None
        try:
            with self._lock:
                if not self._is_resting or self._own is None:
                    return None
                lease, listener = self._own
                duplicate = listener.dup()
                self._own = None
                self._listeners.discard(listener)
                if listener not in self._served:
                    listener.close()
            self._note_change()
            return lease, duplicate
        finally:
            self._address_lock.release()

    def _busy_error(self, base_url: str, port: int, error: Exception) -> AgentResumeError:
        holder = _holders.get(port)
        if holder is not None and holder._own is not None:
            owner = f"by the agent {holder._agent} of this process"
            problem, advice = f"taken {owner}", f"stop that agent: it uses port {port}"
        else:
            problem = f"taken: {error}"
            advice = (
                f"stop the program that uses port {port}, such as another run from the same"
                " checkpoint; a stopped agent there keeps its address until its close()"
            )
        return AgentResumeError(
            f"it knows its world as {base_url}, and that address is {problem}",
            hint=f"{advice}; agents with sandbox=True have addresses that no other run can take",
        )

    def _listen(self, lease: PortLease) -> tuple[PortLease, socket.socket]:
        try:
            return lease, open_listener(_HOST, lease.port)
        except BaseException:
            lease.release()
            raise

    def _keep(self, lease: PortLease, listener: socket.socket) -> None:
        listener.setblocking(False)
        close_in_forked_child(listener)
        with self._lock:
            self._own = lease, listener
            _holders[lease.port] = self
            self._listeners.add(listener)

    # -- its record ---------------------------------------------------------------------------

    def read_recorded(self) -> str | None:
        """Return the recorded address; None if the agent never had an address. Blocks.

        Raises:
            AgentResumeError: The record cannot be read, or the agent cannot reach the address from
                this sandbox.
        """
        path = self._directory.access_file
        try:
            record = _FORMAT.read(path)
        except RecordError as error:
            raise AgentResumeError(f"{path} {error.problem}", hint=error.hint) from error
        if record is None:
            return None
        base_url = record.base_url
        port_url, is_name = _PORT_URL.fullmatch(base_url), bool(_NAME_URL.fullmatch(base_url))
        # A foreign archive may name any port, such as the port of a login service.
        is_port = port_url is not None and int(port_url[1]) in LEASE_RANGE
        if not is_port and not is_name:
            message = f"{path} has no address that clawblox gives: {base_url!r:.200}"
            raise AgentResumeError(message, hint=_RECORD_HINT)
        if is_name is not self._is_sandboxed:
            message = f"it knows its world as {base_url}, which it cannot reach with this sandbox"
            hint = f"create the agent with sandbox={is_name}, as before"
            raise AgentResumeError(message, hint=hint)
        return str(base_url)

    def _record(self, base_url: str, world: str) -> None:
        text = json.dumps({"base_url": base_url, "world": world}, indent=2)
        try:
            make_private_dir(self._directory.path)
            publish_bytes(self._directory.access_file, f"{text}\n".encode())
        except OSError as error:
            raise AgentSetupError(f"its address cannot be recorded: {error}") from error

    # -- serving ------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Serve the agent until cancelled, including sockets added later.

        Serving lasts as long as the agent is open, even while its program does not run: scripts
        read the world's documentation through the address before they start the program.

        Cancellation: pending requests are dropped. The address stays open until :meth:`close`.
        """
        proxy = Proxy(
            self._agent,
            lambda: self._granted,
            self._hosts,
            self._limits,
            is_private=self._is_sandboxed,
        )
        self._changed = changed = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        serving: dict[socket.socket, anyio.CancelScope] = {}
        try:
            async with anyio.create_task_group() as tasks:
                while True:
                    with self._lock:
                        gone = serving.keys() - self._listeners
                        new = self._listeners - serving.keys()
                        self._served |= new
                    for listener in gone:
                        serving.pop(listener).cancel()
                    for listener in new:
                        scope = serving[listener] = anyio.CancelScope()
                        tasks.start_soon(self._serve_listener, proxy, listener, scope)
                    await anyio.wait_readable(changed)
                    os.eventfd_read(changed)
        finally:
            proxy.close()
            with self._lock:
                self._changed = None
                os.close(changed)

    async def _serve_listener(
        self, proxy: Proxy, listener: socket.socket, scope: anyio.CancelScope
    ) -> None:
        try:
            with scope:
                await proxy.serve(listener, self._accept)
        finally:
            with self._lock:
                self._served.discard(listener)
                if listener not in self._listeners:
                    listener.close()

    def _accept(self, listener: socket.socket) -> tuple[socket.socket, Any]:
        """Accept a connection, unless the socket was closed or handed over.

        Raises:
            OSError: No connection is pending.
        """
        with self._lock:
            if listener not in self._listeners:
                raise BlockingIOError("this socket is no longer served")
            return listener.accept()

    def _hosts(self) -> frozenset[str]:
        """Return the values that the Host header of a request may have."""
        authority = (self._base_url or "").removeprefix("http://")
        name, _, port = authority.partition(":")
        others = {f"localhost:{port}"} if port else {f"{name}:80"}
        return frozenset({authority, *others})

    def _note_change(self) -> None:
        with self._lock:
            if self._changed is not None:
                os.eventfd_write(self._changed, 1)
