"""``GET /metrics`` for Prometheus, on loopback; needs the extra ``clawblox[metrics]``.

Each scrape converts :class:`~clawblox.telemetry.metrics.Metrics` into metric families. They are
served from separate threads, so that scrapes and the event loop never wait for each other.
``metrics`` defines the counters. No other module imports prometheus_client.
"""

from __future__ import annotations

import contextlib
import re
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from time import monotonic
from typing import TYPE_CHECKING, Any, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import anyio
import attrs

from clawblox.concurrency.tasks import in_own_task
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ConfigError, UsageError
from clawblox.extras import install_command
from clawblox.host_gate import find_refusal
from clawblox.protocol import TickRate
from clawblox.results import Labels, format_label
from clawblox.telemetry.metrics import AgentMetrics, Histogram, Metrics
from clawblox.telemetry.own_log import OwnLog

try:
    from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )
    from prometheus_client.registry import Collector
    from prometheus_client.utils import floatToGoString
except ImportError as error:
    raise UsageError(
        "the metrics endpoint needs prometheus-client", hint=install_command("metrics")
    ) from error

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


_HOST = "127.0.0.1"
_PATH = "/metrics"
_LOOPBACK_NAME = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d+)?", re.IGNORECASE)
_CLIENT_TIMEOUT_S = 5.0
_SCRAPE_TIMEOUT_S = 10.0
"""Maximum duration of a connection, in seconds, even if the client keeps sending."""
_MAX_CONNECTIONS = 32
_ACCEPT_PAUSE_S = 0.5
_SHUTDOWN_POLL_S = 0.1

_HELP = dict(re.findall(r"^ +(\w+): (.+)$", Metrics.__doc__ or "", re.MULTILINE))
"""Descriptions of counters and histograms, from their docstring."""

_log = OwnLog(__name__)


@attrs.define(eq=False)
class MetricsEndpoint(Collector):
    """Serves metrics on 127.0.0.1 during its block; an async context manager.

    It also reports the number of instances by state, the labels of each instance, and CPU time,
    memory and descriptors of this process. It answers only requests that name a loopback host and
    do not come from a web page, because a page can make its own host name resolve to 127.0.0.1.

    Args:
        read_metrics: Returns the current metrics. All these functions are called in threads other
            than the event loop's.
        read_states: Returns the number of instances by state.
        read_labels: Returns the labels of the instances by name. They become the labels
            ``label_<name>`` of ``clawblox_instance_info``, which can be joined with other series.
        read_agents: Returns the usage of the agents.
        read_rates: Returns the tick rates of the worlds by instance name.
        port: The port; 0 takes any free port.
    """

    _read_metrics: Callable[[], Metrics]
    _read_states: Callable[[], Mapping[str, int]]
    _read_labels: Callable[[], Mapping[str, Labels]] = dict
    _read_agents: Callable[[], Sequence[AgentMetrics]] = tuple
    _read_rates: Callable[[], Mapping[str, TickRate]] = dict
    _port: int = attrs.field(default=0, kw_only=True)
    _server: _MetricsServer | None = attrs.field(default=None, init=False)

    @property
    def url(self) -> str:
        """Address of the metrics.

        Raises:
            UsageError: The block has not been entered, or has been left.
        """
        if self._server is None:
            raise UsageError("the metrics endpoint is not open")
        return f"http://{_HOST}:{self._server.server_port}{_PATH}"

    async def __aenter__(self) -> Self:
        """Serve.

        Raises:
            ConfigError: The port cannot be used.
        """
        registry = CollectorRegistry()
        registry.register(self)
        ProcessCollector(registry=registry)
        try:
            self._server = _MetricsServer(_guarded(make_wsgi_app(registry)), self._port)
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"metrics cannot be served: {error}",
                key="metrics port",
                value=self._port,
                hint="choose another port, or 0 for any",
            ) from error
        self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the server and its threads; a current scrape is interrupted.

        Cancellation: waits until the server has ended.
        """
        server, self._server = self._server, None
        if server is not None:
            await in_own_task(partial(_close, server))

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families for a scrape. Called in other threads."""
        metrics = self._read_metrics()
        for name in attrs.fields_dict(Metrics):
            value = getattr(metrics, name)
            if isinstance(value, Histogram):
                yield _make_histogram(name, value)
            else:
                yield CounterMetricFamily(f"clawblox_{name}", _HELP.get(name, ""), value=value)
        instances = _gauge("instances", "Instances by state.", "state")
        for state, count in self._read_states().items():
            instances.add_metric([state], count)
        yield instances
        yield _make_info(self._read_labels())
        yield from _make_agent_families(self._read_agents())
        yield from _make_rate_families(self._read_rates())


async def _close(server: _MetricsServer) -> None:
    with anyio.CancelScope(shield=True):
        await run_blocking(server.close)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"clawblox_{name}", text, labels=labels)


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"clawblox_{name}", text, labels=labels)


def _make_rate_families(rates: Mapping[str, TickRate]) -> Iterator[Metric]:
    nominal = _gauge("instance_tick_rate_hz", "Rate that a world should reach.", "name")
    achieved = _gauge("instance_achieved_rate_hz", "Rate that a world reached recently.", "name")
    for instance, rate in rates.items():
        nominal.add_metric([instance], rate.nominal_hz)
        achieved.add_metric([instance], rate.achieved_hz)
    yield from (nominal, achieved)


