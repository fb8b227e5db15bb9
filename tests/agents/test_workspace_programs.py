"""Programs of commands, with paths in the workspace of an agent or elsewhere."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from clawblox import AsyncAgent
from clawblox.errors import AgentError, AgentSetupError

pytestmark = pytest.mark.anyio

SCRIPT = """\
#!/bin/sh
echo "$0" >found
(echo "# changed" >>"$0") 2>errors && echo writable >>found
exit 0
"""


def write(path: Path, text: str = SCRIPT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def make(root: Path, program: str, *, sandbox: bool) -> AsyncAgent:
    (root / "oni" / "workspace").mkdir(parents=True, exist_ok=True)
    return AsyncAgent(
        agent="command",
        name="Oni",
        dir=root / "oni",
        command={"start": [program, "{prompt}"]},
        auto_continue=False,
        sandbox=sandbox,
    )


async def run(agent: AsyncAgent) -> list[str]:
    async with agent:
        await agent.start("Begin")
        await agent.wait()
    return (agent.dir / "workspace" / "found").read_text().splitlines()


@pytest.mark.parametrize("sandbox", [False, True])
async def test_a_program_in_the_workspace_runs_there(tmp_path: Path, *, sandbox: bool) -> None:
    workspace = tmp_path / "oni" / "workspace"
    own = write(workspace / "bin" / "agent")
    text = "#!/bin/sh\necho started\n" + SCRIPT.partition("\n")[2]
    write(own, text)
    agent = make(tmp_path, "{workspace}/bin/agent", sandbox=sandbox)
    place, *_ = await run(agent)
    assert place == ("/workspace/bin/agent" if sandbox else str(own))


@pytest.mark.parametrize("sandbox", [False, True])
async def test_a_program_elsewhere_is_read_only_in_a_sandbox(
    tmp_path: Path, *, sandbox: bool
) -> None:
    program = write(tmp_path / "tools" / "agent", SCRIPT.replace("exit 0", "echo started"))
    place, *others = await run(make(tmp_path, str(program), sandbox=sandbox))
    assert place == str(program)
    assert others == ([] if sandbox else ["writable"])
    assert ("changed" in program.read_text().splitlines()[-1]) is not sandbox


async def test_a_program_with_a_path_through_a_parent_directory_is_visible_in_a_sandbox(
    tmp_path: Path,
) -> None:
    program = write(tmp_path / "tools" / "agent", SCRIPT.replace("exit 0", "echo started"))
    (tmp_path / "plans").mkdir()
    given = str(tmp_path / "plans" / ".." / "tools" / "agent")
    assert await run(make(tmp_path, given, sandbox=True)) == [str(program)]


async def test_a_program_that_an_agent_can_write_adds_no_visible_file(tmp_path: Path) -> None:
    interpreter = tmp_path / "private" / "python3"
    interpreter.parent.mkdir()
    shutil.copy("/bin/sh", interpreter)
    write(tmp_path / "oni" / "workspace" / "agent", f"#!{interpreter}\necho started\n")
    async with make(tmp_path, "{workspace}/agent", sandbox=True) as agent:
        with pytest.raises(AgentError):
            await agent.start("Begin")


@pytest.mark.parametrize("program", ["missing", "notes.md", "../outside", "bin"])
async def test_a_program_that_is_not_in_the_workspace_is_refused(
    tmp_path: Path, program: str
) -> None:
    workspace = tmp_path / "oni" / "workspace"
    (workspace / "bin").mkdir(parents=True)
    (workspace / "notes.md").write_text("Nothing.\n")
    write(workspace.parent / "outside")
    async with make(tmp_path, f"{{workspace}}/{program}", sandbox=False) as agent:
        with pytest.raises(AgentSetupError, match="is not an executable file in its workspace"):
            await agent.start("Begin")
