"""Numbered calls over a transport that loses, repeats and reorders messages at random."""

from __future__ import annotations

import anyio
import hypothesis
import hypothesis.strategies as st
import pytest

from clawblox.experiment.cluster.engine import CallLostError
from tests.experiment.cluster.test_calls import Both, Message

STEPS = ("call", "deliver", "deliver", "answer", "lose", "cancel")

steps = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 1000)), max_size=40)


async def play(steps: list[tuple[str, int]]) -> None:
    """Take the steps, let every call end, and check the results."""
    async with anyio.create_task_group() as tasks:
        both = Both(tasks)
        both.grant()
        copies: list[Message] = []  # of all messages sent; any may arrive again later
        answers: list[tuple[Message, int | None]] = []
        scopes: list[anyio.CancelScope] = []

        async def send() -> None:
            await anyio.wait_all_tasks_blocked()
            copies.extend(both.handle.messages)
            both.handle.messages.clear()

        async def deliver(message: Message) -> None:
            try:
                answers.append((message, await both.host.deliver(message)))
            except ValueError:
                assert message.number not in both.caller._pending, "a living call was refused"

        def settle(message: Message, answer: int | Exception) -> None:
            if not message.answer.done():
                if isinstance(answer, Exception):
                    message.answer.set_exception(answer)
                else:
                    message.answer.set_result((message.arguments, answer))

        for step, choice in steps:
            if step == "call":
                scopes.append(both.call(len(scopes)))
            elif step == "cancel" and scopes:
                scopes[choice % len(scopes)].cancel()
            elif step == "deliver" and copies:
                await deliver(copies[choice % len(copies)])
            elif step == "lose" and copies:
                settle(copies[choice % len(copies)], CallLostError())
            elif step == "answer" and answers:
                settle(*answers[choice % len(answers)])
            await send()
        while both.caller._pending:
            for message in tuple(copies):
                if not message.answer.done():
                    await deliver(message)
            for message, answer in answers:
                settle(message, answer)
            await send()

        deeds = both.host.done
        assert len(set(deeds)) == len(deeds), "a deed was done twice"
        for arguments, answer in both.results:
            assert deeds[answer - 1] == arguments, "a call got the answer of another"
        assert len(both.results) >= len(scopes) - sum(step == "cancel" for step, _ in steps)
        assert len(both.host.answers._runs) <= len(scopes)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@hypothesis.given(steps)
def test_each_call_runs_once_and_gets_its_own_answer(
    backend: str, steps: list[tuple[str, int]]
) -> None:
    anyio.run(play, steps, backend=backend)
