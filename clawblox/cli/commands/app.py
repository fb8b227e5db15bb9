"""``clawblox app``: web pages of the runs and experiments in a directory."""

from __future__ import annotations

import os
import socket
import webbrowser
from pathlib import Path

import click

from clawblox.cli.parameters import PATH, SIZE, count_type, examples, existing_path
from clawblox.errors import ClawbloxError, UsageError
from clawblox.extras import find_missing, install_command
from clawblox.views.formatting import shorten_path


@examples("""
  clawblox app                   the runs below the current directory
  clawblox app runs/r001         a single run
  clawblox app runs --port 9000
  clawblox app runs --open '#r001/agent/Ada/o12345'
  clawblox app runs/r001 --bundle pages   the same pages as files, to send

The pages only read files, so they show running and ended runs without affecting them. On
request, they start the viewer of a world, which ends with this command. The pages are only
visible on this machine; from another machine, forward the port with ssh -L.
""")
@click.command("app")
@click.argument("directory", type=PATH, default=".", metavar="[DIR]")
@click.option(
    "--port",
    type=count_type(0, 65535),
    default=8081,
    show_default=True,
    metavar="PORT",
    help="Port.",
)
@click.option(
    "--open",
    "shared",
    metavar="ADDRESS",
    help="Open the page of this address, as copied with “copy link” on a page.",
)
@click.option("--no-browser", is_flag=True, help="Do not open a browser.")
@click.option(
    "--allow-host",
    "names",
    multiple=True,
    metavar="NAME",
    help="Further host name, or host:port, that requests may use.",
)
@click.option(
    "--bundle",
    type=PATH,
    metavar="OUT",
    help="Write the pages into the new directory OUT instead, without the names of user, host and "
    "directories.",
)
@click.option("--redact", is_flag=True, help="Mask possible secrets in a bundle.")
@click.option(
    "--max-size",
    type=SIZE,
    help="Maximum size of a bundle, such as 50MB or 1GiB; by default 200 MB.",
)
def command(
    *,
    directory: str,
    port: int,
    shared: str | None,
    no_browser: bool,
    names: tuple[str, ...],
    bundle: str | None,
    redact: bool,
    max_size: int | None,
) -> None:
    """Show the runs and experiments in a directory as web pages.

    DIR is the current directory by default. The address contains a key, which is valid until the
    command ends. Ctrl-C ends it.

    \f
    Raises:
        ClawbloxError: The directory does not exist, the port is taken, the address cannot be used,
            the extra is missing, or a bundle cannot be made.
    """
    root = existing_path(directory)
    if bundle is not None:
        from clawblox.web.bundle import MAX_BYTES, write_bundle  # only bundles need it

        limit = MAX_BYTES if max_size is None else max_size
        write_bundle(root, Path(bundle), redact=redact, max_size=limit, announce=click.echo)
        click.echo(f"Wrote {shorten_path(Path(bundle, 'index.html'))}")
        return
    if redact or max_size is not None:
        raise UsageError("--redact and --max-size need --bundle: give --bundle OUT as well")
    if find_missing("app"):
        needs = "clawblox app needs packages that are not installed"
        raise ClawbloxError(needs, hint=install_command("app"))
    from clawblox.web.app import Server  # needs the extra

    site = Server(root, _bind(port), names)
    page = "" if shared is None else site.find_shared(shared)

    def announce() -> None:
        click.echo(f"{shorten_path(root)}: {site.address}{page}")
        click.echo(f"From another machine: ssh -L {site.port}:127.0.0.1:{site.port} THIS_MACHINE")
        click.echo("Ctrl-C ends it.")
        if not no_browser:
            webbrowser.open(site.open_once(page))

    site.serve(announce)


def _bind(port: int) -> socket.socket:
    try:
        listener = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        why = os.strerror(error.errno or 0)
        hint = "give another --port; 0 chooses one"
        raise ClawbloxError(f"--port: {port} cannot be bound: {why}", hint=hint) from error
    # Accepted connections inherit the option and send small segments without delay.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
