"""Compiles in processes of their own: the same results, and what is too much ends alone."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from infernix_plugin import ConstraintCompiler, ConstraintError, MaskState, OutputConstraint, TokenDomain
from infernix_plugin.framing.phases import Framing
from infernix_plugin.framing.tools.contract import CallChoice, Tool, ToolContract
from infernix_plugin.grammar.budget import CompileCrash, CompileTimeout
from infernix_plugin.grammar.interest import CompileAbandoned, wanted_while
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.isolation import frames, nursery, places
from infernix_plugin.isolation import pool as pools
from infernix_plugin.isolation.nursery import Setup
from infernix_plugin.isolation.places import Busy
from infernix_plugin.isolation.planner import IsolatedPlanner
from infernix_plugin.isolation.pool import Crash, NoWorkers, OutOfTime, Pool
from infernix_plugin.matching import CompiledGrammar
from infernix_plugin.matching.plan import Job
from infernix_plugin.matching.wire import packed_plan
from tests.hostile.corpus import FAMILIES

PATIENCE = 120
MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<end>")
PIECES = [*(bytes([byte]) for byte in range(256)), b"ab", b'{"', b'":', b'", "', b"\n\n", b"</"]
PIECES += [marker.encode() for marker in MARKERS]
CONTROL = {marker: PIECES.index(marker.encode()) for marker in MARKERS}
DOMAIN = TokenDomain(PIECES, control=CONTROL, stop=[CONTROL["<end>"]], vocab_size=len(PIECES) + 5)
THINKING = Framing(thinking=True, close_id=CONTROL["</think>"])
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string", "maxLength": 9}, "b": {"type": "array", "uniqueItems": True}},
    "required": ["a"],
}
LARGE = 'root ::= "(" root ")" | ' + " | ".join(
    f'"literal {number * 7919 % 100003} {number} of many"' for number in range(7000)
)
FREE = ToolContract(
    (Tool("f"), Tool("g", json.dumps(SCHEMA), strict=True)), CallChoice.REQUIRED, frozenset({"f", "g"}), parallel=False
)


def planner_for(compiler: ConstraintCompiler, setup: Setup, places: int) -> IsolatedPlanner:
    made: list[IsolatedPlanner] = []

    def make(engines, local):
        made.append(IsolatedPlanner(setup, compiler.domain, engines, local, places))
        return made[0]

    compiler.plan_with(make, 64)
    return made[0]


def setup_of(seconds: float = 60.0, memory: int = 1 << 30) -> Setup:
    return Setup(GrammarOptions(), 16 << 20, seconds, memory)


@pytest.fixture(scope="module")
def isolated() -> Iterator[ConstraintCompiler]:
    compiler = ConstraintCompiler(DOMAIN)
    planner = planner_for(compiler, setup_of(), 2)
    yield compiler
    planner.pool.close()


@pytest.fixture(scope="module")
def direct() -> ConstraintCompiler:
    return ConstraintCompiler(DOMAIN, max_compile_seconds=60.0)


@pytest.fixture
def pool() -> Iterator[Pool]:
    """One place of each kind, and at most a second."""
    compiler = ConstraintCompiler(DOMAIN)
    planner = planner_for(compiler, setup_of(0.25), 1)
    yield planner.pool
    planner.pool.close()


def described(compiler: ConstraintCompiler, job: Job) -> object:
    """Everything that can be told of a compiled grammar, masks along a walk included; or of the refusal."""
    try:
        compiled = compiler.build(job)
    except ConstraintError as error:
        return type(error), error.message, error.location, error.hint
    return compiled.engine, compiled.grammar_text(), compiled.remarks, walk(compiled)


def walk(compiled: CompiledGrammar) -> list[bytes]:
    rng, row, masks = random.Random(0), np.zeros(DOMAIN.mask_words, dtype=np.int32), []
    session = compiled.session()
    for _ in range(30):
        state = session.fill_mask(row)
        masks.append(row.tobytes())
        if state is not MaskState.READY:
            break
        token = rng.choice(np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist())
        assert session.accept(token)
        if session.terminated:
            break
    return masks


def tag_of(**content):
    """A structural tag of one tool."""
    tags = [{"begin": "<f>", "content": content, "end": "</f>"}]
    return json.dumps(
        {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<f"], "tags": tags}}
    )


JOBS = {
    "regex": Job(OutputConstraint.regex("[a-c]{2,5}x?")),
    "a regex with a mistake": Job(OutputConstraint.regex("a(b")),
    "choice": Job(OutputConstraint.choice(["ab", "a\0", "\u20ac"])),
    "no choice": Job(OutputConstraint.choice([])),
    "any object": Job(OutputConstraint.json_object()),
    "schema": Job(OutputConstraint.json_schema(SCHEMA)),
    "schema behind reasoning": Job(OutputConstraint.json_schema(SCHEMA), framing=THINKING),
    "a mistake in a schema": Job(OutputConstraint.json_schema('{"properties": {"a": {"type": "strin"}}}')),
    "a keyword that is not enforced": Job(
        OutputConstraint.json_schema('{"minProperties": 9, "properties": {"a": {}}}')
    ),
    "half a character": Job(OutputConstraint.json_schema('{"const": "\\ud800"}')),
    "half a character as such": Job(OutputConstraint.regex("a\ud800")),
    "recursion": Job(OutputConstraint.grammar('root ::= "(" root ")" | [a-z]+ | Token(256)')),
    "useless rules": Job(OutputConstraint.grammar('root ::= "(" root ")" | a | "x"\na ::= a "b"')),
    "a mistake in a grammar": Job(OutputConstraint.grammar('root ::= "a"\nb ::= (')),
    "a control token in a grammar": Job(OutputConstraint.grammar(f"root ::= Token({CONTROL['<think>']})")),
    "Lark": Job(OutputConstraint.grammar('start: "(" start ")" | WORD\nWORD: /[a-z]+/')),
    "calls": Job(contract=FREE),
    "calls or content behind reasoning": Job(OutputConstraint.regex("[0-9]+"), ToolContract((Tool("f"),)), THINKING),
    "a custom tool": Job(contract=ToolContract((Tool("c", strict=True, text=OutputConstraint.regex("[ab]+")),))),
    "a grammar too large to be sent": Job(OutputConstraint.grammar(LARGE)),
    "a structural tag": Job(structural_tag='{"type": "structural_tag", "format": {"type": "regex", "pattern": "a+"}}'),
    "a structural tag of tools": Job(structural_tag=tag_of(type="json_schema", json_schema={"minLength": 3})),
    "a structural tag for xgrammar": Job(structural_tag=tag_of(type="json_schema", json_schema=True, style="glm_xml")),
    "a structural tag that is not enforced": Job(structural_tag=tag_of(type="json_schema", json_schema={"nut": {}})),
    "no structural tag": Job(structural_tag='{"type": "structural_tag"}'),
    "fifty thousand words": Job(FAMILIES["choice"]["fifty thousand"]()),
    "too deep": Job(FAMILIES["schema"]["deep items"]()),
    "a long chain": Job(FAMILIES["schema"]["a chain of references"]()),
}


def test_control_tokens_stay_spelled(isolated):
    """The content of a tag may spell a control token, whichever process compiled it."""
    compiled = isolated.compile_structural_tag(tag_of(type="const_string", value="<think>"))
    assert compiled.engine == "llguidance"
    opening = [*(DOMAIN.byte_token(byte) for byte in b"<f>"), CONTROL["<think>"]]
    assert compiled.session().preview(opening) == 4


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_results_are_those_of_the_same_process(isolated, direct, job):
    assert described(isolated, job) == described(direct, job)


def test_a_large_compiled_grammar_is_not_sent(direct):
    plan = direct._planner.plan(JOBS["a grammar too large to be sent"])
    assert plan.source.is_large
    assert packed_plan(plan)[2] == b""


def test_what_llguidance_refuses_here_is_planned_for_the_other_engine(isolated, monkeypatch):
    from infernix_plugin import ConstraintTooLarge
    from infernix_plugin.matching.engines.llguidance import LlguidanceEngine

    def give_up(*_: object) -> None:
        raise ConstraintTooLarge("over a limit")

    monkeypatch.setattr(LlguidanceEngine, "made", give_up)
    assert isolated.build(Job(OutputConstraint.regex("[ab]+c"))).engine == "xgrammar"


def request_for(pattern: str) -> list[bytes]:
    from infernix_plugin.matching import wire

    return list(wire.packed_job(Job(OutputConstraint.regex(pattern)), spare=False))


def next_worker(pool: Pool) -> int:
    """The process that the next request goes to."""
    while True:
        with contextlib.suppress(NoWorkers, OSError):  # of a nursery that has ended; the next one makes some
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(places, "SHORT_SECONDS", PATIENCE)  # however slow the machine is
                pool.run(request_for("warm"))
            worker = pool._idle[-1]
            worker.meet()
            return worker._pid


def started(pool: Pool) -> subprocess.Popen[bytes]:
    """The process that workers are forked from."""
    pool.start()
    return pool._nursery._process


def hung(
    pool: Pool, executor: ThreadPoolExecutor, pattern: str, left: threading.Event | None = None
) -> tuple[int, Future[list[bytes]]]:
    """A request whose worker never answers, and whose client may have ``left``."""
    worker = next_worker(pool)
    os.kill(worker, signal.SIGSTOP)
    return worker, executor.submit(wanted, pool, pattern, left or threading.Event())


def wanted(pool: Pool, pattern: str, left: threading.Event) -> list[bytes]:
    with wanted_while(lambda: not left.is_set()):
        return pool.run(request_for(pattern))


def long_places(pool: Pool) -> int:
    """How many are free."""
    return pool.places.long._value


def until(condition: Callable[[], bool]) -> bool:
    """Whether something becomes true in a time that is enough for everything here."""
    for _ in range(100 * PATIENCE):
        if condition():
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as made:
        yield made


def test_out_of_time_is_ended_while_others_go_on(pool, executor):
    worker, running = hung(pool, executor, "a+")
    for pattern in ("b+", "c+"):
        assert pool.run(request_for(pattern))[0] == b"plan"
    assert isinstance(running.exception(PATIENCE), OutOfTime)
    assert gone(worker)
    assert pool.run(request_for("a+"))[0] == b"plan"


def test_without_a_long_place_it_begins_again_when_there_is_one(pool, executor, monkeypatch):
    pool._seconds = PATIENCE
    first, running = hung(pool, executor, "a+")
    assert until(lambda: long_places(pool) == 0)
    second, waiting = hung(pool, executor, "b+")
    assert gone(second)
    assert not waiting.done()
    monkeypatch.setattr(places, "SHORT_SECONDS", PATIENCE)  # however slow the machine is
    assert pool.run(request_for("c+"))[0] == b"plan"
    os.kill(first, signal.SIGKILL)
    assert isinstance(running.exception(PATIENCE), Crash)
    assert waiting.result(PATIENCE)[0] == b"plan"


def test_a_place_is_free_again_when_there_is_no_worker_for_it(pool, executor, monkeypatch):
    pool._seconds = PATIENCE
    first, running = hung(pool, executor, "a+")
    assert until(lambda: long_places(pool) == 0)
    second, waiting = hung(pool, executor, "b+")
    assert gone(second)

    def none_left() -> None:
        raise NoWorkers

    monkeypatch.setattr(pool, "_worker", none_left)
    os.kill(first, signal.SIGKILL)
    assert isinstance(running.exception(PATIENCE), Crash)
    assert isinstance(waiting.exception(PATIENCE), NoWorkers)
    assert long_places(pool) == 1


def test_a_worker_that_has_grown_is_replaced():
    """So that no job pays for what earlier ones left."""
    compiler = ConstraintCompiler(DOMAIN)
    planner = planner_for(compiler, setup_of(memory=100 << 20), 1)
    try:
        first = next_worker(planner.pool)
        planner.pool.run(request_for("a+"))
        assert next_worker(planner.pool) == first
        texts = [f"{number:06d}" for number in range(50_000)]
        with contextlib.suppress(CompileCrash):  # if it is too much for this worker, that ends it as well
            compiler.compile(OutputConstraint.choice(texts))
        assert gone(first)
        assert compiler.compile(OutputConstraint.regex("b+")).engine == "llguidance"
    finally:
        planner.pool.close()


def test_a_long_job_has_a_lower_priority_than_a_short_one(pool, executor, monkeypatch):
    pool._seconds = PATIENCE
    worker, running = hung(pool, executor, "a+")
    assert until(lambda: os.getpriority(os.PRIO_PROCESS, worker) == min(os.nice(0) + pools.LONG_NICENESS, 19))
    monkeypatch.setattr(places, "SHORT_SECONDS", PATIENCE)  # however slow the machine is
    assert os.getpriority(os.PRIO_PROCESS, next_worker(pool)) == min(os.nice(0) + nursery.NICENESS, 19)
    os.kill(worker, signal.SIGCONT)
    assert running.result(PATIENCE)[0] == b"plan"
    assert gone(worker)  # it could only go on as slowly


def test_the_end_of_the_time_is_a_timeout(monkeypatch):
    """Whether the worker sees it, or is ended in native code: xgrammar takes a second."""
    monkeypatch.setattr(pools, "GRACE_SECONDS", 0.0)
    compiler = ConstraintCompiler(DOMAIN)
    planner = planner_for(compiler, setup_of(0.05), 1)
    try:
        with pytest.raises(CompileTimeout, match=r"max_compile_seconds, which is 0\.05"):
            compiler.compile(OutputConstraint.grammar('root ::= "(" root ")" | ' + "[a-z]+ [0-9]* " * 3000))
        monkeypatch.setattr(pools, "WAITING", PATIENCE * 20)
        assert compiler.compile(OutputConstraint.regex("a+")).engine == "llguidance"
    finally:
        planner.pool.close()


def test_too_much_memory_refuses_that_constraint_alone():
    compiler = ConstraintCompiler(DOMAIN)
    planner = planner_for(compiler, setup_of(memory=16 << 20), 1)
    try:
        for _ in range(2):  # it is not remembered
            with pytest.raises(CompileCrash, match=f"max_compile_bytes, which is {16 << 20}|process .* has ended"):
                compiler.compile(FAMILIES["choice"]["fifty thousand"]())
        assert compiler.stats().failed == 2
        assert compiler.compile(OutputConstraint.regex("a+")).engine == "llguidance"
    finally:
        planner.pool.close()


def test_a_worker_that_crashes_refuses_one_constraint(isolated):
    pool = isolated._planner.pool
    worker = next_worker(pool)
    os.kill(worker, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as executor:
        running = executor.submit(isolated.compile, OutputConstraint.regex("crash"))
        assert until(lambda: long_places(pool) == 1)
        os.kill(worker, signal.SIGKILL)
        assert running.result(PATIENCE).engine == "llguidance"  # it begins again


def test_what_crashes_twice_is_refused(isolated, monkeypatch):
    runs = []

    def crash(request):
        runs.append(request)
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(isolated._planner.pool, "run", crash)
        with pytest.raises(CompileCrash) as refused:
            isolated.compile(OutputConstraint.regex("crash twice"))
    assert refused.value.hint == "Simplify the constraint."
    assert len(runs) == 2
    assert isolated.compile(OutputConstraint.regex("crash twice")).engine == "llguidance"  # that is not remembered


def test_long_jobs_wait_in_a_line_of_limited_length(pool, executor, monkeypatch):
    pool._seconds = PATIENCE
    monkeypatch.setattr(places, "MAX_WAITING", 1)
    first, running = hung(pool, executor, "a+")
    assert until(lambda: long_places(pool) == 0)
    second, waiting = hung(pool, executor, "b+")
    assert gone(second)
    _, third = hung(pool, executor, "c+")
    assert isinstance(third.exception(PATIENCE), Busy)
    assert pool.run(request_for("d+"))[0] == b"plan"
    os.kill(first, signal.SIGKILL)
    assert isinstance(running.exception(PATIENCE), Crash)
    assert waiting.result(PATIENCE)[0] == b"plan"


def test_what_nobody_waits_for_is_ended_and_gives_its_place_away(pool, executor):
    pool._seconds = PATIENCE
    left = [threading.Event(), threading.Event()]
    first, running = hung(pool, executor, "a+", left[0])
    assert until(lambda: long_places(pool) == 0)
    second, waiting = hung(pool, executor, "b+", left[1])
    assert gone(second)
    third, stays = hung(pool, executor, "c+")
    assert gone(third)
    left[1].set()
    assert isinstance(waiting.exception(PATIENCE), CompileAbandoned)
    assert until(lambda: pool.places.waiting == 1)
    assert not running.done()
    assert not stays.done()
    left[0].set()
    assert isinstance(running.exception(PATIENCE), CompileAbandoned)
    assert gone(first)
    assert stays.result(PATIENCE)[0] == b"plan"
    assert until(lambda: long_places(pool) == 1)


def test_what_nobody_waits_for_leaves_the_line_for_a_short_place(pool, executor, monkeypatch):
    monkeypatch.setattr(places, "SHORT_SECONDS", PATIENCE)
    left = threading.Event()
    worker, running = hung(pool, executor, "a+")
    assert until(lambda: pool.places.short._value == 0)
    waiting = executor.submit(wanted, pool, "b+", left)
    left.set()
    assert isinstance(waiting.exception(PATIENCE), CompileAbandoned)
    os.kill(worker, signal.SIGCONT)
    assert running.result(PATIENCE)[0] == b"plan"


def test_a_worker_that_ended_before_anybody_met_it_costs_nobody_anything(pool):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(PATIENCE)
    next_worker(pool)
    ours, theirs = socket.socketpair()
    with theirs:
        frames.send(theirs, [str(ended.pid).encode()])
        with pool._lock:
            pool._idle.append(pools._Worker(ours))
        nursery = pool._nursery
        assert pool.run(request_for("a+"))[0] == b"plan"
    assert pool._nursery is nursery


ENDING = """
from tests.isolation.test_isolated_compiles import *
pool = planner_for(ConstraintCompiler(DOMAIN), setup_of(600.0), 1).pool
executor = ThreadPoolExecutor(4)
hung(pool, executor, "a+")
assert until(lambda: long_places(pool) == 0)
for pattern in ("b+", "c+"):
    assert gone(hung(pool, executor, pattern)[0])