def _make_info(labels: Mapping[str, Labels]) -> Metric:
    names = sorted({name for given in labels.values() for name in given})
    text = "Labels of each instance; the value is always 1."
    family = _gauge("instance_info", text, "name", *(f"label_{name}" for name in names))
    for instance, given in labels.items():
        family.add_metric([instance, *(format_label(given.get(name, "")) for name in names)], 1)
    return family


def _make_agent_families(agents: Sequence[AgentMetrics]) -> Iterator[Metric]:
    text = "State and driver of each agent; the value is always 1."
    info = _gauge("agent_info", text, "agent", "driver", "state")
    tokens = _counter("agent_tokens", "Tokens that an agent has used.", "agent", "kind")
    cost = _counter("agent_cost_usd", "Cost of an agent as its program reported it.", "agent")
    turns = _counter("agent_turns", "Finished turns of an agent.", "agent")
    text = "Tokens that an agent inherited from an archive; they are not in its other counts."
    inherited = _gauge("agent_inherited_tokens", text, "agent", "kind")
    for agent in {agent.name: agent for agent in agents}.values():  # each series only once
        info.add_metric([agent.name, agent.driver, agent.state], 1)
        for kind, count in agent.tokens.items():
            tokens.add_metric([agent.name, kind], count)
        if agent.cost_usd is not None:
            cost.add_metric([agent.name], agent.cost_usd)
        turns.add_metric([agent.name], agent.turns)
        for kind, count in agent.inherited_tokens.items():
            inherited.add_metric([agent.name, kind], count)
    yield from (info, tokens, cost, turns, inherited)


def _make_histogram(name: str, value: Histogram) -> Metric:
    bounds = [*map(floatToGoString, value.bounds), "+Inf"]
    return HistogramMetricFamily(
        f"clawblox_{name.removesuffix('_s')}_seconds",
        _HELP.get(name, ""),
        buckets=list(zip(bounds, accumulate(value.counts), strict=True)),
        sum_value=value.sum,
    )


def _guarded(app: WSGIApplication) -> WSGIApplication:
    """Return an app that refuses other paths, other hosts than loopback, and web pages."""

    def guard(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        refusal = _refuse(environ)
        if refusal is not None:
            return _answer(start_response, refusal)
        try:
            return app(environ, start_response)
        except Exception as error:  # noqa: BLE001 - a scrape must not end the server
            _log.defect("metrics not collected", error)
            return _answer(start_response, "500 Internal Server Error")

    return guard


def _refuse(environ: WSGIEnvironment) -> str | None:
    def read(name: str) -> list[str]:
        value = environ.get(f"HTTP_{name.upper().replace('-', '_')}")
        return [] if value is None else [value]

    def is_own(authority: str) -> bool:  # a tunnel may have another port
        return _LOOPBACK_NAME.fullmatch(authority) is not None

    refusal = find_refusal(is_own, environ["REQUEST_METHOD"], read, has_pages=False)
    if refusal is not None:
        return f"{refusal[0]} {refusal[1]}"
    if environ["PATH_INFO"] != _PATH:
        return "404 Not Found"
    return None if environ["REQUEST_METHOD"] == "GET" else "405 Method Not Allowed"


def _answer(start_response: StartResponse, status: str) -> list[bytes]:
    start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [f"{status}\n".encode()]


class _Handler(WSGIRequestHandler):
    timeout = _CLIENT_TIMEOUT_S

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Suppress the log, because the terminal belongs to the command line."""


class _MetricsServer(socketserver.ThreadingMixIn, WSGIServer):
    """A thread accepts connections, and another thread serves each; all end with the server."""

    def __init__(self, app: WSGIApplication, port: int) -> None:
        self._thread = threading.Thread(target=self._accept, name="clawblox-metrics", daemon=True)
        self._connections: dict[socket.socket, float] = {}
        """Connections with their times of acceptance, in monotonic seconds, the oldest first."""
        super().__init__((_HOST, port), _Handler)
        self.set_app(app)

    def start(self) -> None:
        self._thread.start()

    def _accept(self) -> None:
        self.serve_forever(_SHUTDOWN_POLL_S)

    def close(self) -> None:
        """End the server and its connections. Blocks for at most a tenth of a second."""
        self.shutdown()
        self._thread.join()
        for connection in tuple(self._connections):
            _cut_off(connection)
        self.server_close()

    def server_bind(self) -> None:
        # The inherited method does a reverse DNS lookup.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = _HOST, self.server_address[1]
        self.setup_environ()

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            connection, address = super().get_request()
        except OSError:  # no descriptor is left; the caller would retry immediately
            time.sleep(_ACCEPT_PAUSE_S)
            raise
        if len(self._connections) >= _MAX_CONNECTIONS:
            oldest = next(iter(tuple(self._connections)))
            self._connections.pop(oldest, None)
            _cut_off(oldest)
        self._connections[connection] = monotonic()
        return connection, address

    def service_actions(self) -> None:
        """End connections that have lasted too long; called at least ten times a second."""
        latest = monotonic() - _SCRAPE_TIMEOUT_S
        for connection, accepted_at in tuple(self._connections.items()):
            if accepted_at < latest:
                _cut_off(connection)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 - the base's type
        self._connections.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Log that a client disconnected or was silent for too long."""
        _log.debug("metrics client gone", exc_info=True)


def _cut_off(connection: socket.socket) -> None:
    """Shut a connection down; its thread closes the socket."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
