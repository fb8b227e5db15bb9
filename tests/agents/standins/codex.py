"""Stand-in for codex-cli 0.169: ``codex exec --json`` and ``codex exec resume``."""

import os
import signal
import sys
import time

import common

VERSION = "0.169.0"

FLAGS = {"--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"}
FLAGS |= {"--dangerously-bypass-hook-trust", "--ephemeral", "--ignore-user-config", "--trust"}
FLAGS |= {"--ignore-rules", "--strict-config", "--worktree"}
VALUES = {"-c", "--config", "--enable", "--disable", "-i", "--image", "-m", "--model"}
VALUES |= {"-o", "--output-last-message", "--output-schema", "--thread-source"}
EXEC_FLAGS = FLAGS | {"--oss", "--approve-for-me"}
EXEC_VALUES = VALUES | {"-s", "--sandbox", "-C", "--cd", "-p", "--profile", "--color", "--add-dir"}
RESUME_FLAGS = FLAGS | {"--last", "--all"}

RECONNECTS = 5
BUSY = "We’re currently experiencing high demand, which may cause temporary errors."  # noqa: RUF001
LIMIT = "You've hit your usage limit. Try again later."
STATUS = {401: "401 Unauthorized", 403: "403 Forbidden"}
METADATA = "Model metadata for `{}` not found. Defaulting to fallback metadata; this can degrade "
METADATA += "performance and cause issues."


def check_home(home):
    """Warn and refuse like the program, with its messages."""
    temporary = os.environ.get("TMPDIR", "/tmp").rstrip("/")
    warning = "WARNING: proceeding, even though we could not create PATH aliases: "
    if "CODEX_HOME" in os.environ and not os.path.isdir(home):
        words = f'CODEX_HOME points to "{home}", but that path does not exist'
        common.leave(1, f"{warning}{words}\nError finding codex home: {words}")
    if os.path.realpath(home).startswith(os.path.realpath(temporary) + "/"):
        warn(
            f'{warning}Refusing to create helper binaries under temporary dir "{temporary}" '
            f'(codex_home: AbsolutePathBuf("{os.path.realpath(home)}"))'
        )


class Arguments:
    """The command line: the words of ``exec``, followed by the words of ``resume``."""

    def __init__(self, words):
        words = list(words)
        if words[:1] != ["exec"]:
            common.leave(2, "The stand-in knows exec only.")
        self.flags, self.values, self.settings, self.rest = set(), {}, {}, []
        self.resumes = False
        flags, values, usage = EXEC_FLAGS, EXEC_VALUES, "codex exec [OPTIONS] [PROMPT]"
        usage += "\n       codex exec [OPTIONS] <COMMAND> [ARGS]"
        del words[0]
        while words:
            word = words.pop(0)
            if word in values:
                self.take(word, words.pop(0))
            elif word in flags:
                self.flags.add(word)
            elif word == "resume" and not self.rest and not self.resumes:
                self.resumes = True
                flags, values = RESUME_FLAGS, VALUES
                usage = "codex exec resume [OPTIONS] [SESSION_ID] [PROMPT]"
            elif word.startswith("-") and word != "-":
                common.leave(
                    2,
                    f"error: unexpected argument '{word}' found\n\n  tip: to pass '{word}' as a "
                    f"value, use '-- {word}'\n\nUsage: {usage}\n\n"
                    "For more information, try '--help'.",
                )
            else:
                self.rest.append(word)

    def take(self, name, value):
        if name in ("-c", "--config"):
            key, _, setting = value.partition("=")
            self.settings[key] = setting.strip('"')
        else:
            self.values[name] = value


