"""Stand-in for opencode 1.18: ``opencode run --format json``, which uses one database."""

import os
import sqlite3
import sys
import time

import common

VERSION = "1.18.33"

FLAGS = {"--fork", "--auto", "--pure", "--thinking", "--print-logs"}
VALUES = {
    "--format",
    "-m",
    "--model",
    "--session",
    "-s",
    "--agent",
    "--title",
    "--dir",
    "--log-level",
}


def open_database():
    data = os.environ.get("XDG_DATA_HOME") or os.path.join(
        os.environ.get("HOME", "/"), ".local", "share"
    )
    folder = os.path.join(data, "opencode")
    os.makedirs(folder, exist_ok=True)
    database = sqlite3.connect(os.path.join(folder, "opencode.db"), isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute(
        "CREATE TABLE IF NOT EXISTS session"
        " (id TEXT PRIMARY KEY, parent_id TEXT, directory TEXT, path TEXT)"
    )
    database.execute(
        "CREATE TABLE IF NOT EXISTS message (session_id TEXT, role TEXT, text TEXT, time INTEGER)"
    )
    return database


class OpenCode:
    """One process for one turn of a conversation."""

    def __init__(self, session, forks):
        self.database = open_database()
        self.forks = forks
        self.session = session
        self.cwd = os.path.realpath(os.getcwd())
        self.numbers = 0

    def open(self):
        """Start or continue a conversation; hang with a conversation of another directory."""
        if self.session and not common.fault("wrong_id"):
            query = "SELECT directory FROM session WHERE id = ?"
            row = self.database.execute(query, (self.session,)).fetchone()
            if row is None:
                common.leave(1, "\x1b[91m\x1b[1mError: \x1b[0mSession not found")
            if row[0] != self.cwd:
                common.wait_forever()
            if not self.forks:
                return
        parent, self.session = self.session, f"ses_{common.uuid4().replace('-', '')[:26]}"
        row = (self.session, self.cwd, self.cwd.lstrip("/"))
        self.database.execute("INSERT INTO session VALUES (?, NULL, ?, ?)", row)
        copy = "INSERT INTO message SELECT ?, role, text, time FROM message WHERE session_id = ?"
        self.database.execute(f"{copy} ORDER BY rowid", (self.session, parent))

    def keep(self, role, text):
        row = (self.session, role, text, int(time.time() * 1000))
        self.database.execute("INSERT INTO message VALUES (?, ?, ?, ?)", row)

    def told(self):
        query = "SELECT text FROM message WHERE session_id = ? AND role = 'user' ORDER BY rowid"
        return [text for (text,) in self.database.execute(query, (self.session,))]

    def record(self, kind, /, **more):
        stamp = int(time.time() * 1000)
        return {"type": kind, "timestamp": stamp, "sessionID": self.session, **more}

    def part(self, kind, part_kind, /, **more):
        self.numbers += 1
        part = {"id": f"prt_{self.numbers}", "messageID": "msg_1", "sessionID": self.session}
        return self.record(kind, part=part | {"type": part_kind, **more})

    def finish_step(self, reason):
        counts = common.USAGE
        cache = {"write": counts["written"], "read": counts["cached"]}
        tokens = {"input": counts["input"], "output": counts["output"], "cache": cache}
        more = {"tokens": tokens | {"reasoning": counts["reasoning"]}, "cost": counts["cost"]}
        common.emit(self.part("step_finish", "step-finish", reason=reason, **more))

    def turn(self, prompt):
        self.keep("user", prompt)
        common.leave_behind()
        common.at("session")
        common.at("turn")
        common.flood(lambda text: self.part("text", "text", text=text))
        if size := common.fault("oversize"):
            common.emit(self.part("text", "text", text="x" * int(size)))
        if status := common.fault("api_error"):
            self.fail_with(status["status"] if isinstance(status, dict) else status)
        commands, words = common.plan(prompt.strip('"'), self.told(), "")
        for command in commands:
            self.use_tool(common.Tool(command, own_session=True))
        common.emit(self.part("step_start", "step-start"))
        common.hold()
        common.emit(self.part("text", "text", text=words))
        self.keep("assistant", words)
        self.finish_step("stop")

    def use_tool(self, tool):
        common.emit(self.part("step_start", "step-start"))
        common.at("tool")
        output, status = tool.run()
        state = {"status": "completed", "input": {"command": tool.command}, "output": output}
        state |= {"metadata": {"output": output, "exit": status}, "title": tool.command}
        call = {"tool": "bash", "callID": f"call_{self.numbers}", "state": state}
        common.emit(self.part("tool_use", "tool", **call))
        self.finish_step("tool-calls")

    def fail_with(self, status):
        data = {"message": common.ERROR, "statusCode": status, "isRetryable": status >= 429}
        common.emit(self.record("error", error={"name": "APIError", "data": data}))
        common.leave(1)


def main():
    words = sys.argv[1:]
    if words in (["--version"], ["-v"]):
        print(VERSION)
        return
    common.begin("opencode")
    common.on_term(lambda: common.leave(143))
    if words[:1] != ["run"]:
        common.leave(2, "The stand-in knows run only.")
    del words[0]
    values, rest, forks = {}, [], "--fork" in words
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if name in VALUES:
            values[name] = value if equals else words.pop(0)
        elif word == "--":
            rest += words
            break
        elif word.startswith("-") and word not in FLAGS:
            common.leave(1, "opencode run [message..]\n\nrun opencode with a message")
        elif word not in FLAGS:
            rest.append(word)
    rest = [f'"{word}"' if " " in word else word for word in rest]  # the model sees the quotes
    if common.kind_of_stdin() == "pipe":
        rest.append(sys.stdin.read())
    opencode = OpenCode(values.get("--session") or values.get("-s"), forks)
    opencode.open()
    opencode.turn(" ".join(rest))
    common.leave(0)
