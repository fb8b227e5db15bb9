"""Metrics as plain values, and read over a real socket like by Prometheus."""

from __future__ import annotations

import gzip
import math
import resource
import socket
import statistics
import subprocess
import sys
import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, get_args

import anyio
import attrs
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from clawblox.errors import ClawbloxError, ConfigError, UsageError
from clawblox.extras import install_command
from clawblox.protocol import TickRate
from clawblox.telemetry import prometheus
from clawblox.telemetry.metrics import (
    DURATION_BOUNDS_S,
    AgentMetrics,
    Counter,
    Histogram,
    Metrics,
    MetricsRecorder,
    Timing,
)
from clawblox.telemetry.prometheus import MetricsEndpoint
from tests.support.resources import open_fds
from tests.support.sockets import free_port, is_listening
from tests.support.waiting import HANG_S, wait_until_async
from tests.support.worlds import ask

durations = st.floats(min_value=0, max_value=1000)
somewhere = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


def recorded(**values: Any) -> Metrics:
    """Return the metrics of a recorder with these counts and lists of durations."""
    recorder = MetricsRecorder()
    for name, value in values.items():
        if isinstance(value, int):
            recorder.add(name, value)
        else:
            for seconds in value:
                recorder.observe(name, seconds)
    return recorder.snapshot()


# -------------------------------------------------------------------------------- values


def test_every_field_of_the_metrics_can_be_recorded() -> None:
    names = {*get_args(Counter), *get_args(Timing)}
    assert names == set(attrs.fields_dict(Metrics))
    for name in get_args(Counter):
        assert getattr(recorded(**{name: 3}), name) == 3
    for name in get_args(Timing):
        assert getattr(recorded(**{name: [0.25]}), name).sum == 0.25


def test_the_counts_of_a_new_recorder_are_zero() -> None:
    assert MetricsRecorder().snapshot() == Metrics()


def test_a_value_that_is_not_a_name_is_refused() -> None:
    with pytest.raises(KeyError):
        MetricsRecorder().add("sterts")  # type: ignore[arg-type]
    with pytest.raises(KeyError):
        MetricsRecorder().observe("ready", 1.0)  # type: ignore[arg-type]


def test_a_snapshot_does_not_change() -> None:
    recorder = MetricsRecorder()
    recorder.add("starts")
    before = recorder.snapshot()
    recorder.add("starts")
    recorder.observe("ready_s", 1.0)
    assert before == recorded(starts=1)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        before.starts = 7  # type: ignore[misc]


def test_the_bounds_span_a_millisecond_to_the_longest_default_timeout() -> None:
    assert DURATION_BOUNDS_S[0] == 0.001
    assert DURATION_BOUNDS_S[-1] > 300
    steps = [above / below for below, above in pairwise(DURATION_BOUNDS_S)]
    assert 1.99 < min(steps) <= max(steps) < 2.51


@given(st.lists(durations))
def test_a_histogram_counts_each_value_in_the_first_bucket_that_contains_it(values: list[float]):
    histogram = recorded(save_s=values).save_s
    expected = [0] * (len(DURATION_BOUNDS_S) + 1)
    for value in values:
        first = next((i for i, b in enumerate(DURATION_BOUNDS_S) if value <= b), -1)
        expected[first] += 1
    assert histogram.counts == tuple(expected)
    assert histogram.count == len(values)
    assert histogram.sum == pytest.approx(sum(values))
    if values:
        assert histogram.mean == pytest.approx(statistics.fmean(values))


@given(st.lists(durations, min_size=1), st.floats(min_value=0, max_value=1))
def test_an_estimated_quantile_is_in_the_bucket_of_the_exact_quantile(
    values: list[float], q: float
) -> None:
    estimate = recorded(save_s=values).save_s.quantile(q)
    real = sorted(values)[max(0, math.ceil(q * len(values)) - 1)]
    edges = (0.0, *DURATION_BOUNDS_S)
    bucket = bisect_left(DURATION_BOUNDS_S, real)
    if bucket == len(DURATION_BOUNDS_S):
        assert estimate == DURATION_BOUNDS_S[-1]
    else:
        assert edges[bucket] <= estimate <= edges[bucket + 1] * (1 + 1e-12)