class Codex:
    """One process for one turn of a thread."""

    def __init__(self, arguments, home):
        self.arguments = arguments
        self.cwd = os.path.realpath(os.getcwd())
        values = arguments.values
        self.model = values.get("-m") or values.get("--model") or "gpt-5"
        self.thread = common.uuid7()
        self.told, self.ordinal = [], 0
        self.system = ""
        self.total = dict.fromkeys(("input", "cached", "written", "output", "reasoning"), 0)
        self.items = 0
        self.turn_id = common.uuid7()
        self.home = home
        self.path = ""

    # -------------------------------------------------------------------------- the start

    def prompt(self):
        """Return the prompt; a pipe is read to its end, which may take forever."""
        rest = self.arguments.rest[1 if self.arguments.resumes else 0 :]
        if not rest or rest[0] == "-":
            warn("Reading prompt from stdin...")
            text = sys.stdin.read()
            if not text.strip():
                common.leave(1, "No prompt provided via stdin.")
            return text
        if not self.arguments.resumes and common.kind_of_stdin() != "terminal":
            warn("Reading additional input from stdin...")
            if more := sys.stdin.read():
                return f"{rest[0]}\n\n<stdin>\n{more}</stdin>"
        return rest[0]

    def check_trust(self):
        directory, is_repository = self.cwd, False
        while directory != "/" and not is_repository:
            is_repository = os.path.exists(os.path.join(directory, ".git"))
            directory = os.path.dirname(directory)
        if not is_repository and "--skip-git-repo-check" not in self.arguments.flags:
            common.leave(
                1,
                "Not inside a trusted directory and --skip-git-repo-check was not specified.",
            )

    def open(self):
        """Start a thread, or continue the requested one.

        A text that is not a thread's id counts as a name; an unknown name starts a thread.
        """
        wanted = self.arguments.rest[0] if self.arguments.resumes else ""
        if not common.is_uuid(wanted) or common.fault("wrong_id"):
            stamp = time.strftime("%Y-%m-%dT%H-%M-%S")
            folder = os.path.join(self.home, "sessions", *stamp[:10].split("-"))
            os.makedirs(folder, exist_ok=True)
            self.path = os.path.join(folder, f"rollout-{stamp}-{self.thread}.jsonl")
            self.begin()
            return
        self.thread, self.path = wanted, self.find(wanted)
        if not self.path:
            self.refuse(f"no rollout found for thread id {wanted}", -32600)
        if not os.path.getsize(self.path):
            reading = "thread-store internal error: failed to read session metadata "
            self.refuse(
                f"failed to read thread: {reading}{self.path}: {reading}{self.path}: rollout at "
                f"{self.path} is empty",
                -32603,
            )
        self.load()

    def setting(self, name):
        """Return a setting from the command line, or from the home."""
        import tomllib

        path = os.path.join(self.home, "config.toml")
        settings = {}
        if os.path.exists(path):
            with open(path, "rb") as file:
                settings = tomllib.load(file)
        return self.arguments.settings.get(name, settings.get(name, ""))

    @staticmethod
    def refuse(words, code):
        common.leave(
            1,
            f"Error: thread/resume: thread/resume failed: {words} (code {code})",
        )

    def find(self, thread):
        for folder, _, names in os.walk(os.path.join(self.home, "sessions")):
            for name in names:
                if name.endswith(f"-{thread}.jsonl"):
                    return os.path.join(folder, name)
        return ""

    def begin(self):
        self.system = self.setting("developer_instructions")
        self.keep(
            "session_meta",
            {
                "session_id": self.thread,
                "id": self.thread,
                "timestamp": common.now(),
                "cwd": self.cwd,
                "originator": "codex_exec",
                "cli_version": VERSION,
                "source": "exec",
                "thread_source": "user",
                "model_provider": "stand-in",
                "base_instructions": {"text": "You are a stand-in."},
                "history_mode": "paginated",
            },
        )

    def load(self):
        """Read the thread: its messages, its first instructions, and its tokens so far."""
        with open(self.path, "rb") as file:
            is_torn = not file.read().endswith(b"\n")
        if is_torn:
            with open(self.path, "a") as file:
                file.write("\n")
        for record in common.read_lines(self.path):
            self.ordinal = record["ordinal"] + 1
            payload = record["payload"]
            if record["type"] == "token_usage_record":
                used = payload["thread_token_usage"]
                names = ("input", "cached_input", "cache_write_input", "output", "reasoning_output")
                values = [used[f"{name}_tokens"] for name in names]
                self.total = dict(zip(self.total, values, strict=True))
            if record["type"] != "response_item" or payload.get("type") != "message":
                continue
            text = payload["content"][0]["text"]
            if payload["role"] == "developer":
                self.system = text
            if payload["role"] == "user" and not text.startswith("<"):
                self.told.append(text)

    # ------------------------------------------------------------------------- the records

    def keep(self, kind, payload):
        record = {"timestamp": common.now(), "ordinal": self.ordinal, "type": kind}
        if "--ephemeral" not in self.arguments.flags:
            common.append_line(self.path, record | {"payload": payload})
        self.ordinal += 1

    def keep_message(self, role, text):
        kind = "output_text" if role == "assistant" else "input_text"
        payload = {"type": "message", "id": f"msg_{common.uuid7()}", "role": role}
        self.keep("response_item", payload | {"content": [{"type": kind, "text": text}]})

    def keep_event(self, kind, **payload):
        self.keep("event_msg", {"type": kind, "turn_id": self.turn_id, **payload})

    def usage(self, counts):
        return {
            "input_tokens": counts["input"],
            "cached_input_tokens": counts["cached"],
            "cache_write_input_tokens": counts["written"],
            "output_tokens": counts["output"],
            "reasoning_output_tokens": counts["reasoning"],
        }

    def count(self):
        """Add a turn to the thread's usage. Input includes cached tokens."""
        one = common.USAGE
        turn = dict(one, input=one["input"] + one["cached"] + one["written"])
        self.total = {name: value + turn[name] for name, value in self.total.items()}
        total = self.usage(self.total)
        total["total_tokens"] = total["input_tokens"] + total["output_tokens"]
        ids = {"thread_id": self.thread, "turn_id": self.turn_id, "session_id": self.thread}
        more = {"usage": self.usage(turn), "thread_token_usage": total}
        self.keep("token_usage_record", ids | more)

    def item(self, kind, event="item.completed", **more):
        common.emit({"type": event, "item": {"id": f"item_{self.items}", "type": kind, **more}})
        if event == "item.completed":
            self.items += 1

    # ---------------------------------------------------------------------------- the turn

    def turn(self, prompt):
        """Answer; return whether the turn succeeded."""
        common.emit({"type": "thread.started", "thread_id": self.thread})
        common.at("session")
        self.item("error", message=METADATA.format(self.model))
        self.keep_event("task_started", started_at=int(time.time()))
        if not self.told:
            self.keep_message("developer", self.system)
        context = f"<environment_context>\n  <cwd>{self.cwd}</cwd>\n</environment_context>"
        self.keep_message("user", context)
        self.told.append(prompt)
        self.keep_message("user", prompt)
        common.leave_behind()
        if common.fault("torn"):
            common.tear(self.path)
            common.leave(1, "Error: the stand-in crashed.")
        common.emit({"type": "turn.started"})
        common.at("turn")
        common.flood(self.printed)
        if size := common.fault("oversize"):
            common.emit(self.printed("x" * int(size)))
        for attempt, _ in common.failed_tries():
            self.reconnect(attempt, BUSY)
        if limit := common.fault("usage_limit"):
            return self.fail_at_limit(limit)
        if status := common.fault("api_error"):
            return self.fail_with(status["status"] if isinstance(status, dict) else status)
        commands, words = common.plan(prompt, self.told, self.system)
        for command in commands:
            self.use_tool(common.Tool(command, own_session=True))
        common.hold()
        self.item("agent_message", text=words)
        self.keep_message("assistant", words)
        self.count()
        self.keep_event("task_complete", last_agent_message=words, duration_ms=1)
        common.emit({"type": "turn.completed", "usage": self.usage(self.total)})
        return True

    def printed(self, text):
        item = {"id": f"item_{self.items}", "type": "agent_message", "text": text}
        return {"type": "item.completed", "item": item}

    def use_tool(self, tool):
        shown = {"command": f"/bin/bash -lc '{tool.command}'", "aggregated_output": ""}
        self.item(
            "command_execution",
            "item.started",
            **shown,
            exit_code=None,
            status="in_progress",
        )
        call = {"call_id": f"call_{common.uuid4()[:8]}"}
        arguments = common.encode({"cmd": tool.command}).rstrip()
        function = {"type": "function_call", "name": "exec_command", "arguments": arguments}
        self.keep("response_item", function | call)
        common.at("tool")
        output, status = tool.run()
        told = f"Process exited with code {status}\nOutput:\n{output}"
        self.keep("response_item", {"type": "function_call_output", "output": told} | call)
        how = "completed" if status == 0 else "failed"
        shown["aggregated_output"] = output
        self.item("command_execution", **shown, exit_code=status, status=how)

    def reconnect(self, attempt, words):
        text = f"Reconnecting... {attempt}/{RECONNECTS} ({words})"
        common.emit({"type": "error", "message": text})

    def fail_with(self, status):
        words = common.encode({"type": "error", "error": {"message": common.ERROR}}).rstrip()
        if status == 429:
            words = "exceeded retry limit, last status: 429 Too Many Requests"
        elif status != 400:
            words = BUSY
            if status in STATUS:
                url = "http://127.0.0.1:1/v1/responses"
                words = f"unexpected status {STATUS[status]}: {common.ERROR}, url: {url}"
            for attempt in range(1, RECONNECTS + 1):
                self.reconnect(attempt, words)
        return self.fail(words)

    def fail_at_limit(self, limit):
        window = {"used_percent": 100.0, "window_minutes": 300}
        if isinstance(limit, dict) and "resets_at" in limit:
            window["resets_at"] = limit["resets_at"]
        limits = {"limit_id": "codex", "primary": window, "secondary": None}
        self.keep("event_msg", {"type": "token_count", "info": None, "rate_limits": limits})
        return self.fail(LIMIT)

    def fail(self, words):
        common.emit({"type": "error", "message": words})
        common.emit({"type": "turn.failed", "error": {"message": words}})
        self.keep_event("task_complete", last_agent_message=None, duration_ms=1)
        return False


def warn(words):
    os.write(2, f"{words}\n".encode())


def end_with_tool():
    """Die of SIGTERM together with the running command, like the program."""
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        for child in file.read().split():
            os.killpg(int(child), signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


def main():
    if sys.argv[1:] in (["--version"], ["-V"]):
        print(f"codex-cli {VERSION}")
        return
    common.begin("codex")
    common.on_term(end_with_tool)
    home = os.environ.get("CODEX_HOME") or os.path.join(os.environ.get("HOME", "/"), ".codex")
    check_home(home)
    codex = Codex(Arguments(sys.argv[1:]), home)
    prompt = codex.prompt()
    codex.check_trust()
    codex.open()
    common.leave(0 if codex.turn(prompt) else 1)
