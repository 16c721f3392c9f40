from __future__ import annotations

import asyncio

from eval.toy import RecordList, ToyEngine, connection, ready
from logproof.client.pool import Pool
from logproof.errors import RateLimited
from logproof.eval.run.pace import HOLD, MOST, START, WINDOW, Pace
from logproof.eval.run.runner import Runner, RunPolicy


class Server:
    """Answers `width` requests in parallel, each in a second; more of them wait."""

    def __init__(self, width: int) -> None:
        self.width, self.now = width, 0.0
        self.pace = Pace("auto", clock=lambda: self.now)
        self.limits: list[int] = []

    def reply(self, count: int, attempts: int = 1) -> None:
        for _ in range(count):
            self.now += 1 / min(self.pace.limit, self.width)
            self.pace.replied(attempts)
            self.limits.append(self.pace.limit)


def test_the_pace_finds_about_the_width_of_the_server() -> None:
    server = Server(40)
    server.reply(4000)
    assert 27 <= server.pace.limit <= 80
    assert max(server.limits) <= 90
    server.width = 8
    server.reply(4000)
    assert max(server.limits) <= 90


def test_a_server_without_bound_gets_the_most_and_no_more() -> None:
    server = Server(10**9)
    server.reply(8000)
    assert server.pace.limit == MOST


def test_a_step_that_only_queues_is_taken_back_and_tried_again_later() -> None:
    server = Server(START)
    server.reply(max(WINDOW, 2 * START))
    assert server.pace.limit == 12
    server.reply(24)
    assert server.pace.limit == START
    server.reply(HOLD * WINDOW - 1)
    assert server.pace.limit == START
    server.reply(1)
    assert server.pace.limit == 12


def test_refusals_halve_at_once_but_once_a_window() -> None:
    server = Server(100)
    server.reply(1, attempts=2)
    assert server.pace.limit == START // 2
    server.reply(1, attempts=3)
    server.pace.overloaded()
    assert server.pace.limit == START // 2
    server.reply(WINDOW)
    for _ in range(9):
        server.pace.overloaded()
        server.reply(WINDOW)
    assert server.pace.limit == 1


def test_a_number_that_the_user_set_stays() -> None:
    changes: list[int] = []
    pace = Pace(5, on_change=lambda before, after, why: changes.append(after), clock=lambda: 0.0)
    for _ in range(500):
        pace.replied(3)
        pace.overloaded()
    assert (pace.limit, pace.most, changes) == (5, 5, [])


def test_workers_beyond_the_limit_wait_until_let_in_or_the_end() -> None:
    async def go() -> None:
        pace = Pace("auto", clock=lambda: 0.0)
        order: list[int] = []

        async def work(number: int) -> None:
            await pace.turn(number)
            order.append(number)

        tasks = [asyncio.create_task(work(n)) for n in range(START + 6)]
        await asyncio.sleep(0)
        assert order == list(range(START))
        for _ in range(WINDOW):
            pace.replied(1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert sorted(order) == list(range(12))
        pace.end()
        await asyncio.gather(*tasks)

    asyncio.run(go())


def test_a_run_follows_the_endpoints_429() -> None:
    def behave(body: object) -> RateLimited | None:
        return RateLimited(429, "slow") if len(engine.seen) == 20 else None

    engine = ToyEngine(behave)
    conn = connection(engine)
    sink = RecordList()
    runner = Runner(ready(conn, "gsm8k_gen", repeats=4, temperature=1.0), Pool([conn]), sink, RunPolicy("auto"))
    ended = asyncio.run(runner.run())
    assert (ended.ran, ended.failed) == (96, 1)
    assert engine.most <= MOST
    assert len(sink.samples) == 96
