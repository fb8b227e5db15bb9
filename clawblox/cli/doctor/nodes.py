"""The checks of ``clawblox doctor --cluster``: each node checks itself, and answers are compared.

Answers come from other machines, so an answer of an unexpected form only fails its own checks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import attrs

from clawblox.checks import (
    CheckStatus,
    MachineCheck,
    MachineCheckResult,
    missing,
    ok,
    run_checks,
    warning,
)
from clawblox.cli.doctor import agents
from clawblox.errors import ConfigError
from clawblox.experiment.cluster.connect import connect, gather
from clawblox.experiment.cluster.node import describe_node
from clawblox.experiment.plan.cluster import Cluster
from clawblox.printable import name_some
from clawblox.system.amounts import format_bytes

_LOOK_S: Final = 12.0
_ANSWERS_S: Final = 90.0
"""Seconds for all answers; a busy node needs half a minute to start the process that checks it."""
_LITTLE_SCRATCH: Final = 1_000_000_000
_SHOWN: Final = 5
_SEVERITIES: Final[tuple[CheckStatus, ...]] = ("ok", "warning", "missing")

_Answers: TypeAlias = Mapping[str, Any]
_Judge: TypeAlias = Callable[[Any], MachineCheckResult]


def look_at_node() -> dict[str, Any]:
    """Return the facts and check results of this machine as plain values. Blocks."""
    results = run_checks(agents.CHECKS, _LOOK_S)
    checks = {check.id: attrs.astuple(result) for check, result in results}
    return {"facts": describe_node(), "checks": checks}


def find_cluster_checks(address: str) -> list[MachineCheck]:
    """Ask the nodes of a cluster, and return the checks that judge their answers. Blocks.

    Args:
        address: Address of the cluster.

    Raises:
        ConfigError: The address is invalid, the extra ``ray`` is not installed, or there is no
            cluster.
    """
    try:
        engine = connect(Cluster(address=address))
    except ConfigError as error:
        raise error.but(key="--cluster") from error.__cause__
    with contextlib.closing(engine):
        return [*_make_checks(*gather(engine, look_at_node, _ANSWERS_S))]


def _make_checks(answers: _Answers, failures: Mapping[str, str]) -> Iterator[MachineCheck]:
    is_answered = partial(_judge_nodes, answers, failures)
    without, remedy = "No attempt can run on such a node.", "Look for it: ray status."
    yield MachineCheck("Cluster", "nodes", is_answered, without, remedy, is_required=True)
    if not answers:
        return
    here = {"this process": {"facts": describe_node()}, **answers}
    for key in ("clawblox", "engine", "python"):
        look = partial(_compare, here, _fact(key, ok), unlike="missing")
        remedy = "Install the same versions on all nodes: one image, or one list of requirements."
        yield MachineCheck("Cluster", f"same {key}", look, without, remedy, is_required=True)
    for key, judge, without, remedy in _FACTS:
        unlike: CheckStatus = "ok" if judge is _judge_space else "warning"
        look = partial(_compare, answers, _fact(key, judge), unlike)
        yield MachineCheck(
            "Cluster", key.removesuffix("_bytes").replace("_", " "), look, without, remedy
        )
    for check in agents.CHECKS:
        yield attrs.evolve(check, look=partial(_compare, answers, _result(check.id)))


def _fact(key: str, judge: _Judge) -> _Judge:
    return lambda answer: judge(answer["facts"][key])


def _result(name: str) -> _Judge:
    return lambda answer: MachineCheckResult(*answer["checks"][name])


def _compare(
    answers: _Answers, read: _Judge, unlike: CheckStatus = "warning"
) -> MachineCheckResult:
    """Combine the results of all nodes into the worst, and list the nodes by result if they differ.

    Args:
        answers: The answers by node.
        read: Returns a node's result.
        unlike: The best status of the combined result if nodes differ.
    """
    results = {node: read(answer) for node, answer in answers.items()}
    nodes: dict[str, list[str]] = {}
    for node, result in results.items():
        nodes.setdefault(result.text, []).append(node)
    statuses = [*(result.status for result in results.values()), *[unlike] * (len(nodes) > 1)]
    worst = max(statuses, key=_SEVERITIES.index)
    remedies = (one.remedy for one in results.values() if one.status == worst and one.remedy)
    named = [f"{text} ({name_some(names, _SHOWN)})" for text, names in nodes.items()]
    return MachineCheckResult(
        worst, "; ".join(named if len(nodes) > 1 else nodes), next(remedies, None)
    )


def _judge_nodes(answers: _Answers, failures: Mapping[str, str]) -> MachineCheckResult:
    if failures or not answers:
        lost = "; ".join(f"{node}: {why}" for node, why in failures.items())
        return missing(lost or "the cluster has none")
    return ok(f"{len(answers)}: {name_some([*answers], _SHOWN)}")


def _judge_space(free: int) -> MachineCheckResult:
    text = f"{format_bytes(free)} free"
    return ok(text) if free >= _LITTLE_SCRATCH else warning(text)


def _judge_niceness(niceness: int) -> MachineCheckResult:
    return ok("0") if niceness <= 0 else warning(str(niceness))


def _want(is_there: bool) -> MachineCheckResult:
    return ok("yes") if is_there else warning("no")


_MOVED: Final = "An attempt that continues on another node may behave differently."
_ONE_KIND: Final = "Reserve a resource that nodes of one kind have: cluster.resources."
_FACTS: Final[tuple[tuple[str, _Judge, str, str], ...]] = (
    ("processor", ok, _MOVED, _ONE_KIND),
    ("libc", ok, _MOVED, _ONE_KIND),
    ("route_out", _want, "Agents there cannot reach a provider.", "Give these nodes a route."),
    ("token", _want, "Whoever reaches the cluster can run programs on it, so it is sent no keys.",
     "Start each node with one token: RAY_AUTH_MODE=token ray start."),
    ("tls", _want, "Keys travel to other machines only with cluster.trusted_network = true.",
     'Set RAY_USE_TLS=1 and its certificates before ray start, or cluster.keys = "node".'),
    ("niceness", _judge_niceness, "Worlds and agents get less of the processor than others.",
     "Start each node with: RAY_worker_niceness=0 ray start."),
    ("scratch_bytes", _judge_space, "Attempts there cannot keep their files.",
     "Free some space there, or set CLAWBLOX_SCRATCH before ray start."),
)  # fmt: skip
"""Facts of nodes: key, judge, consequence of a bad value, remedy."""