"""


def test_a_process_ends_although_compiles_are_under_way():
    subprocess.run([sys.executable, "-c", ENDING], cwd=Path(__file__).parents[2], check=True, timeout=PATIENCE)


def test_a_worker_that_ended_while_idle_costs_nobody_anything(pool):
    worker = next_worker(pool)
    os.kill(worker, signal.SIGKILL)
    assert until(lambda: pool._idle[-1].answers(0))
    assert pool.run(request_for("a+"))[0] == b"plan"


def test_a_nursery_that_ended_is_started_again():
    compiler = ConstraintCompiler(DOMAIN)
    planner = planner_for(compiler, setup_of(), 1)
    try:
        ended = started(planner.pool)
        ended.kill()
        ended.wait(PATIENCE)
        for pattern in ("a+", "b+", "c+"):  # until none is left of those that it made
            worker = next_worker(planner.pool)
            os.kill(worker, signal.SIGKILL)
            assert until(lambda: planner.pool._idle[-1].answers(0))
            assert compiler.compile(OutputConstraint.regex(pattern)).engine == "llguidance"
        assert started(planner.pool) is not ended
    finally:
        planner.pool.close()


def test_a_nursery_that_ended_leaves_no_zombie(pool):
    ended = started(pool)
    os.kill(ended.pid, signal.SIGKILL)
    assert until(lambda: not Path(f"/proc/{ended.pid}").exists())
    assert pool._nursery._process is ended, "nobody has asked for another"


def test_without_processes_it_goes_on_here_and_says_so_once(monkeypatch, caplog, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "missing"))
    compiler = ConstraintCompiler(DOMAIN)
    planner_for(compiler, setup_of(), 1)
    with caplog.at_level(logging.WARNING):
        for pattern in ("a+", "b+"):
            assert compiler.compile(OutputConstraint.regex(pattern)).engine == "llguidance"
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "Constraints are compiled inside of this process from now on"
    ]


def test_an_error_of_the_plugin_says_where_and_not_what():
    from infernix_plugin.errors import InfernixError
    from infernix_plugin.matching import wire

    try:
        {}["the client's secret"]
    except KeyError as error:
        arrived = wire.unpacked_error(wire.packed_error(error))
    assert type(arrived) is InfernixError
    assert "KeyError in test_isolated_compiles.py" in str(arrived)
    assert "secret" not in str(arrived)


PARENT = """
import os, signal, sys, threading
from tests.isolation.test_isolated_compiles import *
compiler = ConstraintCompiler(DOMAIN)
pool = planner_for(compiler, setup_of(600.0), 1).pool
worker = next_worker(pool)
os.kill(worker, signal.SIGSTOP)
threading.Thread(target=pool.run, args=(request_for("a+"),), daemon=True).start()
assert until(lambda: long_places(pool) == 0)
os.kill(worker, signal.SIGCONT) if sys.argv[1] == "running" else None
print(pool._nursery._process.pid, worker, *(each._pid for each in pool._idle if each._process), flush=True)
sys.stdin.read()
"""


def test_nothing_outlives_a_server_that_is_killed():
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, "running"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        text=True,
    )
    processes = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(processes) >= 2
    parent.kill()
    parent.wait(PATIENCE)
    assert all(gone(pid) for pid in processes)


def test_a_signal_to_the_whole_group_ends_no_compile(pool, executor):
    """The server gets it too, and they end with the server."""
    parent, worker = started(pool), next_worker(pool)
    for process in (parent.pid, worker):
        os.kill(process, signal.SIGTERM)
        os.kill(process, signal.SIGINT)
    assert pool.run(request_for("a+"))[0] == b"plan"
    assert next_worker(pool) == worker
    assert parent.poll() is None


def test_close_ends_all(pool):
    worker = next_worker(pool)
    parent = started(pool).pid
    pool.close()
    assert gone(worker)
    assert gone(parent)


def gone(pid: int) -> bool:
    """Whether a process ends soon."""
    return until(lambda: not is_alive(pid))


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        threads = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX" or len(threads) > 1  # the last thread closes the files
