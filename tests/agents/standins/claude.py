"""Stand-in for Claude Code 2.1, headless: ``claude -p`` with stream-json in and out."""

import json
import os
import select
import sys
import time

import common

VERSION = "2.1.197"

FLAGS = {"-p", "--print", "--verbose", "--bare", "--dangerously-skip-permissions"}
FLAGS |= {"--strict-mcp-config", "--no-session-persistence", "--fork-session"}
FLAGS |= {"--include-partial-messages", "--include-hook-events", "--replay-user-messages"}
FLAGS |= {"--allow-dangerously-skip-permissions", "--disable-slash-commands"}
VALUES = {"--output-format", "--input-format", "--model", "--fallback-model", "--permission-mode"}
VALUES |= {"--session-id", "--resume", "-r", "--append-system-prompt", "--system-prompt"}
VALUES |= {"--append-system-prompt-file", "--system-prompt-file", "--setting-sources", "--effort"}
VALUES |= {"--settings", "--mcp-config", "--add-dir", "--tools", "--allowedTools", "--max-turns"}
VALUES |= {"--allowed-tools", "--disallowedTools", "--disallowed-tools", "--max-budget-usd"}
VALUES |= {"--agents", "--agent", "--plugin-dir", "--json-schema", "--name", "-n", "--debug-file"}
MODES = ["acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "plan"]

TOOLS = ["Task", "Bash", "Edit", "Read", "WebFetch", "Write"]
RETRIES = {401: "authentication_failed", 429: "rate_limit", 500: "server_error", 529: "overloaded"}
ERRORS = {401: "authentication_failed", 403: "authentication_failed", 429: "rate_limit"}
ERRORS |= {500: "server_error", 529: "server_error"}
MAX_RETRIES = 10


def is_since(*version):
    return tuple(map(int, VERSION.split("."))) >= version


def is_later():
    """Return whether this is the later of the two known versions."""
    return is_since(2, 1, 330)


def keeps_cost():
    """Return whether the program stores the cost with the conversation at its end."""
    return is_since(2, 1, 277)


def reports_messages():
    """Return whether the version reports the progress of messages with ids."""
    return is_since(2, 1, 276)


def slug(path):
    """Return the name of the directory with the conversations of a working directory."""
    units = path.encode("utf-16-le")
    name = "".join(
        chr(low) if not high and chr(low).isalnum() and low < 128 else "-"
        for low, high in zip(units[::2], units[1::2], strict=True)
    )
    if len(name) <= 200:
        return name
    number = 0
    for low, high in zip(units[::2], units[1::2], strict=True):
        number = (31 * number + (high << 8 | low)) & 0xFFFFFFFF
    number = abs(number - (1 << 32) if number >= 1 << 31 else number)
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return f"{name[:200]}-{digits or '0'}"


class Arguments:
    """The command line, parsed and refused like by the program."""

    def __init__(self, words):
        self.flags, self.values, self.rest = set(), {}, []
        words = list(words)
        while words:
            word = words.pop(0)
            name, equals, value = word.partition("=")
            if name in VALUES:
                if not equals and not words:
                    common.leave(1, f"error: option '{name} <value>' argument missing")
                self.values[name] = value if equals else words.pop(0)
            elif word in FLAGS:
                self.flags.add(word)
            elif word.startswith("-"):
                common.leave(1, f"error: unknown option '{word}'")
            else:
                self.rest.append(word)

    def get(self, *names, default=None):
        return next((self.values[name] for name in names if name in self.values), default)

    def system_prompt(self):
        """Return the caller's addition to the system prompt."""
        if path := self.get("--append-system-prompt-file", "--system-prompt-file"):
            try:
                with open(path) as file:
                    return file.read()
            except OSError:
                common.leave(1, f"Error: Append system prompt file not found: {path}")
        return self.get("--append-system-prompt", "--system-prompt", default="")


class Claude:
    """One process: a conversation, with incoming messages and outgoing records."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.root = os.environ.get("CLAUDE_CONFIG_DIR") or os.path.join(
            os.environ.get("HOME", "/"), ".claude"
        )
        self.cwd = os.path.realpath(os.getcwd())
        self.projects = os.path.join(self.root, "projects")
        self.mode = arguments.get("--permission-mode", default="default")
        if "--dangerously-skip-permissions" in arguments.flags:
            self.mode = "bypassPermissions"
        self.model = arguments.get("--model", default="claude-sonnet-4-5")
        self.session = common.uuid4()
        self.path = ""
        self.leaf = None
        self.is_cut_off = False
        self.told = []
        self.cost = 0.0
        self.results = 0
        self.ids = 0

    # -------------------------------------------------------------------------- the start

    def check(self):
        """Make the program's checks, in its order and with its messages."""
        arguments = self.arguments
        modes = ["manual" if mode == "default" and is_later() else mode for mode in MODES]
        if self.mode not in [*MODES, "manual"]:
            common.leave(
                1,
                f"error: option '--permission-mode <mode>' argument '{self.mode}' is "
                f"invalid. Allowed choices are {', '.join(modes)}.",
            )
        given, resumed = arguments.get("--session-id"), arguments.get("--resume", "-r")
        if given and resumed and "--fork-session" not in arguments.flags:
            common.leave(
                1,
                "Error: --session-id with --continue or --resume also needs --fork-session."
                if is_later()
                else "Error: --session-id can only be used with --continue or --resume if "
                "--fork-session is also specified.",
            )
        if given and not common.is_uuid(given):
            common.leave(1, "Error: Invalid session ID. Must be a valid UUID.")
        bypasses = self.mode == "bypassPermissions"
        if bypasses and os.getuid() == 0 and os.environ.get("IS_SANDBOX") != "1":
            common.leave(
                1,
                "--dangerously-skip-permissions cannot be used with root/sudo privileges for "
                "security reasons",
            )
        if given and os.path.exists(self.transcript(given)):
            common.leave(1, f"Error: Session ID {given} is already in use.")
        prints_stream = arguments.get("--output-format") == "stream-json"
        if not {"-p", "--print"} & arguments.flags or not prints_stream:
            common.leave(2, "The stand-in is only used with -p --output-format stream-json.")
        if "--verbose" not in arguments.flags:
            common.leave(
                1,
                "Error: When using --print, --output-format=stream-json requires --verbose",
            )

    def transcript(self, session):
        return os.path.join(self.projects, slug(self.cwd), f"{session}.jsonl")

    def find(self, session):
        """Return the transcript to continue; the later version looks in all directories."""
        paths = [self.transcript(session)]
        if is_later() and os.path.isdir(self.projects):
            names = sorted(os.listdir(self.projects))
            paths += [os.path.join(self.projects, name, f"{session}.jsonl") for name in names]
        return next((path for path in paths if self.has_records(path)), None)

    @staticmethod
    def has_records(path):
        return os.path.exists(path) and any("uuid" in record for record in common.read_lines(path))

    def open(self):
        """Start a conversation, or continue the requested one."""
        self.session = self.arguments.get("--session-id", default=self.session)
        self.path = self.transcript(self.session)
        forks = "--fork-session" in self.arguments.flags
        if resumed := self.arguments.get("--resume", "-r"):
            if not common.is_uuid(resumed):
                self.refuse(
                    "Error: --resume requires a valid session ID or session title when used "
                    "with --print. Usage: claude -p --resume <session-id|title>. Provided value "
                    f'"{resumed}" is not a UUID and does not match any session title.',
                )
            path = self.find(resumed)
            if forks and path:
                os.makedirs(os.path.dirname(self.path), exist_ok=True)
                for record in common.read_lines(path):
                    common.append_line(self.path, record | {"sessionId": self.session})
                path = self.path
            else:
                self.session = resumed
            if path is None:
                self.refuse(f"No conversation found with session ID: {resumed}")
            if common.fault("wrong_id"):
                self.session = common.uuid4()
                path = self.transcript(self.session)
            self.path = path
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        os.makedirs(os.path.join(self.root, "session-env", self.session), exist_ok=True)
        with open(os.path.join(self.root, ".claude.json"), "a") as file:
            if not file.tell():
                json.dump({"numStartups": 1}, file)
        if resumed and os.path.exists(self.path):
            self.load()

    def refuse(self, words):
        result = self.result("error_during_execution", None, is_error=True)
        common.emit(result | {"errors": [words]})
        common.leave(1, words)

    def load(self):
        """Read the conversation."""
        is_open = False
        for record in common.read_lines(self.path):
            if record.get("type") == "cost-state" and keeps_cost():
                self.cost = record["totalCostUSD"]
            if "uuid" not in record:
                continue
            self.leaf = record["uuid"]
            message = record.get("message", {})
            is_open = record["type"] == "user" or message.get("stop_reason") == "tool_use"
            if record["type"] == "user" and isinstance(message.get("content"), str):
                self.told.append(message["content"])
        self.is_cut_off = is_open

    def close(self):
        """Close an interrupted turn, as the program does at its next start."""
        if self.is_cut_off and not is_later():
            text = {"type": "text", "text": "Continue from where you left off."}
            self.keep("user", {"role": "user", "content": [text]}, isMeta=True)
        if self.is_cut_off:
            self.keep("assistant", self.synthetic("No response requested."))
        self.is_cut_off = False

    # ------------------------------------------------------------------------- the records

    def keep(self, kind, message, **more):
        """Append a record to the transcript."""
        record = {"parentUuid": self.leaf, "isSidechain": False, "type": kind, "message": message}
        self.leaf = record["uuid"] = more.pop("uuid", None) or common.uuid4()
        record |= {"timestamp": common.now(), "userType": "external", "entrypoint": "sdk-cli"}
        record |= {"cwd": self.cwd, "sessionId": self.session, "version": VERSION}
        self.write(record | {"gitBranch": "HEAD"} | more)

    def note(self, kind, **more):
        self.write({"type": kind, **more, "sessionId": self.session})

    def write(self, record):
        if "--no-session-persistence" not in self.arguments.flags:
            common.append_line(self.path, record)

    def tell(self, kind, message, **more):
        """Print a message and keep it; the two records share their id."""
        uuid = common.uuid4()
        printed = {"type": kind, "message": message, "parent_tool_use_id": None}
        common.emit(printed | {"session_id": self.session, "uuid": uuid} | more)
        kept = message if kind == "user" else message | {"usage": self.usage()}
        kept = {key: value for key, value in kept.items() if key != "context_management"}
        if kind == "assistant" and kept["stop_reason"] is None:
            is_tool = message["content"][0]["type"] == "tool_use"
            kept = kept | {"stop_reason": "tool_use" if is_tool else "end_turn"}
        self.keep(kind, kept, uuid=uuid)

    def says(self, block):
        """Return a message of the model with preliminary usage."""
        self.ids += 1
        message = {"id": f"msg_{self.ids}", "type": "message", "role": "assistant"}
        message |= {"content": [block], "model": self.model, "stop_reason": None}
        usage = self.usage() | {"output_tokens": 1}
        return message | {"stop_sequence": None, "usage": usage, "context_management": None}

    def synthetic(self, text):
        message = self.says({"type": "text", "text": text})
        stop = {"model": "<synthetic>", "stop_reason": "stop_sequence", "stop_sequence": ""}
        return message | stop | {"id": common.uuid4(), "usage": self.usage(0)}

    def usage(self, turns=1):
        counts = common.USAGE
        return {
            "input_tokens": counts["input"] * turns,
            "cache_creation_input_tokens": counts["written"] * turns,
            "cache_read_input_tokens": counts["cached"] * turns,
            "output_tokens": counts["output"] * turns,
            "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
            "service_tier": "standard",
        }

    def init(self):
        bucket = os.path.dirname(self.path)
        common.emit(
            {
                "type": "system",
                "subtype": "init",
                "cwd": self.cwd,
                "session_id": self.session,
                "tools": TOOLS,
                "mcp_servers": [],
                "model": self.model,
                "permissionMode": self.mode,
                "slash_commands": [],
                "apiKeySource": self.key() or "none",
                "claude_code_version": VERSION,
                "output_style": "default",
                "agents": [],
                "skills": [],
                "plugins": [],
                "uuid": common.uuid4(),
                "memory_paths": {"auto": f"{bucket}/memory/"},
                "fast_mode_state": "off",
            }
        )

    @staticmethod
    def key():
        if os.environ.get("ANTHROPIC_API_KEY"):
            return "ANTHROPIC_API_KEY"
        names = ("ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
        return next((name for name in names if os.environ.get(name)), None)

    def result(self, subtype, text, *, is_error, steps=0, status=None):
        record = {"type": "result", "subtype": subtype, "is_error": is_error}
        if text is not None:
            record |= {"api_error_status": status, "result": text}
        reason = None if text is None else "stop_sequence" if is_error else "end_turn"
        record |= {"duration_ms": 1, "duration_api_ms": 1, "num_turns": steps}
        record |= {"stop_reason": reason, "session_id": self.session}
        used = {"inputTokens": common.USAGE["input"], "costUSD": self.cost}
        return record | {
            "total_cost_usd": self.cost,
            "usage": self.usage(0 if is_error else steps),
            "modelUsage": {self.model: used} if self.cost else {},
            "permission_denials": [],
            "uuid": common.uuid4(),
        }

    # ---------------------------------------------------------------------------- the turns

    def report(self, uuids, state):
        for uuid in uuids if reports_messages() else ():
            record = {"type": "command_lifecycle", "command_uuid": uuid, "state": state}
            common.emit(record | {"session_id": self.session})

    def own_turns(self, place):
        """Start own turns, as when a background task reports."""
        if found := common.fault(f"own_turns_{place}"):
            options = found if isinstance(found, dict) else {"count": found}
            for _ in range(options.get("count", 1)):
                self.own_turn(options.get("steps", 0), options.get("origin", "task-notification"))

    def own_turn(self, steps, origin):
        notice = {"type": "system", "subtype": "task_notification", "status": "completed"}
        common.emit(notice | {"session_id": self.session, "uuid": common.uuid4()})
        self.init()
        common.wait_while(common.OWN_HOLD_FILE)
        self.keep("user", {"role": "user", "content": "<task-notification>"})
        if steps:
            self.cost += common.USAGE["cost"] * steps
            self.tell("assistant", self.says({"type": "text", "text": "It has reported."}))
        result = self.result("success", "It has reported.", is_error=False, steps=steps)
        common.emit(result | ({"origin": {"kind": origin}} if origin else {}))

    def close_conversation(self):
        if keeps_cost() and self.path:
            self.note("cost-state", totalCostUSD=self.cost)

    def turn(self, prompt, uuids=()):
        """Answer one message; return whether the turn succeeded."""
        self.report(uuids, "queued")
        self.own_turns("before")
        common.at("message")
        if origin := common.fault("joins_own_turn"):
            self.init()  # it reads the message in the middle of its own turn
        self.report(uuids, "started")
        self.note("queue-operation", operation="enqueue", timestamp=common.now(), content=prompt)
        self.note("queue-operation", operation="dequeue", timestamp=common.now())
        self.close()
        if not origin:
            self.init()
        common.at("session")
        self.told.append(prompt)
        more = {"permissionMode": self.mode, "promptSource": "sdk"}
        self.keep("user", {"role": "user", "content": prompt}, **more)
        self.own_turns("within")
        common.leave_behind()
        if common.fault("torn"):
            common.tear(self.path)
            common.leave(1, "Error: the stand-in crashed.")
        common.at("turn")
        common.flood(lambda text: self.printed(text))
        if size := common.fault("oversize"):
            common.emit(self.printed("x" * int(size)))
        for attempt, delay_s in common.failed_tries():
            self.retry(attempt, delay_s=delay_s)
        if common.fault("needs_login") and not self.key():
            return self.fail("Not logged in · Please run /login", "authentication_failed", None)
        if limit := common.fault("usage_limit"):
            return self.fail_at_limit(limit)
        if status := common.fault("api_error"):
            return self.fail_with(status)
        commands, words = common.plan(prompt, self.told, self.arguments.system_prompt())
        for command in commands:
            self.use_tool(common.Tool(command, own_session=True))
        common.hold()
        self.cost += common.USAGE["cost"] * (len(commands) + 1)
        self.tell("assistant", self.says({"type": "text", "text": words}))
        result = self.result("success", words, is_error=False, steps=len(commands) + 1)
        common.emit(result | ({"origin": {"kind": "task-notification"}} if origin else {}))
        self.report(uuids, "completed")
        self.results += 1
        self.note("last-prompt", lastPrompt=prompt[:200], leafUuid=self.leaf)
        self.own_turns("after")
        return True

    def printed(self, text):
        message = self.says({"type": "text", "text": text})
        record = {"type": "assistant", "message": message, "parent_tool_use_id": None}
        return record | {"session_id": self.session, "uuid": common.uuid4()}

    def use_tool(self, tool):
        use = {"type": "tool_use", "id": f"toolu_{common.uuid4()[:8]}", "name": "Bash"}
        self.tell("assistant", self.says(use | {"input": {"command": tool.command}}))
        common.at("tool")
        output, status = tool.run()
        found = {"tool_use_id": use["id"], "type": "tool_result", "content": output.rstrip("\n")}
        content = [found | {"is_error": status != 0}]
        more = {"stdout": output, "stderr": "", "interrupted": False, "isImage": False}
        self.tell("user", {"role": "user", "content": content}, tool_use_result=more)

    def retry(self, attempt, status=529, delay_s=0.0):
        """Report a failed attempt."""
        record = {"type": "system", "subtype": "api_retry", "attempt": attempt}
        record |= {"max_retries": max(attempt, MAX_RETRIES), "retry_delay_ms": delay_s * 1000}
        record |= {"error_status": status, "error": RETRIES[status]}
        common.emit(record | {"session_id": self.session, "uuid": common.uuid4()})

    def fail_at_limit(self, limit):
        info = {"status": "rejected", "rateLimitType": "five_hour", "isUsingOverage": False}
        if isinstance(limit, dict) and "resets_at" in limit:
            info["resetsAt"] = limit["resets_at"]
        if isinstance(limit, dict) and "resets_in" in limit:
            info["resetsAt"] = int(time.time()) + limit["resets_in"]
        event = {"type": "rate_limit_event", "rate_limit_info": info}
        common.emit(event | {"session_id": self.session, "uuid": common.uuid4()})
        return self.fail("You've hit your limit · resets 2:53am (UTC)", "rate_limit", 429)

    def fail_with(self, status):
        status = status["status"] if isinstance(status, dict) else status
        if status in RETRIES:
            limit = os.environ.get("CLAUDE_CODE_MAX_RETRIES")
            for attempt in range(1, int(limit or MAX_RETRIES) + 1):
                self.retry(attempt, status)
        words = f"API Error: {status} {common.ERROR}"
        if status in (401, 403):
            words = f"Failed to authenticate. {words}"
        return self.fail(words, ERRORS.get(status, "unknown"), status)

    def fail(self, words, error, status):
        self.tell("assistant", self.synthetic(words), error=error)
        common.emit(self.result("success", words, is_error=True, steps=1, status=status))
        return False


def messages():
    """Yield the messages on standard input with their ids; messages during a turn are joined."""
    queue, pending, is_first = [], b"", True
    while True:
        while not queue or (not is_first and can_read()):
            read = os.read(0, 1 << 16)
            if not read:
                break
            *complete, pending = (pending + read).split(b"\n")
            found = (parse(line) for line in complete if line.strip())
            queue += [message for message in found if message is not None]
        if not queue:
            return
        count = 1 if is_first else len(queue)
        texts, uuids = zip(*queue[:count], strict=True)
        yield "\n".join(texts), [uuid for uuid in uuids if uuid]
        del queue[:count]
        is_first = False


def can_read():
    return bool(select.select([0], [], [], 0)[0])


def parse(line):
    try:
        record = json.loads(line)
    except ValueError:
        words = line.decode(errors="replace")
        detail = f"(type=unknown, {len(words)} chars): SyntaxError" if is_later() else f": {words}"
        common.leave(1, f"Error parsing streaming input line{detail}")
    if record.get("type") != "user":
        return None
    content, uuid = record["message"]["content"], record.get("uuid")
    if isinstance(content, str):
        return content, uuid
    return "\n".join(block["text"] for block in content if block.get("type") == "text"), uuid


def main():
    if sys.argv[1:] in (["--version"], ["-v"]):
        print(f"{VERSION} (Claude Code)")
        return
    common.begin("claude")
    arguments = Arguments(sys.argv[1:])
    claude = Claude(arguments)
    common.on_term(lambda: (claude.close_conversation(), common.leave(143)))
    claude.check()
    streams = arguments.get("--input-format") == "stream-json"
    if not streams and not arguments.rest and common.kind_of_stdin() != "pipe":
        common.leave(
            1,
            "Error: Input must be provided either through stdin or as a prompt argument when "
            "using --print",
        )
    claude.open()
    if streams:
        went_well = True
        for prompt, uuids in messages():
            went_well = claude.turn(prompt, uuids)
        claude.close_conversation()
        common.leave(0 if went_well else 1)
    parts = arguments.rest[:1]
    if common.kind_of_stdin() == "pipe":
        parts.append(sys.stdin.read())
    went_well = claude.turn("\n".join(parts))
    claude.close_conversation()
    common.leave(0 if went_well else 1)
