"""Stand-in for kimi-code 2.1: ``kimi -p`` with stream-json, and ``kimi acp``."""

import hashlib
import json
import os
import sys
import time

import common

VERSION = "2.1.0"

FLAGS = {"-y", "--yolo", "--auto", "--plan"}
VALUES = {"-p", "--prompt", "--output-format", "-S", "--session", "-r", "-m", "--model"}
VALUES |= {"--skills-dir", "--add-dir", "--agent", "--agent-file"}
RETRIES = 10


def bucket(directory):
    """Return the name of the directory with the conversations of a working directory."""
    name = directory.rpartition("/")[2].lower()
    slug = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in name)
    digest = hashlib.sha256(os.fsencode(directory)).hexdigest()[:12]
    return f"wd_{slug.strip('-')[:40].strip('-') or 'workspace'}_{digest}"


class Session:
    """A conversation on disk: ``state.json``, and ``wire.jsonl`` of its only agent."""

    def __init__(self, home, cwd):
        self.home, self.cwd = home, os.path.realpath(cwd)
        self.bucket = bucket(self.cwd)
        self.id, self.system = "", ""
        self.told, self.messages, self.turns = [], [], 0

    @property
    def folder(self):
        return os.path.join(self.home, "sessions", self.bucket, self.id)

    @property
    def wire(self):
        return os.path.join(self.folder, "agents", "main", "wire.jsonl")

    def begin(self, mode="auto"):
        self.id = f"session_{common.uuid4()}"
        os.makedirs(os.path.dirname(self.wire), 0o700)
        path = os.path.join(self.home, "SYSTEM.md")
        if os.path.exists(path):
            with open(path) as file:
                self.system = file.read()
        index = {"sessionId": self.id, "sessionDir": self.folder, "workDir": self.cwd}
        common.append_line(os.path.join(self.home, "session_index.jsonl"), index)
        self.save_state(None)
        created = {"protocol_version": "1.5", "created_at": int(time.time() * 1000)}
        common.append_line(self.wire, {"type": "metadata", **created})
        binding = {"workspaceId": self.bucket, "runtimeId": "local"}
        self.keep("runtime.set_binding", agentId="main", **binding)
        self.keep("profile.bind", agentId="main", systemPrompt=self.system)
        self.keep("permission.set_mode", agentId="main", mode=mode)

    def find(self, wanted):
        """Load a conversation; return None, or the reason if it cannot be loaded."""
        sessions = os.path.join(self.home, "sessions")
        for name in sorted(os.listdir(sessions)) if os.path.isdir(sessions) else ():
            path = os.path.join(sessions, name, wanted, "state.json")
            if os.path.exists(path):
                with open(path) as file:
                    state = json.load(file)
                if state["cwd"] != self.cwd or name != self.bucket:
                    return ("elsewhere", state["cwd"])
                self.id = wanted
                return self.load()
        return ("unknown", wanted)

    def load(self):
        with open(self.wire, "rb") as file:
            content = file.read()
        torn = content.rpartition(b"\n")[2]
        if torn:
            os.truncate(self.wire, len(content) - len(torn))
        records = common.read_lines(self.wire)
        if not any(record["type"] == "profile.bind" for record in records):
            return ("unset", self.id)
        for record in records:
            if record["type"] == "profile.bind":
                self.system = record["systemPrompt"]
            elif record["type"] == "turn.prompt":
                self.turns = record["turnId"] + 1
                self.told.append(record["input"][0]["text"])
                self.messages.append(("user", self.told[-1]))
            elif record.get("event", {}).get("type") == "content.part":
                self.messages.append(("assistant", record["event"]["part"]["text"]))
        return None

    def save_state(self, reason):
        main = {"homedir": os.path.dirname(self.wire), "type": "main"}
        state = {"id": self.id, "version": 2, "cwd": self.cwd, "archived": False}
        state |= {"agents": {"main": main}, "custom": {}, "lastTurnReason": reason}
        path = os.path.join(self.folder, "state.json")
        with open(f"{path}.tmp.{os.getpid()}", "w") as file:
            json.dump(state, file)
        os.replace(file.name, path)

    def keep(self, kind, /, **more):
        common.append_line(self.wire, {"type": kind, **more, "time": int(time.time() * 1000)})

    def event(self, kind, /, **more):
        step = {"type": kind, "turnId": str(self.turns), "step": 1, **more}
        self.keep("context.append_loop_event", agentId="main", event=step)

    def hear(self, prompt):
        """Take a message of the user and start its turn."""
        self.told.append(prompt)
        block = {"type": "text", "text": prompt}
        origin = {"kind": "user"}
        more = {"input": [block], "origin": origin, "turnId": self.turns}
        self.keep("turn.prompt", agentId="main", **more)
        message = {"role": "user", "content": [block], "toolCalls": [], "origin": origin}
        self.keep("context.append_message", agentId="main", message=message)
        self.keep("agent.turn.started", turnId=self.turns, kind="event")
        self.event("step.begin")

    def count(self):
        counts = common.USAGE
        usage = {"inputOther": counts["input"], "output": counts["output"]}
        usage |= {"inputCacheRead": counts["cached"], "inputCacheCreation": counts["written"]}
        self.keep("usage.record", agentId="main", usage=usage, usageScope="turn")

    def answer(self, words):
        self.count()
        self.event("content.part", part={"type": "text", "text": words})
        self.event("step.end", finishReason="end_turn")
        self.end("completed")

    def end(self, reason):
        self.keep("turn.ended", agentId="main", turnId=self.turns, reason=reason)
        self.turns += 1
        self.save_state(reason)


