"""The line editor of a session on a terminal; the only module that uses prompt_toolkit.

Messages that arrive while a line is typed are shown above it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.output.vt100 import Vt100_Output

from clawblox.cli.playing.consoles import PlayConsole
from clawblox.cli.terminal.streams import raw_stream
from clawblox.system.regular_files import open_own


class EditorConsole(PlayConsole):
    """A terminal with a line editor.

    Args:
        prompt: Text in front of the typed line.
        history_file: File with the lines of all sessions; if it cannot be written, the lines are
            kept for this session only.
        completions: The lines that can be completed, ignoring case.
    """

    def __init__(self, prompt: str, history_file: Path, completions: Sequence[str]) -> None:
        super().__init__(prompt)
        # A terminal could answer the query for the cursor's position too late.
        output = Vt100_Output.from_pty(raw_stream(sys.stdout), os.environ.get("TERM"))
        output.enable_cpr = False
        self._session: PromptSession[str] = PromptSession(
            output=output,
            history=_open_history(history_file),
            completer=WordCompleter(completions, ignore_case=True, sentence=True),
            complete_while_typing=False,
        )

    async def read_line(self) -> str | None:
        """Return the next typed line; None after Ctrl-D.

        Cancellation: the typed characters are lost.
        """
        while True:
            try:
                return await self._session.prompt_async(self._prompt, handle_sigint=False)
            except KeyboardInterrupt:  # Ctrl-C clears the line
                continue
            except EOFError:
                return None

    async def show(self, lines: Sequence[str]) -> None:
        """Show lines above the line that is being typed."""
        text = "".join(f"{line}\n" for line in lines)
        await run_in_terminal(lambda: print(text, end="", flush=True))


def _open_history(path: Path) -> History:
    """Return the history from a private file, or from memory if the file cannot be used."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(open_own(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT))
        return FileHistory(str(path))
    return InMemoryHistory()
