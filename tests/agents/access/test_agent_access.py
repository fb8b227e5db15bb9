"""An agent's address of its world is its own, recorded, and the same after a resume."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from clawblox.agents.access.agent_access import AgentAccess
from clawblox.agents.access.grant import host_name
from clawblox.agents.layout import AgentDir
from clawblox.errors import AgentResumeError, AgentSetupError, UsageError
from clawblox.system.port_leases import leases
from clawblox.system.ports import open_listener, take_free_port
from tests.agents.access.support import HANG_S, Got, Served, make_grant, receive, serving
from tests.support.resources import open_fds
from tests.support.sockets import is_listening
from tests.support.waiting import wait_until
from tests.system.scripted import Script, scripted

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def make_access(directory: Path, *, is_sandboxed: bool = False) -> AgentAccess:
    return AgentAccess("Rocky-r001", AgentDir(directory), is_sandboxed=is_sandboxed)


def recorded(directory: Path) -> Any:
    return json.loads((directory / "world_access.json").read_text())


def port_number(base_url: str) -> int:
    return int(base_url.rpartition(":")[2])


def test_each_agent_gets_its_own_recorded_and_leased_port(tmp_path: Path) -> None:
    access = make_access(tmp_path / "agents" / "rocky")
    assert (access.base_url, access.granted, access.host) == (None, None, None)
    base_url = access.grant(make_grant(None))
    port = port_number(base_url)
    assert base_url == access.base_url == f"http://127.0.0.1:{port}"
    assert recorded(tmp_path / "agents" / "rocky") == {"base_url": base_url, "world": "counter"}
    assert (tmp_path / "agents" / "rocky" / "world_access.json").stat().st_mode & 0o777 == 0o600
    assert is_listening(port)
    assert not leases.take(port)
    access.close()
    access.close()
    assert not is_listening(port)
    assert leases.take(port)
    leases.release(port)


def test_a_second_grant_keeps_the_address_and_replaces_the_world(tmp_path: Path) -> None:
    access = make_access(tmp_path)
    with scripted(Script([OK])) as old, scripted(Script([OK])) as new:
        base_url = access.grant(make_grant(old.url))
        agent = Served(access, port_number(base_url))
        with serving(access):
            assert agent.get("/observe").status == 200
            headers = {"X-Session": "another"}
            assert access.grant(make_grant(new.url, headers=headers)) == base_url
            assert agent.get("/observe").status == 200
        assert (len(old.requests), b"X-Session: another\r\n" in new.requests[0]) == (1, True)
    access.close()


def test_a_resumed_agent_has_the_same_port(tmp_path: Path) -> None:
    access = make_access(tmp_path)
    base_url = access.grant(make_grant(None))
    access.close()
    again = make_access(tmp_path)
    assert again.grant(make_grant(None, world="another")) == base_url
    assert is_listening(port_number(base_url))
    again.close()


def test_a_closed_access_can_be_opened_again_with_the_same_port(tmp_path: Path) -> None:
    access = make_access(tmp_path)
    access.open()
    base_url = access.grant(make_grant(None))
    access.close()
    for late in (access.open, lambda: access.grant(make_grant(None))):
        with pytest.raises(UsageError, match="closed"):
            late()
    assert not is_listening(port_number(base_url))
    access.begin()
    access.open()
    access.open()
    assert is_listening(port_number(base_url))
    assert Served(access, port_number(base_url)).port
    access.close()


def test_a_stopped_agent_hands_its_address_to_its_continuation(
    tmp_path: Path,
) -> None:
    stopped, continuing = make_access(tmp_path / "old"), make_access(tmp_path / "new")
    base_url = stopped.grant(make_grant(None))
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    with pytest.raises(AgentResumeError, match="by the agent Rocky-r001 of this process"):
        continuing.grant(make_grant(None))  # the agent has not been stopped
    stopped.rest()
    with scripted(Script([OK])) as world:
        assert continuing.grant(make_grant(world.url)) == base_url
        with serving(continuing):
            assert Served(continuing, port_number(base_url)).get("/observe").status == 200
    with pytest.raises(AgentResumeError, match="by the agent Rocky-r001 of this process"):
        stopped.open()
    continuing.rest()
    stopped.open()  # the address is returned in the same way
    continuing.close()
    assert is_listening(port_number(base_url))
    stopped.close()


def test_a_handed_over_address_serves_only_the_continuing_agent(
    tmp_path: Path,
) -> None:
    stopped, continuing = make_access(tmp_path / "old"), make_access(tmp_path / "new")
    with scripted(Script([OK] * 9)) as old, scripted(Script([OK] * 30)) as new:
        base_url = stopped.grant(make_grant(old.url))
        shutil.copytree(tmp_path / "old", tmp_path / "new")
        agent = Served(continuing, port_number(base_url))
        with serving(stopped), serving(continuing):
            assert agent.get("/observe").status == 200
            stopped.rest()
            assert agent.get("/observe").status == 200
            assert continuing.grant(make_grant(new.url)) == base_url
            assert {agent.get("/observe").status for _ in range(20)} == {200}
            assert (len(old.requests), len(new.requests)) == (2, 20)
            continuing.rest()
            stopped.open()
            assert agent.get("/observe").status == 200
            assert len(old.requests) == 3
            with agent.connect():  # a connected client that sends nothing
                stopped.rest()
                continuing.open()
                assert agent.get("/observe").status == 200
    for one in (stopped, continuing):
        one.close()
    assert not is_listening(port_number(base_url))


@pytest.mark.parametrize("taken_by", ["lease", "socket"])
def test_a_resume_without_its_port_is_an_error_with_a_hint(tmp_path: Path, taken_by: str) -> None:
    access = make_access(tmp_path)
    base_url = access.grant(make_grant(None))
    port = port_number(base_url)
    if taken_by == "socket":
        access.close()
        other = open_listener("127.0.0.1", port)
    again = make_access(tmp_path)
    problem = f"port {port} is in use" if taken_by == "socket" else "Rocky-r001 of this process"
    with pytest.raises(AgentResumeError, match=problem) as caught:
        again.grant(make_grant(None))
    error = caught.value
    assert f"port {port}" in str(error.hint)
    assert "sandbox=True" in str(error.hint)
    assert (again.base_url, again.granted) == (None, None)
    if taken_by == "socket":
        other.close()
    else:
        access.close()
    assert again.grant(make_grant(None)) == base_url
    again.close()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"base_url": 7}',
        '{"base_url": "http://10.0.0.1:20000"}',
        '{"base_url": "http://127.0.0.1:0"}',
        '{"base_url": "http://127.0.0.1:22"}',
        '{"base_url": "http://127.0.0.1:80"}',
        '{"base_url": "http://127.0.0.1:19999"}',
        '{"base_url": "http://127.0.0.1:32000"}',
        '{"base_url": "http://127.0.0.1:99999"}',
        pytest.param("[" * 100_000, id="nested deeply"),
        pytest.param(f'{{"base_url": "http://127.0.0.1:20000"{" " * (64 << 10)}}}', id="huge"),
        '{"base_url": "http://127.0.0.1:20000/"}',
        '{"base_url": "https://counter"}',
        "\xff",
    ],
)
def test_a_damaged_record_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "world_access.json").write_text(text, encoding="latin-1")
    with pytest.raises(AgentResumeError, match=r"world_access\.json"):
        make_access(tmp_path).grant(make_grant(None))
    assert (tmp_path / "world_access.json").read_text(encoding="latin-1") == text


def test_a_record_that_is_a_link_or_a_pipe_is_an_error(tmp_path: Path) -> None:
    directory, record = tmp_path / "agent", tmp_path / "agent" / "world_access.json"
    directory.mkdir()
    (tmp_path / "other.json").write_text('{"base_url": "http://127.0.0.1:20000"}')
    record.symlink_to(tmp_path / "other.json")
    for _ in range(2):
        with pytest.raises(AgentResumeError, match=r"world_access\.json cannot be read"):
            make_access(directory).grant(make_grant(None))
        record.unlink()
        os.mkfifo(record)


@pytest.mark.parametrize("was_sandboxed", [False, True])
def test_a_resume_with_another_sandbox_is_an_error(tmp_path: Path, was_sandboxed: bool) -> None:
    access = make_access(tmp_path, is_sandboxed=was_sandboxed)
    access.grant(make_grant(None))
    access.close()
    with pytest.raises(AgentResumeError, match="cannot reach") as caught:
        make_access(tmp_path, is_sandboxed=not was_sandboxed).grant(make_grant(None))
    assert f"sandbox={was_sandboxed}" in str(caught.value.hint)


def test_an_address_that_cannot_be_recorded_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    access = make_access(tmp_path / "file" / "agent")
    before = len(open_fds())
    with pytest.raises((AgentSetupError, AgentResumeError)):
        access.grant(make_grant(None))

    def fail(*_: object) -> None:
        raise OSError("no space left")

    access = make_access(tmp_path / "agent")
    with monkeypatch.context() as patch:
        patch.setattr("clawblox.agents.access.agent_access.publish_bytes", fail)
        with pytest.raises(AgentSetupError, match="no space left"):
            access.grant(make_grant(None))
    assert len(open_fds()) == before
    access.grant(make_grant(None))
    access.close()


def test_a_newly_connected_world_is_served_immediately(
    tmp_path: Path,
) -> None:
    access = make_access(tmp_path)
    with scripted(Script([OK])) as world:
        with serving(access):
            agent = Served(access, port_number(access.grant(make_grant(world.url))))
            assert agent.get("/observe").status == 200
        access.close()


def test_connections_wait_while_the_access_is_not_served(tmp_path: Path) -> None:
    access = make_access(tmp_path)
    with scripted(Script([OK]), Script([OK])) as world:
        agent = Served(access, port_number(access.grant(make_grant(world.url))))
        got: list[Got] = []
        early = threading.Thread(target=lambda: got.append(agent.get("/observe")))
        early.start()
        with serving(access):
            early.join(HANG_S)
        with serving(access):
            assert agent.get("/observe").status == 200
        assert [one.status for one in got] == [200]
    access.close()


# -- sandboxed agents -----------------------------------------------------------------------


HOST_NAMES = {
    "mesa-small-world-3": "mesa-small-world-3",
    "Counter": "counter",
    "Ročky & co/? 100%": "rocky-co-100",
    "under_score.dots": "under-score-dots",
    "--x--": "x",
    "世界": "world",
    "": "world",
    "localhost": "world-localhost",
    "127": "world-127",
    "0x7f": "world-0x7f",
    "0x7f-1": "0x7f-1",
    "x" * 80: "x" * 63,
    "x" * 62 + "-y": "x" * 62,
}


@pytest.mark.parametrize("world", HOST_NAMES)
def test_a_sandboxed_agent_knows_its_world_by_name(tmp_path: Path, world: str) -> None:
    name = HOST_NAMES[world]
    assert host_name(world) == name
    access = make_access(tmp_path, is_sandboxed=True)
    before = len(open_fds())
    assert access.grant(make_grant(None, world=world)) == f"http://{name}"
    assert access.host == name
    assert len(open_fds()) == before
    access.close()
    again = make_access(tmp_path, is_sandboxed=True)
    assert again.grant(make_grant(None, world="another")) == f"http://{name}"
    again.close()


def ask_by_name(listener: socket.socket, host: str) -> Got:
    with socket.create_connection(listener.getsockname(), HANG_S) as connection:
        connection.sendall(f"GET /observe HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        return receive(connection)


def test_sockets_are_replaced_with_each_process(tmp_path: Path) -> None:
    access = make_access(tmp_path, is_sandboxed=True)
    first, second, third = (socket.create_server(("127.0.0.1", 0)) for _ in range(3))
    with scripted(Script([OK] * 9)) as world:
        access.grant(make_grant(world.url))
        access.hand_over(first)
        with serving(access):
            assert ask_by_name(first, "counter").status == 200
            assert ask_by_name(first, "counter:80").status == 200
            assert ask_by_name(first, "127.0.0.1").status == 421
            assert ask_by_name(first, f"127.0.0.1:{first.getsockname()[1]}").status == 421
            access.hand_over(second)
            assert ask_by_name(second, "COUNTER").status == 200
            wait_until(lambda: first.fileno() == -1, what="the socket of the old process is closed")
            access.hand_over(None)
            wait_until(lambda: second.fileno() == -1)
            access.hand_over(third)
            assert ask_by_name(third, "counter").status == 200
        assert third.fileno() != -1
        access.hand_over(None)
        assert third.fileno() == -1
    access.close()


IN_NAMESPACE = """
import fcntl, http.client, socket, struct, sys
outside = socket.socket(fileno=int(sys.argv[1]))
with socket.socket() as any_socket:  # the loopback interface is down at first
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 0x41))
listener = socket.create_server(("127.0.0.1", 80))
socket.send_fds(outside, [b"x"], [listener.fileno()])
client = http.client.HTTPConnection("127.0.0.1", timeout=20)
client.request("GET", "/observe", headers={"Host": "counter"})
print(client.getresponse().read().decode())
"""


def test_a_socket_of_another_network_namespace_is_served(tmp_path: Path) -> None:
    command = ["unshare", "--user", "--map-root-user", "--net"]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"]).returncode:
        pytest.skip("no network namespaces here")
    access = make_access(tmp_path, is_sandboxed=True)
    ours, theirs = socket.socketpair()
    with scripted(Script([OK])) as world, serving(access), ours, theirs:
        access.grant(make_grant(world.url))
        command += [sys.executable, "-I", "-S", "-c", IN_NAMESPACE, str(theirs.fileno())]
        with subprocess.Popen(
            command, pass_fds=[theirs.fileno()], stdout=subprocess.PIPE, text=True
        ) as inside:
            ours.settimeout(HANG_S)
            _, fds, _, _ = socket.recv_fds(ours, 1, 1)
            access.hand_over(socket.socket(fileno=fds[0]))
            assert inside.communicate(timeout=HANG_S)[0] == "ok\n"
    access.close()


def test_an_agent_without_a_world_gets_an_explanation(tmp_path: Path) -> None:
    access = make_access(tmp_path, is_sandboxed=True)
    listener = socket.create_server(("127.0.0.1", 0))
    access.hand_over(listener)
    with serving(access):
        assert ask_by_name(listener, "counter").status == 421
    access.close()
    assert listener.fileno() == -1


def test_a_forked_child_keeps_no_socket_of_an_agent(tmp_path: Path) -> None:
    access = make_access(tmp_path)
    port = port_number(access.grant(make_grant(None)))
    reader, writer = os.pipe()
    if (pid := os.fork()) == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    os.close(reader)
    access.close()
    try:
        wait_until(lambda: not is_listening(port), what="the child has closed it")
    finally:
        os.close(writer)
        os.waitpid(pid, 0)


def test_many_agents_have_different_addresses(tmp_path: Path) -> None:
    accesses = [make_access(tmp_path / str(number)) for number in range(20)]
    threads = [threading.Thread(target=one.grant, args=(make_grant(None),)) for one in accesses]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one.base_url for one in accesses}) == len(accesses)
    for one in accesses:
        one.close()


def test_the_lease_is_shared_among_orchestrators(tmp_path: Path) -> None:
    lease = take_free_port("127.0.0.1")
    (tmp_path / "world_access.json").write_text(
        json.dumps({"base_url": f"http://127.0.0.1:{lease.port}", "world": "counter"})
    )
    with pytest.raises(AgentResumeError, match=f"pid {os.getpid()} ") as caught:
        make_access(tmp_path).grant(make_grant(None))
    assert Path(sys.executable).name[:6] in str(caught.value)
    lease.release()
