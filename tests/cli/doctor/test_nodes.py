"""``clawblox doctor --cluster``: nodes check themselves, and differences are marked."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import attrs
import pytest
from click.testing import CliRunner, Result

from clawblox.checks import MachineCheck, missing, ok
from clawblox.cli.commands.doctor import command
from clawblox.cli.doctor import agents, nodes
from clawblox.errors import ConfigError
from clawblox.experiment.cluster.node import describe_node
from clawblox.experiment.plan import Cluster

FACTS = {**describe_node(), "token": True, "tls": True, "niceness": 0, "route_out": True}
CHECKS = {"claude": attrs.astuple(ok("2.1.330")), "bubblewrap": attrs.astuple(ok("0.8.0"))}
"""Answers of a node with all dependencies."""


def answer(checks: Mapping[str, Any] = CHECKS, **facts: Any) -> dict[str, Any]:
    return {"facts": {**FACTS, **facts}, "checks": {**CHECKS, **checks}}


@attrs.define
class FakeEngine:
    """An engine whose nodes answer, fail, or stay silent (None)."""

    answers: Mapping[str, Any]
    asked: list[Callable[..., Any]] = attrs.field(factory=list)
    is_closed: bool = False

    def ask_nodes(self, function: Callable[..., Any]) -> Mapping[str, Future[Any]]:
        self.asked.append(function)
        return {node: self._future(answer) for node, answer in self.answers.items()}

    def _future(self, answer: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if isinstance(answer, Exception):
            future.set_exception(answer)
        elif answer is not None:
            future.set_result(answer)
        return future

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Return the results of a check of nodes with these answers, by name."""
    monkeypatch.setattr(nodes, "_ANSWERS_S", 0.01)
    checks = [check for check in agents.CHECKS if check.id in CHECKS]
    monkeypatch.setattr(agents, "CHECKS", checks)

    def look_at(*, status: int = 0, **answers: Any) -> dict[str, Any]:
        engine = FakeEngine(answers)
        monkeypatch.setattr(nodes, "connect", lambda cluster: (cluster == Cluster()) and engine)
        result = invoke("auto", "--json")
        assert (result.return_value, engine.is_closed) == (status, True), result.output
        assert engine.asked == [nodes.look_at_node]
        return {one["name"]: one for one in json.loads(result.output)}

    return look_at


def invoke(*words: str) -> Result:
    return CliRunner().invoke(
        command, ["--cluster", *words], standalone_mode=False, catch_exceptions=False
    )


def test_equal_nodes_are_combined_into_one_fact(look: Callable[..., dict[str, Any]]) -> None:
    found = look(a=answer(), b=answer())
    assert {one["state"] for one in found.values()} == {"ok"}
    assert found["nodes"]["found"] == "2: a, b"
    assert found["claude"]["found"] == "2.1.330"
    assert found["niceness"]["found"] == "0"
    assert {"same clawblox", "same engine", "same python", "processor", "libc"} < found.keys()


def test_differing_facts_are_listed_with_node_names(
    look: Callable[..., dict[str, Any]],
) -> None:
    old = {
        "claude": attrs.astuple(ok("2.0.1")),
        "bubblewrap": attrs.astuple(missing("none", remedy="Do.")),
    }
    found = look(a=answer(), b=answer(old, libc="musl 1.2"), c=answer())
    assert (found["claude"]["state"], found["claude"]["found"]) == (
        "warning",
        "2.1.330 (a, c); 2.0.1 (b)",
    )
    assert (found["bubblewrap"]["state"], found["bubblewrap"]["remedy"]) == ("missing", "Do.")
    assert found["libc"]["state"] == "warning"
    assert found["libc"]["found"].endswith("(a, c); musl 1.2 (b)")


def test_node_with_another_version_is_a_missing_requirement(
    look: Callable[..., dict[str, Any]],
) -> None:
    for fact in ("clawblox", "engine", "python"):
        found = look(status=1, a=answer(**{fact: "9.9"}))
        row = found[f"same {fact}"]
        assert (row["state"], row["is_required"]) == ("missing", True)
        assert row["found"] == f"{FACTS[fact]} (this process); 9.9 (a)"


def test_free_space_may_differ_between_nodes_and_little_space_is_a_warning(
    look: Callable[..., dict[str, Any]],
) -> None:
    found = look(a=answer(scratch_bytes=5 * 10**9), b=answer(scratch_bytes=7 * 10**9))
    assert (found["scratch"]["state"], found["scratch"]["found"]) == (
        "ok",
        "5.0 GB free (a); 7.0 GB free (b)",
    )
    assert look(a=answer(scratch_bytes=5))["scratch"]["state"] == "warning"


def test_settings_of_a_cluster_start_are_checked(look: Callable[..., dict[str, Any]]) -> None:
    found = look(a=answer(token=False, tls=False, niceness=15, route_out=False))
    judged = {name: (one["state"], one["found"]) for name, one in found.items()}
    assert judged["niceness"] == ("warning", "15")
    assert judged["token"] == judged["tls"] == judged["route out"] == ("warning", "no")
    assert "RAY_worker_niceness=0" in found["niceness"]["remedy"]


def test_a_node_without_an_answer_is_missing_and_the_others_are_compared(
    look: Callable[..., dict[str, Any]],
) -> None:
    found = look(status=1, a=answer(), b=None, c=ModuleNotFoundError("no clawblox"))
    assert found["nodes"]["state"] == "missing"
    assert found["nodes"]["found"] == (
        "b: no answer within 0.01 s; c: ModuleNotFoundError: no clawblox"
    )
    assert found["claude"]["found"] == "2.1.330"


def test_malformed_answer_fails_only_its_own_checks(
    look: Callable[..., dict[str, Any]],
) -> None:
    found = look(status=1, a={"facts": FACTS, "checks": {}}, b="hello")
    assert found["nodes"]["state"] == "ok"
    assert "cannot be checked" in found["libc"]["found"]
    assert "cannot be checked" in found["claude"]["found"]


def test_cluster_without_nodes_is_a_missing_requirement(
    look: Callable[..., dict[str, Any]],
) -> None:
    found = look(status=1)
    assert {name: one["found"] for name, one in found.items()} == {"nodes": "the cluster has none"}


def test_a_node_answers_with_plain_values(monkeypatch: pytest.MonkeyPatch) -> None:
    check = MachineCheck("Agents", "claude", lambda: missing("not installed"), "", "")
    monkeypatch.setattr(agents, "CHECKS", [check])
    facts = nodes.look_at_node()
    assert facts["checks"] == {"claude": ("missing", "not installed", None)}
    assert json.loads(json.dumps(facts))["facts"].keys() == describe_node().keys()


def test_invalid_cluster_address_is_refused() -> None:
    with pytest.raises(ConfigError, match='--cluster: must be "auto" or "host:port"'):
        invoke("ray://head:10001")
