"""The engine's page and the states of a recording as files, for a frame without a server.

The page is a single file, since a page without an origin may not load others: the script
``static/frame_file.js`` answers the page's requests from a table. The renderer of a world is left
out, because only headers can keep foreign code from opening connections (WebRTC, preconnect).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from clawblox.system.regular_files import open_directory
from clawblox.system.trees import TreeWalk
from clawblox.web.frames import PACKAGE, RecordedWorld, read_frame_file
from clawblox.web.page import read_static
from clawblox.web.recordings import OpenRecording
from clawblox.web.site import NoSuchPage

_MAX_FILES_BYTES: Final = 16 << 20
"""Maximum total size of the assets of a world; further assets are left out."""
_WINDOW_S: Final = 10.0
_MAX_WINDOWS: Final = 1000
_KEY: Final = b'"root_part_id"'
_KEPT: Final = b"<%b>" % _KEY
"""Tag in place of a key of states that may equal a user's name; names in tags are not replaced."""
_POLICY: Final = (
    "default-src 'none'; script-src 'unsafe-inline' blob:; style-src 'unsafe-inline'; "
    "img-src blob: data:; connect-src blob: data:; form-action 'none'; base-uri 'none'"
)

Clear = Callable[[bytes], bytes]
"""Removes names and secrets from a text."""


def draw_frame(world: RecordedWorld, clear: Clear) -> bytes:
    """Return the engine's page for a world as one file. Blocks.

    Args:
        world: The world.
        clear: Clears the texts. Binary files that would need clearing are left out.
    """
    page = read_frame_file(world, "")[1].decode()
    style = read_frame_file(world, "ui/style.css")[1].decode()
    page = re.sub(r'<link\b[^>]*>|<script type="module".*?</script>', "", page)
    meta = f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    page = page.replace("<head>", f"<head>\n{meta}<style>{style}</style>")
    page = page.replace('type="importmap"', 'type="application/json" id="imports"')
    table = b",\n".join(_encode_files(world, clear))
    files = b'<script type="application/json" id="files">{%b}</script>\n' % table
    script = b"<script>\n%b</script>\n</body>" % read_static("frame_file.js")
    return page.encode().replace(b"</body>", files + script)


def _encode_files(world: RecordedWorld, clear: Clear) -> Iterator[bytes]:
    """Yield members of the table: path, and text or a list with base64."""
    page = (f"ui/{path}" for path in _list(PACKAGE / "engine" / "page"))
    own = (path for path in page if path.endswith((".js", ".glb")))
    for path in ("chat/messages", "assets/player.glb", *own):
        yield b"%b:%b" % (_encode(path.encode()), _encode(read_frame_file(world, path)[1]))
    manifest = json.loads(read_frame_file(world, "renderer/manifest")[1]) | {"entry_url": None}
    yield b'"renderer/manifest":' + clear(_encode(json.dumps(manifest).encode()))
    size = 0
    for path in _list(world.config.dir / "assets") if world.config else ():
        with suppress(NoSuchPage):  # the file is a link, or too large
            data = read_frame_file(world, f"assets/{path}")[1]
            encoded, name = _encode(data), clear(_encode(f"assets/{path}".encode()))
            is_text = encoded.startswith(b'"')
            if size + len(data) <= _MAX_FILES_BYTES and (is_text or clear(data) == data):
                size += len(data)
                yield b"%b:%b" % (name, clear(encoded) if is_text else encoded)


def _list(directory: Path) -> Iterator[str]:
    with suppress(FileNotFoundError), TreeWalk(open_directory(directory)) as walk:
        for entry in walk:
            if entry.kind == "directory":
                walk.enter(entry.name)
            elif entry.kind == "file":
                yield walk.path_to(entry.name)


def _encode(data: bytes) -> bytes:
    """Return text as JSON, or bytes as base64 in a list; ``<`` is escaped, so there are no tags."""
    try:
        content: str | list[str] = data.decode()
    except UnicodeDecodeError:
        content = [base64.b64encode(data).decode()]
    return json.dumps(content, ensure_ascii=False).replace("<", "\\u003c").encode()


def draw_states(
    recording: OpenRecording, name: str, clear: Clear, max_bytes: int
) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of scripts with the states of a recording; the last lists them.

    Args:
        recording: The recording.
        name: Prefix of the file names.
        clear: Clears the contents.
        max_bytes: Maximum total size; later states are left out.
    """
    (since, end), size, windows = recording.span, 0, list[tuple[float, float, str]]()
    while since <= end and len(windows) < _MAX_WINDOWS and size < max_bytes:
        data = recording.read_states(since, since + _WINDOW_S)
        until = json.loads(data)["next"] or since + _WINDOW_S
        windows.append((since, min(until, end), f"{name}-{len(windows):03}.js"))
        data = clear(data.replace(b"<", b"\\u003c").replace(_KEY, _KEPT)).replace(_KEPT, _KEY)
        data = b"takeStates(%b);\n" % data
        size += len(data)
        yield windows[-1][-1], data
        since = until
    yield f"{name}.js", f"const STATES = {json.dumps(windows)};\n".encode()