def tell(kind, **more):
    common.emit({"role": "meta", "type": kind, **more})


class Kimi:
    """One process for one turn of a conversation."""

    def __init__(self, values):
        self.values = values
        self.home = state_home()
        self.session = Session(self.home, os.getcwd())

    def fail(self, words, before=""):
        common.leave(
            1,
            f"{before}error: failed to run prompt: {words}\n"
            f"See log: {self.home}/logs/kimi-code.log",
        )

    def open(self):
        wanted = next(
            (self.values[name] for name in ("-r", "-S", "--session") if name in self.values), None
        )
        if wanted is None or common.fault("wrong_id"):
            self.session.begin()
            return
        kind, detail = self.session.find(wanted) or (None, None)
        if kind == "unknown":
            self.fail(f'Session "{wanted}" not found.')
        if kind == "elsewhere":
            words = f'Session "{wanted}" was created under a different directory.'
            self.fail(words, f'{words}\n  cd "{detail}" && kimi -r {wanted}\n\n')
        if kind == "unset":
            self.fail("model.not_configured: Model not set")

    def turn(self, prompt):
        session = self.session
        session.hear(prompt)
        common.leave_behind()
        common.at("session")
        if common.fault("torn"):
            common.tear(session.wire)
            common.leave(1, "Error: the stand-in crashed.")
        common.at("turn")
        common.flood(lambda text: {"role": "assistant", "content": text})
        if size := common.fault("oversize"):
            common.emit({"role": "assistant", "content": "x" * int(size)})
        for attempt, delay_s in common.failed_tries():
            self.retry(529, "APIProviderOverloadedError", attempt, delay_s)
        if status := common.fault("api_error"):
            self.fail_with(status["status"] if isinstance(status, dict) else status)
        commands, words = common.plan(prompt, session.told, session.system)
        for command in commands:
            self.use_tool(common.Tool(command, own_session=True))
        common.hold()
        common.emit({"role": "assistant", "content": words})
        session.answer(words)
        hint = f"kimi -r {session.id}"
        text = f"To resume this session: {hint}"
        tell("session.resume_hint", session_id=session.id, command=hint, content=text)

    def use_tool(self, tool):
        call = f"call_{common.uuid4()[:8]}"
        function = {"name": "Bash", "arguments": json.dumps({"command": tool.command})}
        calls = [{"type": "function", "id": call, "function": function}]
        common.emit({"role": "assistant", "tool_calls": calls})
        command = {"command": tool.command}
        self.session.event("tool.call", toolCallId=call, name="Bash", args=command)
        common.at("tool")
        output, _ = tool.run()
        os.write(2, output.encode())
        common.emit({"role": "tool", "tool_call_id": call, "content": output})
        done = {"type": "tool.result", "toolCallId": call, "result": {"output": output}}
        self.session.keep("context.append_loop_event", agentId="main", event=done)
        self.session.count()

    def retry(self, status, name, attempt, delay_s=0.0):
        record = {"failed_attempt": attempt, "next_attempt": attempt + 1}
        record |= {"max_attempts": max(RETRIES, attempt), "delay_ms": delay_s * 1000}
        words = f"{status} {common.ERROR}"
        record |= {"error_name": name, "error_message": words, "status_code": status}
        tell("turn.step.retrying", **record)

    def fail_with(self, status):
        if status == 429:
            for attempt in range(1, RETRIES):
                self.retry(status, "APIProviderRateLimitError", attempt)
        names = {401: "provider.auth_error", 429: "provider.rate_limit"}
        self.session.end("failed")
        self.fail(f"{names.get(status, 'provider.api_error')}: {status} {common.ERROR}")


def state_home():
    return os.environ.get("KIMI_CODE_HOME") or os.path.join(
        os.environ.get("HOME", "/"), ".kimi-code"
    )


def read_arguments(words):
    words, values = list(words), {}
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if name in VALUES:
            values[name] = value if equals else words.pop(0)
        elif word.startswith("-") and word not in FLAGS:
            common.leave(1, f"error: unknown option '{word}'")
    return values


def main():
    if sys.argv[1:] in (["--version"], ["-V"]):
        print(VERSION)
        return
    if sys.argv[1:2] == ["acp"]:
        import acp

        acp.main()
        return
    common.begin("kimi")
    common.on_term(lambda: common.leave(143))
    values = read_arguments(sys.argv[1:])
    prompt = values.get("-p", values.get("--prompt"))
    if prompt is None or values.get("--output-format") != "stream-json":
        common.leave(2, "The stand-in is only used with -p --output-format stream-json, or acp.")
    os.makedirs(state_home(), exist_ok=True)
    kimi = Kimi(values)
    tell("system.version", version=VERSION)
    kimi.open()
    kimi.turn(prompt)
    common.leave(0)
