"""The facts of a node, and the connection to a cluster without its extra."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from clawblox.errors import ConfigError
from clawblox.experiment.cluster import connect as connecting
from clawblox.experiment.cluster import node
from clawblox.experiment.cluster.connect import connect
from clawblox.experiment.cluster.node import describe_node, machine_facts
from clawblox.experiment.plan import Cluster

SCRIPT = "import json; from clawblox.experiment.cluster import node; print(json.dumps({}))"


def ask_process(*prefix: str, **env: str) -> dict[str, object]:
    """Return the facts that another process with these variables reports about itself."""
    script = SCRIPT.format("node.describe_node()")
    command = [*prefix, sys.executable, "-c", script]
    answer = subprocess.run(command, env={**os.environ, **env}, capture_output=True, check=True)
    facts: dict[str, object] = json.loads(answer.stdout)
    return facts


def test_the_facts_of_a_machine_are_strings() -> None:
    facts = machine_facts()
    assert [*facts] == ["processor", "libc", "python"]
    assert facts["processor"].startswith(f"{platform.machine()} ")
    assert facts["python"] == platform.python_version()
    assert facts["libc"]


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC: 7\n", "AMD EPYC: 7"),
        ("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n", "0xd0c"),
        ("processor\t: 0\n", "unknown"),
        (None, "unknown"),
    ],
)
def test_a_processor_has_the_name_given_by_the_kernel(
    text: str | None, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "_CPUINFO", tmp_path / "cpuinfo")
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    assert machine_facts()["processor"] == f"{platform.machine()} {model}"


@pytest.mark.thorough
def test_a_process_knows_its_niceness_and_the_security_of_its_cluster() -> None:
    usual = ask_process(RAY_AUTH_MODE="disabled", RAY_USE_TLS="0")
    assert (usual["token"], usual["tls"]) == (False, False)
    secured = ask_process("nice", "-n", "7", RAY_AUTH_MODE="token", RAY_USE_TLS="1")
    assert (secured["token"], secured["tls"]) == (True, True)
    assert secured["niceness"] == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 7)


@pytest.mark.thorough
@pytest.mark.skipif("os.geteuid() != 0")
def test_a_machine_without_a_network_has_no_route_out() -> None:
    assert ask_process("unshare", "-n")["route_out"] is False


def test_the_scratch_directory_of_a_node_is_on_the_disk_for_temporary_files() -> None:
    free = describe_node()["scratch_bytes"]
    assert 0 < free <= shutil.disk_usage(tempfile.gettempdir()).total


def test_the_error_for_a_missing_cluster_extra_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connecting, "find_missing", lambda extra: (extra,))
    with pytest.raises(ConfigError) as caught:
        connect(Cluster())
    assert "cluster: needs the extra clawblox[ray]" in str(caught.value)
    assert "pip install" in str(caught.value.hint)


def test_a_cluster_uses_ray_at_the_address_in_the_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connecting, "find_missing", lambda _extra: ())
    for name, values in (
        ("host", {"AttemptHost": lambda lease, node: (lease, node)}),
        ("ray_engine", {"RayEngine": lambda *arguments: arguments}),
    ):
        module = f"clawblox.experiment.cluster.{name}"
        monkeypatch.setitem(sys.modules, module, SimpleNamespace(**values))
    address, host_class = cast("Any", connect(Cluster(address="head:6379", lease=45)))
    assert (address, host_class("n1")) == ("head:6379", (45.0, "n1"))
