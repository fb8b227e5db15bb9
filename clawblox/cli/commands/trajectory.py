"""``clawblox trajectory``: exports the work of an agent in an interchange format."""

from __future__ import annotations

from pathlib import Path

import click

from clawblox.agents.status import find_agent
from clawblox.agents.trajectory import (
    FILE_NAME,
    encode_trajectory,
    export_trajectory,
    has_conversation,
    write_trajectory,
)
from clawblox.cli.parameters import FILE, directory_argument, examples, existing_agent_place
from clawblox.errors import ClawbloxError, UsageError
from clawblox.printable import printable_json
from clawblox.views.formatting import count_words, shorten_path


@examples(f"""
  clawblox trajectory runs/r001/agents/Eko        writes {FILE_NAME} there
  clawblox trajectory runs/r001 -o eko.json       the only agent of a run
  clawblox trajectory runs/r001 -o - | jq .final_metrics
  clawblox trajectory runs/r001 --html eko.html   a page to send

The format is ATIF 1.7, the Agent Trajectory Interchange Format.
""")
@click.command("trajectory")
@directory_argument
@click.option(
    "-o",
    "--output",
    type=FILE,
    help=f"File to write, - for standard output; by default {FILE_NAME} in the agent's directory.",
)
@click.option(
    "--continued-in",
    type=FILE,
    help="Trajectory of the run that continues this run, to be named in the document.",
)
@click.option(
    "--html",
    type=FILE,
    help="Write the steps as a web page into FILE instead, without the names of user, host and "
    "directories.",
)
@click.option("--redact", is_flag=True, help="Mask possible secrets in the web page.")
def command(
    *,
    directory: str,
    output: str | None,
    continued_in: str | None,
    html: str | None,
    redact: bool,
) -> None:
    """Write the trajectory of an agent as an ATIF document.

    DIR is the directory of an agent, or a run directory with one agent. The document spans all
    processes of the agent there; for a running agent it is the trajectory so far.

    \f
    Raises:
        ClawbloxError: The directory does not exist.
        UsageError: There is no agent, or there are several; or options exclude each other.
        AgentError: A file of the agent cannot be read.
        OSError: A file cannot be read or written.
    """
    if html is not None and (output is not None or continued_in is not None):
        raise UsageError("--html writes a web page: leave out --output and --continued-in")
    if redact and html is None:
        raise UsageError("--redact needs --html: give --html FILE as well")
    path = existing_agent_place(directory).absolute()
    agent_dir = path if has_conversation(path) else find_agent(path).dir
    if output == "-":
        document = export_trajectory(agent_dir, continued_in=continued_in)
        click.echo(printable_json(encode_trajectory(document).decode()), nl=False)
        return
    file = Path(html or output or agent_dir / FILE_NAME)
    if not file.parent.is_dir():
        place = shorten_path(file.parent)
        raise ClawbloxError(f"Path '{place}' does not exist", hint="create the directory first")
    if html is None:
        steps = write_trajectory(agent_dir, file, continued_in=continued_in)
    else:
        from clawblox.web.agent_steps import write_agent_file  # only HTML pages need it

        steps = write_agent_file(agent_dir, file, path, redact=redact)
    click.echo(f"Wrote {shorten_path(file)}: {count_words(steps, 'step')}")