def test_a_quantile_is_interpolated_like_in_promql() -> None:
    histogram = Histogram((1.0, 2.0, 4.0), (1, 2, 4, 1))
    assert [histogram.quantile(q) for q in (0, 0.125, 0.25, 0.375, 0.625, 0.875, 1)] == [
        *(0.0, 1.0, 1.5, 2.0, 3.0, 4.0, 4.0)
    ]


def test_an_empty_histogram_has_no_quantile_and_no_mean() -> None:
    assert math.isnan(Histogram.empty().quantile(0.5))
    assert math.isnan(Histogram.empty().mean)


@pytest.mark.parametrize("q", [-0.1, 1.1, math.nan])
def test_a_quantile_outside_0_to_1_is_refused(q: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        Histogram.empty().quantile(q)


@given(st.lists(durations), st.lists(durations), st.integers(0, 9), st.integers(0, 9))
def test_merged_metrics_cover_all_observations(a, b, m, n) -> None:
    merged = recorded(ready_s=a, starts=m, saves=1).merged(recorded(ready_s=b, starts=n))
    together = recorded(ready_s=[*a, *b], starts=m + n, saves=1)
    assert merged.ready_s.sum == pytest.approx(together.ready_s.sum)
    assert merged.ready_s.counts == together.ready_s.counts
    same = {"ready_s": Histogram.empty()}
    assert attrs.evolve(merged, **same) == attrs.evolve(together, **same)


def test_histograms_with_different_buckets_are_not_merged() -> None:
    with pytest.raises(ValueError, match="different buckets"):
        Histogram.empty((1.0,)).merged(Histogram.empty((2.0,)))


# ------------------------------------------------------------------------------ endpoint


@pytest.fixture
def metrics() -> Metrics:
    return recorded(starts=5, saved_bytes=1 << 40, ready_s=[0.001, 0.03, 999.0])


def endpoint_of(metrics: Metrics, states: Mapping[str, int] | None = None, port: int = 0):
    return MetricsEndpoint(lambda: metrics, lambda: states or {}, port=port)


def port_of(endpoint: MetricsEndpoint) -> int:
    return int(endpoint.url.removesuffix("/metrics").rpartition(":")[2])


async def get(endpoint: MetricsEndpoint, target: str = "/metrics", **options: Any):
    """Send a request to the endpoint from a thread, over its socket."""
    method = options.pop("method", "GET")
    return await anyio.to_thread.run_sync(lambda: ask(port_of(endpoint), method, target, **options))


def samples_of(text: bytes) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Parse an exposition with Prometheus' own library."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


@somewhere
@pytest.mark.anyio
async def test_a_scrape_has_counters_histograms_and_instances_by_state(metrics: Metrics) -> None:
    async with endpoint_of(metrics, {"ready": 3, "starting": 1}) as endpoint:
        answer = await get(endpoint)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain")
    samples = samples_of(answer.body)

    def value(name: str, **labels: str) -> float:
        return samples[name, frozenset(labels.items())]

    assert value("clawblox_starts_total") == 5
    assert value("clawblox_restarts_total") == 0
    assert value("clawblox_saved_bytes_total") == 1 << 40
    assert value("clawblox_instances", state="ready") == 3
    assert value("clawblox_instances", state="starting") == 1
    assert value("clawblox_ready_seconds_bucket", le="0.001") == 1
    assert value("clawblox_ready_seconds_bucket", le="0.02") == 1
    assert value("clawblox_ready_seconds_bucket", le="0.05") == 2
    assert value("clawblox_ready_seconds_bucket", le="500.0") == 2
    assert value("clawblox_ready_seconds_bucket", le="+Inf") == 3
    assert value("clawblox_ready_seconds_count") == 3
    assert value("clawblox_ready_seconds_sum") == pytest.approx(999.031)
    assert value("process_open_fds") > 0


@pytest.mark.anyio
async def test_labels_of_instances_are_served_for_joins_with_other_series() -> None:
    labels = {"w000": {"model": 'a"b', "seed": 3}, "w001": {"model": "c"}, "w002": {}}
    async with MetricsEndpoint(Metrics, dict, lambda: labels) as endpoint:
        samples = samples_of((await get(endpoint)).body)
    infos = [dict(given) for name, given in samples if name == "clawblox_instance_info"]
    assert sorted(infos, key=lambda info: info["name"]) == [
        {"name": "w000", "label_model": 'a"b', "label_seed": "3"},
        {"name": "w001", "label_model": "c", "label_seed": ""},
        {"name": "w002", "label_model": "", "label_seed": ""},
    ]


@pytest.mark.anyio
async def test_the_rates_of_worlds_are_served() -> None:
    slow = TickRate(nominal_hz=60.0, achieved_hz=41.5, tick_cost_s=0.02)
    async with MetricsEndpoint(Metrics, dict, read_rates=lambda: {"w000": slow}) as endpoint:
        samples = samples_of((await get(endpoint)).body)
    name = frozenset({("name", "w000")})
    assert samples["clawblox_instance_tick_rate_hz", name] == 60.0
    assert samples["clawblox_instance_achieved_rate_hz", name] == 41.5


@pytest.mark.anyio
async def test_agents_are_served_with_their_usage() -> None:
    eko = AgentMetrics("Eko", "claude", "working", {"input": 12, "output": 3}, 0.25, 4)
    ana = AgentMetrics("Ana", "codex", "idle", {"input": 1, "output": 0}, None, 1, {"input": 90})
    async with MetricsEndpoint(Metrics, dict, read_agents=lambda: [eko, ana, eko]) as endpoint:
        text = (await get(endpoint)).body
    assert text.count(b'clawblox_agent_turns_total{agent="Eko"}') == 1
    told = {
        (name, *sorted(dict(labels).values())): value
        for (name, labels), value in samples_of(text).items()
        if name.startswith("clawblox_agent_")
    }
    assert told == {
        ("clawblox_agent_info", "Eko", "claude", "working"): 1,
        ("clawblox_agent_info", "Ana", "codex", "idle"): 1,
        ("clawblox_agent_tokens_total", "Eko", "input"): 12,
        ("clawblox_agent_tokens_total", "Eko", "output"): 3,
        ("clawblox_agent_tokens_total", "Ana", "input"): 1,
        ("clawblox_agent_tokens_total", "Ana", "output"): 0,
        ("clawblox_agent_inherited_tokens", "Ana", "input"): 90,
        ("clawblox_agent_cost_usd_total", "Eko"): 0.25,
        ("clawblox_agent_turns_total", "Eko"): 4,
        ("clawblox_agent_turns_total", "Ana"): 1,
    }


@pytest.mark.anyio
async def test_every_metric_is_served_with_a_help_text_and_a_unit(metrics: Metrics) -> None:
    async with endpoint_of(metrics) as endpoint:
        text = (await get(endpoint)).body.decode()
    for name in get_args(Counter):
        assert f"# TYPE clawblox_{name}_total counter" in text
        assert f"# HELP clawblox_{name}_total " in text
    for name in get_args(Timing):
        assert f"# TYPE clawblox_{name.removesuffix('_s')}_seconds histogram" in text


@pytest.mark.anyio
async def test_a_scrape_shows_the_current_counts() -> None:
    recorder = MetricsRecorder()
    async with MetricsEndpoint(recorder.snapshot, dict) as endpoint:
        assert b"clawblox_saves_total 0.0" in (await get(endpoint)).body
        recorder.add("saves")
        assert b"clawblox_saves_total 1.0" in (await get(endpoint)).body


@pytest.mark.anyio
async def test_a_scraper_may_ask_for_a_compressed_answer(metrics: Metrics) -> None:
    async with endpoint_of(metrics) as endpoint:
        answer = await get(endpoint, headers={"Accept-Encoding": "gzip"})
    assert b"clawblox_starts_total 5.0" in gzip.decompress(answer.body)


HOSTS = {
    "127.0.0.1:9100": 200,
    "localhost:9100": 200,
    "LOCALHOST": 200,
    "[::1]:9100": 200,
    "evil.example": 421,
    "localhost.evil.example:9100": 421,
    "127.0.0.1.evil.example": 421,
    "evil.example:9100@localhost": 421,
    "0.0.0.0:9100": 421,
    "": 421,
}


@pytest.mark.anyio
async def test_only_loopback_names_are_answered(metrics: Metrics) -> None:
    async with endpoint_of(metrics) as endpoint:
        answers = {host: await get(endpoint, headers={"Host": host}) for host in HOSTS}
    assert {host: answer.status for host, answer in answers.items()} == HOSTS
    for answer in answers.values():
        assert (b"clawblox_starts" in answer.body) == (answer.status == 200)


@pytest.mark.anyio
async def test_a_request_without_or_with_two_hosts_is_refused(metrics: Metrics) -> None:
    async with endpoint_of(metrics) as endpoint:
        for hosts in (b"", b"Host: localhost\r\nHost: evil.example\r\n"):
            answer = await anyio.to_thread.run_sync(raw_request, port_of(endpoint), hosts)
            assert answer.startswith(b"HTTP/1.0 421 ")
            assert b"clawblox_starts" not in answer


def raw_request(port: int, headers: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=HANG_S) as connection:
        connection.sendall(b"GET /metrics HTTP/1.0\r\n" + headers + b"\r\n")
        with connection.makefile("rb") as answer:
            return answer.read()


@pytest.mark.anyio
async def test_a_web_page_is_refused(metrics: Metrics) -> None:
    async with endpoint_of(metrics) as endpoint:
        for header in ({"Origin": "http://localhost:3000"}, {"Sec-Fetch-Site": "cross-site"}):
            answer = await get(endpoint, headers=header)
            assert answer.status == 403
            assert "access-control-allow-origin" not in answer.headers


@pytest.mark.anyio
async def test_other_routes_and_methods_are_refused(metrics: Metrics) -> None:
    async with endpoint_of(metrics) as endpoint:
        for target in ("/", "/metrics/", "/snapshot", "/metrics/../x"):
            assert (await get(endpoint, target)).status == 404
        for method in ("POST", "PUT", "DELETE"):
            assert (await get(endpoint, method=method)).status == 405


@pytest.mark.anyio
async def test_a_collection_that_fails_is_logged_and_the_next_one_works() -> None:
    answers: Iterator[dict[str, int]] = iter([{"ready": 1}])
    async with MetricsEndpoint(Metrics, lambda: next(answers)) as endpoint:
        assert (await get(endpoint)).status == 200
        with structlog.testing.capture_logs() as logs:
            assert (await get(endpoint)).status == 500
        assert [entry["event"] for entry in logs] == ["metrics not collected"]
        answers = iter([{"ready": 1}])
        assert (await get(endpoint)).status == 200


@pytest.mark.anyio
async def test_a_port_in_use_is_a_configuration_error(metrics: Metrics) -> None:
    async with endpoint_of(metrics) as first:
        with pytest.raises(ConfigError, match="Address already in use"):
            async with endpoint_of(metrics, port=port_of(first)):
                pass
    with pytest.raises(ConfigError, match="port must be"):
        async with endpoint_of(metrics, port=65536):
            pass


@somewhere
@pytest.mark.anyio
async def test_the_given_port_is_used_and_released(metrics: Metrics) -> None:
    port = free_port()
    for _ in range(2):
        async with endpoint_of(metrics, port=port) as endpoint:
            assert endpoint.url == f"http://127.0.0.1:{port}/metrics"
            assert (await get(endpoint)).status == 200
        assert not is_listening(port)
    with pytest.raises(UsageError, match="not open"):
        _ = endpoint.url


@pytest.mark.thorough
@pytest.mark.anyio
async def test_closing_disconnects_silent_clients_and_leaves_no_thread(
    metrics: Metrics, monkeypatch
) -> None:
    monkeypatch.setattr(prometheus._Handler, "timeout", None)  # only the end releases them
    before = set(threading.enumerate())
    with socket.socket() as silent, socket.socket() as slow:
        async with endpoint_of(metrics) as endpoint:
            for client in (silent, slow):
                client.connect(("127.0.0.1", port_of(endpoint)))
            slow.sendall(b"GET /metrics HT")
            # One thread that accepts, and one per connection.
            await wait_until_async(lambda: len(metrics_threads(before)) == 3)
            assert (await get(endpoint)).status == 200
        assert metrics_threads(before) == []
        for client in (silent, slow):
            client.settimeout(10)
            assert client.recv(1) == b""


def metrics_threads(before: set[threading.Thread]) -> list[str]:
    threads = [each.name for each in threading.enumerate() if each not in before]
    return [name for name in threads if not name.startswith(("AnyIO", "Trio"))]


@pytest.mark.anyio
async def test_a_silent_client_is_disconnected_without_a_log_line(
    metrics: Metrics, monkeypatch, capsys
) -> None:
    assert prometheus._Handler.timeout
    monkeypatch.setattr(prometheus._Handler, "timeout", 0.05)
    with structlog.testing.capture_logs() as logs:
        async with endpoint_of(metrics) as endpoint:
            with socket.create_connection(
                ("127.0.0.1", port_of(endpoint)), timeout=HANG_S
            ) as silent:
                assert await anyio.to_thread.run_sync(silent.recv, 1) == b""
    assert {line["log_level"] for line in logs} <= {"debug"}
    assert capsys.readouterr().err == ""


@pytest.mark.thorough
@pytest.mark.anyio
async def test_a_client_that_sends_single_bytes_is_disconnected(
    metrics: Metrics, monkeypatch
) -> None:
    monkeypatch.setattr(prometheus, "_SCRAPE_TIMEOUT_S", 0.2)

    def dribble(client: socket.socket) -> None:
        with suppress(ConnectionError):
            while True:
                client.sendall(b"X")
                with suppress(TimeoutError):
                    if not client.recv(1):
                        return

    async with endpoint_of(metrics) as endpoint:
        with socket.create_connection(("127.0.0.1", port_of(endpoint)), timeout=0.02) as client:
            with anyio.fail_after(HANG_S):
                await anyio.to_thread.run_sync(dribble, client, abandon_on_cancel=True)
        assert (await get(endpoint)).status == 200


@pytest.mark.thorough
@pytest.mark.anyio
async def test_silent_clients_do_not_block_other_clients(metrics: Metrics, monkeypatch) -> None:
    monkeypatch.setattr(prometheus, "_MAX_CONNECTIONS", 3)
    monkeypatch.setattr(prometheus._Handler, "timeout", None)
    before = set(threading.enumerate())
    with ExitStack() as stack:
        async with endpoint_of(metrics) as endpoint:
            silent = [
                stack.enter_context(socket.create_connection(("127.0.0.1", port_of(endpoint)), 10))
                for _ in range(8)
            ]
            assert (await get(endpoint)).status == 200
            for client in silent[:6]:
                assert await anyio.to_thread.run_sync(client.recv, 1) == b""
            await wait_until_async(lambda: len(metrics_threads(before)) <= 4)


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Use up all descriptors of this process during the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = next(fd for fd in range(soft) if fd not in open_fds())
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.anyio
async def test_the_server_waits_while_no_descriptor_is_left(metrics: Metrics, monkeypatch) -> None:
    pauses: list[float] = []
    over = threading.Event()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        over.wait(HANG_S)

    monkeypatch.setattr(prometheus, "time", SimpleNamespace(sleep=sleep))
    async with endpoint_of(metrics) as endpoint:
        with socket.socket() as client:
            client.settimeout(10)
            with no_descriptor_left():
                client.connect(("127.0.0.1", port_of(endpoint)))
                client.sendall(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
                while not pauses:
                    await anyio.sleep(0.005)
            over.set()
            assert (await anyio.to_thread.run_sync(client.recv, 12)) == b"HTTP/1.0 200"
    assert pauses


def test_without_the_extra_the_error_has_the_command_that_installs_it() -> None:
    code = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from clawblox.errors import ClawbloxError\n"
        "try: import clawblox.telemetry.prometheus\n"
        "except ClawbloxError as error: print(type(error).__name__, error.hint)\n"
    )
    words = [sys.executable, "-c", code]
    result = subprocess.run(words, capture_output=True, text=True, check=True, timeout=HANG_S)
    assert result.stdout == f"UsageError {install_command('metrics')}\n"
    assert issubclass(UsageError, ClawbloxError)
