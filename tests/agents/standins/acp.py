"""Stand-in for a program that speaks the Agent Client Protocol, like ``kimi acp``."""

import json
import os
import sys

import common
import kimi

VERSION = kimi.VERSION

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
AUTH_REQUIRED = -32000

OPTIONS = [
    {"optionId": "approve_once", "name": "Approve once", "kind": "allow_once"},
    {"optionId": "approve_always", "name": "Approve always", "kind": "allow_always"},
    {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
]


_CHUNKS = {"user": "user_message_chunk", "assistant": "agent_message_chunk"}


class RefusedError(Exception):
    """A request is answered with an error."""

    def __init__(self, code, message, **data):
        super().__init__(message)
        self.error = {"code": code, "message": message, **({"data": data} if data else {})}


class Server:
    """The program's side of the protocol: one request at a time."""

    def __init__(self):
        self.pending = b""
        self.waiting = []
        self.asked = 0
        self.sessions = {}
        self.methods = {
            "initialize": self.initialize,
            "session/new": self.new,
            "session/load": self.load,
            "session/prompt": self.prompt,
            "session/set_mode": self.set_mode,
            "session/set_model": lambda params: {},
            "session/set_config_option": lambda params: {},
        }

    # ------------------------------------------------------------------------ the messages

    def read(self):
        """Return the next message; None at the end of the input."""
        while b"\n" not in self.pending:
            data = os.read(0, 1 << 16)
            if not data:
                return None
            self.pending += data
        line, _, self.pending = self.pending.partition(b"\n")
        return json.loads(line)

    def serve(self):
        while (message := self.waiting.pop(0) if self.waiting else self.read()) is not None:
            if "method" not in message or "id" not in message:
                continue
            method = self.methods.get(message["method"])
            try:
                if method is None:
                    words = f'"Method not found": {message["method"]}'
                    raise RefusedError(METHOD_NOT_FOUND, words, method=message["method"])
                answer = {"result": method(message.get("params") or {})}
            except RefusedError as refusal:
                answer = {"error": refusal.error}
            send(id=message["id"], **answer)

    def ask(self, method, params):
        """Ask the client, and wait for the answer; other messages are queued."""
        self.asked += 1
        send(id=self.asked, method=method, params=params)
        while (message := self.read()) is not None:
            if "method" not in message and message.get("id") == self.asked:
                return message.get("result") or {}
            self.waiting.append(message)
        return common.leave(0)

    # ------------------------------------------------------------------------ the requests

    def initialize(self, _params):
        capabilities = {"loadSession": not common.fault("cannot_load")}
        info = {"name": "Stand-in", "version": VERSION}
        return {
            "protocolVersion": 1,
            "agentCapabilities": capabilities,
            "authMethods": [],
            "agentInfo": info,
        }

    def new(self, params):
        session = kimi.Session(kimi.state_home(), params["cwd"])
        os.makedirs(session.home, exist_ok=True)
        session.begin("default")
        session.mode = "default"
        self.sessions[session.id] = session
        return {"sessionId": session.id, "configOptions": [], "modes": self.modes(session)}

    def modes(self, session):
        names = ("default", "plan", "auto", "yolo")
        available = [{"id": name, "name": name.title()} for name in names]
        return {"currentModeId": session.mode, "availableModes": available}

    def load(self, params):
        """Replay a conversation. With ``loads_unknown``, accept any id, like qwen-code."""
        session = kimi.Session(kimi.state_home(), params["cwd"])
        wanted = params["sessionId"]
        wrong = session.find(wanted)
        if common.fault("wrong_id") or (wrong and common.fault("loads_unknown")):
            session = kimi.Session(kimi.state_home(), params["cwd"])
            session.begin("default")
        elif wrong:
            words = f"Invalid params: Unknown sessionId: {wanted}"
            raise RefusedError(INVALID_PARAMS, words, sessionId=wanted)
        session.mode = "default"
        self.sessions[wanted] = session
        for role, text in session.messages:
            self.update(
                wanted, "user_message_chunk" if role == "user" else "agent_message_chunk", text
            )
        return {"configOptions": [], "modes": self.modes(session)}

    def set_mode(self, params):
        self.find(params).mode = params["modeId"]
        return {}

    def find(self, params):
        session = self.sessions.get(params["sessionId"])
        if session is None:
            words = f"Invalid params: Unknown sessionId: {params['sessionId']}"
            raise RefusedError(INVALID_PARAMS, words, sessionId=params["sessionId"])
        return session

    def prompt(self, params):
        session, told_id = self.find(params), params["sessionId"]
        common.at("session")
        prompt = "\n\n".join(block["text"] for block in params["prompt"])
        session.hear(prompt)
        common.leave_behind()
        if common.fault("torn"):
            common.tear(session.wire)
            common.leave(1, "Error: the stand-in crashed.")
        common.at("turn")
        common.flood(lambda text: update(told_id, "agent_message_chunk", text))
        if size := common.fault("oversize"):
            self.update(told_id, "agent_message_chunk", "x" * int(size))
        if status := common.fault("api_error"):
            session.end("failed")
            self.refuse(status["status"] if isinstance(status, dict) else status)
        commands, words = common.plan(prompt, session.told, session.system)
        for command in commands:
            self.use_tool(session, told_id, common.Tool(command, own_session=True))
        common.hold()
        self.update(told_id, "agent_message_chunk", words)
        session.answer(words)
        return {"stopReason": "end_turn"}

    @staticmethod
    def refuse(status):
        if status == 401:
            words = f"Authentication required: 401 {common.ERROR}"
            raise RefusedError(AUTH_REQUIRED, words)
        raise RefusedError(INTERNAL_ERROR, "Internal error", details=f"{status} {common.ERROR}")

    def use_tool(self, session, told_id, tool):
        call = {"toolCallId": f"call_{common.uuid4()[:8]}", "title": tool.command}
        call |= {"kind": "execute", "rawInput": {"command": tool.command}}
        self.send_update(told_id, {"sessionUpdate": "tool_call", "status": "pending"} | call)
        common.at("tool")
        if session.mode == "default":
            request = {"sessionId": told_id, "toolCall": call, "options": OPTIONS}
            outcome = self.ask("session/request_permission", request).get("outcome", {})
            if not outcome.get("optionId", "").startswith("approve"):
                failed = {"sessionUpdate": "tool_call_update", "status": "failed"}
                self.send_update(told_id, failed | {"toolCallId": call["toolCallId"]})
                return
        output, status = tool.run()
        block = {"type": "content", "content": {"type": "text", "text": output}}
        done = {"sessionUpdate": "tool_call_update", "toolCallId": call["toolCallId"]}
        how = "completed" if status == 0 else "failed"
        self.send_update(told_id, done | {"status": how, "content": [block]})
        session.count()

    def update(self, told_id, kind, text):
        common.emit(update(told_id, kind, text))

    @staticmethod
    def send_update(told_id, what):
        send(method="session/update", params={"sessionId": told_id, "update": what})


def update(told_id, kind, text):
    what = {"sessionUpdate": kind, "content": {"type": "text", "text": text}}
    params = {"sessionId": told_id, "update": what}
    return {"jsonrpc": "2.0", "method": "session/update", "params": params}


def send(**message):
    common.emit({"jsonrpc": "2.0", **message})


def main():
    if sys.argv[1:] == ["--version"]:
        print(VERSION)
        return
    common.begin("acp")
    common.on_term(lambda: common.leave(143))
    Server().serve()
    common.leave(0)
