"""The two clocks: when inputs are applied, and who waits for what."""

from __future__ import annotations

import itertools

import anyio
import pytest
from starlette.exceptions import HTTPException

from clawblox.server import Clock, InputError
from clawblox.server.clocks import make_clock
from clawblox.server.hosted_world import Halted
from clawblox.server.snapshot_document import make_snapshot
from tests.support.waiting import HANG_S, wait_until_async

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def realtime(hosted):
    return make_clock(hosted, Clock.REALTIME)


@pytest.fixture
def lockstep(hosted):
    return make_clock(hosted, Clock.LOCKSTEP)


def no_answer() -> bytes:
    return b""


async def test_in_real_time_the_world_ticks_without_input(hosted, realtime):
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(realtime.run)
        await wait_until_async(lambda: hosted.tick > 5)
        tasks.cancel_scope.cancel()


async def test_in_real_time_an_input_returns_after_the_tick_that_applied_it(
    hosted, simulation, realtime
):
    session = hosted.join("Rocky")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(realtime.run)
        for total in range(1, 6):
            before = hosted.tick
            await realtime.submit(session, "Add", 1, no_answer)
            assert simulation.sums[session.agent_id] == total
            assert hosted.tick > before
            assert hosted.pending == []
        with pytest.raises(InputError, match="whole number"):
            await realtime.submit(session, "Add", "one", no_answer)
        tasks.cancel_scope.cancel()


async def test_in_real_time_inputs_of_one_tick_keep_their_order(hosted, simulation, realtime):
    session = hosted.join("Rocky")
    async with anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(realtime.submit, session, "Keep", number, no_answer)
            await wait_until_async(lambda: len(hosted.pending) == number + 1)  # noqa: B023
        tasks.start_soon(realtime.run)
        await wait_until_async(lambda: hosted.tick > 0)
        tasks.cancel_scope.cancel()
    assert simulation.extra == 9


async def test_the_answer_is_made_before_a_late_world_ticks_again(hosted, realtime, monkeypatch):
    session = hosted.join("Rocky")
    answers = []

    async def act(number):
        answer = await realtime.submit(session, "Keep", number, lambda: b"%d" % hosted.tick)
        answers.append(int(answer))

    begun = anyio.current_time()
    late = itertools.chain([begun], itertools.repeat(begun + 0.1))  # as on a busy machine
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(act, 1)
        tasks.start_soon(act, 2)
        await wait_until_async(lambda: len(hosted.pending) == 2)
        with monkeypatch.context() as patch:
            patch.setattr(anyio, "current_time", late.__next__)
            tasks.start_soon(realtime.run)
            await wait_until_async(lambda: hosted.tick > 0)
        assert hosted.tick >= 20  # 200 ticks a second
        await wait_until_async(lambda: len(answers) == 2)
        tasks.cancel_scope.cancel()
    assert answers == [1, 1]


async def test_an_answer_that_cannot_be_made_is_the_error_of_its_sender_only(hosted, realtime):
    session = hosted.join("Rocky")
    answers = []

    def fail() -> bytes:
        raise HTTPException(400, "gone")

    async def act(answer):
        try:
            answers.append(await realtime.submit(session, "Keep", 1, answer))
        except HTTPException as error:
            answers.append(error.detail)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(act, fail)
        tasks.start_soon(act, lambda: b"here")
        await wait_until_async(lambda: len(hosted.pending) == 2)
        tasks.start_soon(realtime.run)
        await wait_until_async(lambda: len(answers) == 2)
        tasks.cancel_scope.cancel()
    assert sorted(map(str, answers)) == ["b'here'", "gone"]


async def test_a_waiting_input_is_in_the_snapshot(hosted, realtime):
    session = hosted.join("Rocky")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(realtime.submit, session, "Add", 4, no_answer)
        await wait_until_async(lambda: hosted.pending)
        document = make_snapshot(hosted)
        tasks.cancel_scope.cancel()
    assert document["pending_inputs"] == [
        {"agent_id": session.agent_id, "action": "Add", "data": 4}
    ]


async def test_due_ticks_run_before_the_next_request(hosted, realtime, monkeypatch):
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(realtime.run)
        await wait_until_async(lambda: hosted.tick > 0)
        before, later = hosted.tick, anyio.current_time() + 0.1
        with monkeypatch.context() as patch:
            patch.setattr(anyio, "current_time", lambda: later)  # as after a slow answer
            realtime.catch_up()
            caught_up = hosted.tick
            realtime.catch_up()
        assert caught_up - before >= 20  # 200 ticks a second
        assert hosted.tick == caught_up
        tasks.cancel_scope.cancel()
    realtime.catch_up()
    assert hosted.tick == caught_up  # time has stopped


async def test_a_world_that_cannot_keep_up_still_answers(hosted, realtime, monkeypatch):
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(realtime.run)
        await wait_until_async(lambda: hosted.tick > 0)
        slow = itertools.count(anyio.current_time() + 1, 0.02)  # each tick takes longer than it may
        with monkeypatch.context() as patch:
            patch.setattr(anyio, "current_time", slow.__next__)
            before = hosted.tick
            realtime.catch_up()
        assert hosted.tick - before == 2
        tasks.cancel_scope.cancel()


async def test_a_clock_that_does_not_run_has_no_due_ticks(hosted, realtime, lockstep):
    for clock in (realtime, lockstep):
        clock.catch_up()
    assert hosted.tick == 0


async def test_a_halt_ends_the_clock_and_all_waiting_inputs(hosted, realtime):
    session = hosted.join("Rocky")
    finished = []

    async def wait_for(action):
        await realtime.submit(session, action, None, no_answer)
        finished.append(action)

    async with anyio.create_task_group() as tasks:
        for action in ("Keep", "Divide", "Keep"):
            tasks.start_soon(wait_for, action)
        await wait_until_async(lambda: len(hosted.pending) == 3)
        with anyio.fail_after(HANG_S):
            await realtime.run()
        await wait_until_async(lambda: len(finished) == 3)
    assert hosted.failure == "ZeroDivisionError: Divide"
    with pytest.raises(Halted):
        await realtime.submit(session, "Keep", None, no_answer)


async def test_in_lockstep_an_accepted_input_advances_the_world(hosted, lockstep):
    session = hosted.join("Rocky")
    await lockstep.submit(session, "Add", 1, no_answer)
    assert hosted.tick == 3
    with pytest.raises(InputError):
        await lockstep.submit(session, "Add", None, no_answer)
    assert hosted.tick == 3


async def test_in_lockstep_no_time_passes_without_input(hosted, lockstep):
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lockstep.run)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert hosted.tick == 0


async def test_in_lockstep_waiting_inputs_are_applied_first(hosted, simulation, lockstep):
    session = hosted.join("Rocky")
    hosted.queue(session, "Keep", "old")
    hosted.queue(session, "Add", 10)
    await lockstep.submit(session, "Keep", "new", no_answer)
    assert simulation.extra == "new"
    assert simulation.sums[session.agent_id] == 10
