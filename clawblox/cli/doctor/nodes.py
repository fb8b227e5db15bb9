"""The checks of ``clawblox doctor --cluster``: each node looks at itself, and answers are compared.

Answers come from other machines: one of an unexpected form fails its checks, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import wait
from functools import partial
from typing import Any, Final, TypeAlias

import attrs

from clawblox.checks import Check, CheckResult, CheckStatus, missing, ok, run_checks, warning
from clawblox.cli.doctor import agents
from clawblox.errors import ConfigError
from clawblox.experiment.cluster.connect import connect
from clawblox.experiment.cluster.engine import Engine
from clawblox.experiment.cluster.node import describe_node
from clawblox.experiment.plan.cluster import Cluster
from clawblox.printable import name_some
from clawblox.system.amounts import format_bytes

_LOOK_S: Final = 12.0
_ANSWERS_S: Final = 90.0
"""Time for all answers; a busy node needs half a minute to start the process that looks."""
_LITTLE_SCRATCH: Final = 1_000_000_000
_SHOWN: Final = 5
_HERE: Final = "this process"
_SEVERITIES: Final[tuple[CheckStatus, ...]] = ("ok", "warning", "missing")

_Answers: TypeAlias = Mapping[str, Any]
_cluster_check = partial(Check, "Cluster")


def look_at_node() -> dict[str, Any]:
    """Return the facts of this machine, and the results of its checks, as plain values. Blocks."""
    results = run_checks(agents.CHECKS, _LOOK_S)
    checks = {check.id: attrs.astuple(result) for check, result in results}
    return {"facts": describe_node(), "checks": checks}


def find_cluster_checks(address: str) -> list[Check]:
    """Ask the nodes of a cluster, and return the checks that judge their answers. Blocks.

    Args:
        address: Address of the cluster.

    Raises:
        ConfigError: It is no address, or the extra ``ray`` is not installed.
        ClawbloxError: There is no such cluster.
    """
    try:
        engine = connect(Cluster(address=address))
    except ConfigError as error:
        raise error.but(key="--cluster") from error.__cause__
    try:
        return [*_make_checks(*_ask(engine))]
    finally:
        engine.close()


def _ask(engine: Engine) -> tuple[_Answers, Mapping[str, str]]:
    """Return the answers of the nodes, and why others have not answered."""
    answers, failures = {}, {}
    futures = engine.ask_nodes(look_at_node)
    done = wait(futures.values(), _ANSWERS_S).done
    for node, future in sorted(futures.items()):
        if future not in done:
            failures[node] = f"no answer within {_ANSWERS_S:g} s"
        elif error := future.exception():
            failures[node] = f"{type(error).__name__}: {error}"
        else:
            answers[node] = future.result()
    return answers, failures


def _make_checks(answers: _Answers, failures: Mapping[str, str]) -> Iterator[Check]:
    yield _cluster_check(
        "nodes",
        partial(_judge_nodes, answers, failures),
        "No attempt can run on a node that does not answer.",
        "Look for it: ray status.",
        is_required=True,
    )
    if not answers:
        return
    here = {_HERE: {"facts": describe_node()}, **answers}
    for key in ("clawblox", "engine", "python"):
        yield _cluster_check(
            f"same {key}",
            partial(_compare, here, _fact(key, ok), unlike="missing"),
            "No attempt can run on a node that differs from this process.",
            "Install the same versions everywhere: the same image, or the same requirements.",
            is_required=True,
        )
    for key, judge, without, remedy in _FACTS:
        look = partial(_compare, answers, _fact(key, judge))
        yield _cluster_check(key.replace("_", " "), look, without, remedy)
    yield _cluster_check(
        "scratch",
        partial(_compare, answers, _fact("scratch_bytes", _judge_scratch), unlike="ok"),
        "Attempts on these nodes cannot keep their files.",
        "Free some space there, or set TMPDIR before ray start.",
    )
    for check in agents.CHECKS:
        yield attrs.evolve(check, look=partial(_compare, answers, _result(check.id)))


def _fact(key: str, judge: Callable[[Any], CheckResult]) -> Callable[[Any], CheckResult]:
    return lambda answer: judge(answer["facts"][key])


def _result(name: str) -> Callable[[Any], CheckResult]:
    return lambda answer: CheckResult(*answer["checks"][name])


def _compare(
    answers: _Answers, read: Callable[[Any], CheckResult], unlike: CheckStatus = "warning"
) -> CheckResult:
    """Return the results of all nodes as one: the worst, with the nodes of each where they differ.

    Args:
        answers: The answers by node.
        read: Returns a node's result.
        unlike: What it is at best where nodes differ.
    """
    results = {node: read(answer) for node, answer in answers.items()}
    nodes: dict[str, list[str]] = {}
    for node, result in results.items():
        nodes.setdefault(result.text, []).append(node)
    statuses = [result.status for result in results.values()]
    if len(nodes) == 1:
        [text] = nodes
    else:
        statuses.append(unlike)
        parts = (f"{text} ({name_some(names, _SHOWN)})" for text, names in nodes.items())
        text = "; ".join(parts)
    worst = max(statuses, key=_SEVERITIES.index)
    remedies = (one.remedy for one in results.values() if one.status == worst and one.remedy)
    return CheckResult(worst, text, next(remedies, None))


# -- what is good and what is not ----------------------------------------------------------------


def _judge_nodes(answers: _Answers, failures: Mapping[str, str]) -> CheckResult:
    if failures:
        return missing("; ".join(f"{node}: {why}" for node, why in failures.items()))
    if not answers:
        return missing("the cluster has none")
    return ok(f"{len(answers)}: {name_some([*answers], _SHOWN)}")


def _judge_scratch(free: int) -> CheckResult:
    text = f"{format_bytes(free)} free"
    return ok(text) if free >= _LITTLE_SCRATCH else warning(text)


def _judge_niceness(niceness: int) -> CheckResult:
    return ok("0") if niceness <= 0 else warning(str(niceness))


def _want(is_there: bool) -> CheckResult:
    return ok("yes") if is_there else warning("no")


_FACTS: Final[tuple[tuple[str, Callable[[Any], CheckResult], str, str], ...]] = (
    *(
        (
            key,
            ok,
            "An attempt that continues on another node can behave differently.",
            "Reserve a resource that only nodes of one kind have: cluster.resources.",
        )
        for key in ("processor", "libc")
    ),
    (
        "route_out",
        _want,
        "Agents there do not reach the provider of their model.",
        "Give these nodes a way to the internet, or a proxy.",
    ),
    (
        "token",
        _want,
        "Whoever reaches the cluster can run programs on it, so it is sent no keys of agents.",
        "Start each node with one token: RAY_AUTH_MODE=token ray start.",
    ),
    (
        "tls",
        _want,
        "Keys of agents are sent to other machines only with cluster.trusted_network = true.",
        'Set RAY_USE_TLS=1 and its certificates before ray start, or cluster.keys = "node".',
    ),
    (
        "niceness",
        _judge_niceness,
        "Worlds and agents get less of the processor than other programs.",
        "Start each node with: RAY_worker_niceness=0 ray start.",
    ),
)
"""Facts of nodes: key, judge, the consequence of a bad one, the remedy."""
