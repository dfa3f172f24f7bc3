"""Dead ends, broken logits and cancellation in a running engine: the test chooses drafts and poisoned rows."""

import json
import logging

import pytest

from tests.engine.engine_process import EngineProcess, compile_at_once, generate
from tests.oracles.languages import LANGUAGES

pytestmark = pytest.mark.engine

DRAFTS = 3
BATCHED_TOKENS = 64
PROMPT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


@pytest.fixture(scope="module")
def engine(tiny_model):
    process = EngineProcess(
        str(tiny_model),
        environment={"VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
        speculative_config={"method": "ngram", "num_speculative_tokens": DRAFTS},
        max_num_batched_tokens=BATCHED_TOKENS,
        additional_config={"infernix": {"grammar_drafts": False}},  # the test's own drafts must stay
    )
    process.call(compile_at_once)
    process.eos = json.loads((tiny_model / "generation_config.json").read_text())["eos_token_id"][0]
    yield process
    process.close()


# In the engine's process: what is drafted and what is poisoned depends on the prompt and the output alone.


def runner_of(llm):
    return llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner


def arrange(llm, plans, poison):
    """Draft along ``plans`` (prompt -> output tokens); put a value over the logits at an output position.

    ``poison``: prompt -> (position, value).
    """
    runner = runner_of(llm)
    encode = llm.get_tokenizer().encode
    plans = {tuple(encode(prompt)): plan for prompt, plan in plans.items()}
    poison = {tuple(encode(prompt)): place for prompt, place in poison.items()}

    def propose(most, sampled, lengths, tokens, **_):
        drafts = []
        for row, length in zip(tokens[: len(sampled)].tolist(), lengths.tolist(), strict=False):
            written = row[:length]
            found = [
                plan[length - len(prompt) :][:most]
                for prompt, plan in plans.items()
                if written[: len(prompt)] == list(prompt) and written[len(prompt) :] == plan[: length - len(prompt)]
            ]
            drafts.append(found[0] if found else [])
        return drafts

    def sample(logits, metadata):
        start = 0
        for index, name in enumerate(runner.input_batch.req_ids):
            request = runner.requests[name]
            rows = 1 if metadata is None else metadata.num_draft_tokens[index] + 1
            position, value = poison.get(tuple(request.prompt_token_ids), (-1, None))
            offset = position - len(request.output_token_ids)
            if 0 <= offset < rows:
                logits[start + offset] = value
            start += rows
        return type(runner)._sample(runner, logits, metadata)

    runner.drafter.propose = propose
    runner._sample = sample


def refused_in_the_core(llm, pattern, requests):
    """Return the completions of an engine core that refuses one regular expression, which validation has accepted."""
    from infernix_plugin.errors import InvalidRegex

    manager = llm.llm_engine.engine_core.engine_core.structured_output_manager
    prepare = manager._prepare

    def refuse(request, budget):
        if request.sampling_params.structured_outputs.regex == pattern:
            raise InvalidRegex("refused here", location="offset 1", hint="Another one.")
        return prepare(request, budget)

    manager._prepare = refuse
    try:
        return generate(llm, requests)
    finally:
        del manager._prepare


class Records(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        self.lines.append((record.levelname, record.getMessage()))


def run_logged(llm, requests):
    """Return the completions and every line of the log from WARNING on."""
    records = Records()
    root = logging.getLogger("vllm")
    root.addHandler(records)
    try:
        return generate(llm, requests), records.lines
    finally:
        root.removeHandler(records)


def abort_in_the_middle(llm, requests, aborted, after):
    """Step by hand, abort one request after so many steps; return the final outputs by index, and the log."""
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    records = Records()
    logging.getLogger("vllm").addHandler(records)
    finished = {}
    try:
        for index, request in enumerate(requests):
            structured = StructuredOutputsParams(**request["structured"])
            params = SamplingParams(structured_outputs=structured, **request["options"])
            llm.llm_engine.add_request(str(index), request["prompt"], params)
        steps = 0
        while llm.llm_engine.has_unfinished_requests():
            for output in llm.llm_engine.step():
                if output.finished:
                    finished[int(output.request_id)] = list(output.outputs[0].token_ids)
            steps += 1
            if steps == after:
                llm.llm_engine.abort_request([str(aborted)])
        return finished, records.lines
    finally:
        logging.getLogger("vllm").removeHandler(records)


def request(prompt, structured, **options):
    return {
        "prompt": PROMPT.format(prompt),
        "structured": structured,
        "options": {"temperature": 0.0, "max_tokens": 60, **options},
    }


def language(kind, prompt, **options):
    chosen = LANGUAGES[kind]
    return request(prompt, {chosen.field: chosen.value}, **{"max_tokens": chosen.max_tokens, **options})


NEIGHBOURS = [
    language("json_schema", "Describe a person."),
    language("regex", "What day is it?", temperature=1.0, seed=3),
    language("choice", "Where?", temperature=1.0, seed=4),
]


def tag(*alternatives):
    """A structural tag of sequences; a part is text, or the id of a token."""
    sequences = [
        {
            "type": "sequence",
            "elements": [
                {"type": "const_string", "value": part} if isinstance(part, str) else {"type": "token", "token": part}
                for part in parts
            ],
        }
        for parts in alternatives
    ]
    form = sequences[0] if len(sequences) == 1 else {"type": "or", "elements": sequences}
    return {"structural_tag": json.dumps({"type": "structural_tag", "format": form})}


def tokens_of(outputs):
    return [completion["token_ids"] for (completion,) in outputs]


@pytest.fixture(scope="module")
def alone(engine):
    """The neighbours' tokens when each has the engine to itself."""
    engine.call(arrange, {}, {})
    return [tokens_of(engine.generate([neighbour]))[0] for neighbour in NEIGHBOURS]


def path(engine, text, prompt):
    """The tokens by which the model writes ``text``, greedily, without the end token."""
    engine.call(arrange, {}, {})
    ((completion,),) = engine.generate([request(prompt, {"choice": [text]})])
    assert completion["text"] == text
    return completion["token_ids"][:-1]


def committed(length):
    """How many of ``length`` tokens whole rounds commit when every draft is accepted, and the next row is dead."""
    count = 1
    while count + DRAFTS + 1 <= length:
        count += DRAFTS + 1
    return count


@pytest.mark.parametrize("drafted", [True, False], ids=["behind accepted drafts", "in an ordinary step"])
def test_a_dead_end_that_is_reached(engine, alone, drafted):
    text, prompt = "north river tree red blue green", "Dead."
    plan = path(engine, text, prompt)
    failing = request(prompt, tag((text, engine.eos)))
    engine.call(arrange, {failing["prompt"]: plan} if drafted else {}, {})
    (failed, *others), log = engine.call(run_logged, [failing, *NEIGHBOURS])
    assert tokens_of(others) == alone
    (completion,) = failed
    assert completion["finish_reason"] == "error"
    error = completion["constraint"]["error"]
    assert error["type"] == "ConstraintDeadEnd"
    assert error["message"].startswith(f"After {len(plan)} output tokens")
    assert completion["token_ids"] == plan[: committed(len(plan)) if drafted else len(plan)]
    assert [level for level, _ in log] == ["WARNING"], log
    assert error["message"] in log[0][1]


def test_a_dead_end_behind_a_rejected_draft_changes_nothing(engine, alone):
    prompt = "Which?"
    dead, live = path(engine, "blue tree", prompt), path(engine, "blue river", prompt)
    fork = next(index for index, (one, other) in enumerate(zip(dead, live, strict=False)) if one != other)
    assert 0 < fork <= len(dead) - 1 < fork + DRAFTS

    def asked(preferred):
        structured = tag(("blue tree", engine.eos), ("blue river",))
        return request(prompt, structured, logit_bias={preferred[fork]: 100.0})

    engine.call(arrange, {PROMPT.format(prompt): dead}, {})
    (chosen, *others), log = engine.call(run_logged, [asked(live), *NEIGHBOURS])
    assert (chosen[0]["text"], chosen[0]["finish_reason"]) == ("blue river", "stop")
    assert chosen[0]["constraint"]["terminated"]
    assert tokens_of(others) == alone
    assert log == []
    ((reached,),) = engine.generate([asked(dead)])
    assert reached["constraint"]["error"]["type"] == "ConstraintDeadEnd", "the drafts do lead into one"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("drafted", [True, False], ids=["behind accepted drafts", "in an ordinary step"])
def test_logits_that_are_not_finite(engine, alone, drafted, value):
    text, prompt = "north river tree red blue green", "Broken."
    plan = path(engine, text, prompt)
    position = len(plan) - 1
    failing = request(prompt, {"choice": [text]})
    engine.call(arrange, {failing["prompt"]: plan} if drafted else {}, {failing["prompt"]: (position, value)})
    (failed, *others), log = engine.call(run_logged, [failing, *NEIGHBOURS])
    assert tokens_of(others) == alone
    (completion,) = failed
    assert completion["finish_reason"] == "error"
    error = completion["constraint"]["error"]
    assert error["type"] == "NonFiniteLogits"
    assert error["message"].startswith(f"After {position} output tokens")
    assert completion["token_ids"] == plan[: committed(position) if drafted else position]
    assert [level for level, _ in log] == ["WARNING"], log


def test_logits_that_are_not_finite_behind_a_rejected_draft(engine):
    text, prompt = "north river tree red blue green", "Broken, but not read."
    plan = path(engine, text, prompt)
    wrong = [*plan[:2], plan[0], plan[0]]
    assert plan[2] != plan[0]
    asked = request(prompt, {"choice": [text]})
    calls = {asked["prompt"]: (4, float("nan"))}  # row 3 of the round that begins with one token
    engine.call(arrange, {asked["prompt"]: wrong}, calls)
    # The round after that reads position 4 for itself, so the request fails there and not before.
    ((completion,),) = engine.generate([asked])
    assert completion["token_ids"] == plan[:4]
    assert completion["constraint"]["error"]["message"].startswith("After 4 output tokens")


@pytest.mark.parametrize("drafted", [True, False], ids=["behind accepted drafts", "in an ordinary step"])
def test_logits_that_are_not_finite_without_a_constraint(engine, alone, drafted):
    """Every kind of step ends the request in the same way, or chance would decide what a broken model looks like."""
    prompt = PROMPT.format("Unconstrained.")
    free = {"prompt": prompt, "options": {"temperature": 0.0, "max_tokens": 12, "ignore_eos": True}}
    engine.call(arrange, {}, {})
    ((written,),) = engine.generate([free])
    plan = written["token_ids"]
    position = 7
    engine.call(arrange, {prompt: plan} if drafted else {}, {prompt: (position, float("nan"))})
    (failed, *others), log = engine.call(run_logged, [free, *NEIGHBOURS])
    assert tokens_of(others) == alone
    (completion,) = failed
    assert completion["finish_reason"] == "error"
    assert completion["constraint"]["error"]["type"] == "NonFiniteLogits"
    assert completion["constraint"]["error"]["message"].startswith(f"After {position} output tokens")
    assert completion["token_ids"] == plan[: committed(position) if drafted else position]
    assert [level for level, _ in log] == ["WARNING"], log


def test_a_constraint_that_only_the_engine_core_refuses(engine, alone):
    engine.call(arrange, {}, {})
    refused = request("Refused.", {"regex": "[ab]+c"})
    (failed, *others) = engine.call(refused_in_the_core, "[ab]+c", [refused, *NEIGHBOURS])
    assert tokens_of(others) == alone
    (completion,) = failed
    assert (completion["finish_reason"], completion["token_ids"]) == ("error", [])
    record = completion["constraint"]
    assert record["error"] == {
        "type": "InvalidRegex",
        "message": "refused here",
        "location": "offset 1",
        "hint": "Another one.",
    }
    assert (record["kind"], record["complete"], record["terminated"]) == ("regex", False, False)


@pytest.mark.parametrize(
    ("ending", "options", "finish", "complete", "terminated"),
    [
        ("by the model", {}, "stop", True, True),
        ("at the limit, whole", {"max_tokens": 0}, "length", True, False),
        ("at the limit, cut", {"max_tokens": -1}, "length", False, False),
        ("by a stop string", {"stop": ["tree"]}, "stop", False, False),
    ],
)
def test_how_an_output_ended_is_in_its_record(engine, ending, options, finish, complete, terminated):
    """``max_tokens``: beyond those of the text."""
    text, prompt = "north river tree red", "Ended."
    plan = path(engine, text, prompt)
    if "max_tokens" in options:
        options = {"max_tokens": len(plan) + options["max_tokens"]}
    structured = tag((text,)) if "stop" in options else {"choice": [text]}
    ((completion,),) = engine.generate([request(prompt, structured, **options)])
    record = completion["constraint"]
    assert completion["finish_reason"] == finish
    assert (record["complete"], record["terminated"]) == (complete, terminated), ending
    assert "error" not in record


def test_cancelling_is_no_failure(engine, alone):
    engine.call(arrange, {}, {})
    cancelled = language("json_schema", "Describe a tree.")
    finished, log = engine.call(abort_in_the_middle, [*NEIGHBOURS, cancelled], len(NEIGHBOURS), 4)
    assert [finished.get(index) for index in range(len(NEIGHBOURS))] == alone
    assert len(NEIGHBOURS) not in finished
    assert not [line for _, line in log if "deprecated" not in line]  # of adding a request by hand


@pytest.mark.parametrize("kind", ["json_schema", "regex"])
def test_min_p_of_one_is_greedy_with_and_without_drafts(engine, kind):
    """Every other token has less than the best one's probability, so chance is left nothing to decide."""
    greedy = language(kind, "Describe a person.")
    engine.call(arrange, {}, {})
    (expected,) = tokens_of(engine.generate([greedy]))
    sampled = language(kind, "Describe a person.", temperature=1.5, min_p=1.0, seed=8)
    wrong = [token if index % 5 else token + 1 for index, token in enumerate(expected)]
    for plan in ([], expected, wrong):
        engine.call(arrange, {greedy["prompt"]: plan}, {})
        assert tokens_of(engine.generate([sampled])) == [expected]


def test_a_logit_bias_decides_with_and_without_drafts(engine):
    prompt = "Pick one."
    plans = {text: path(engine, text, prompt) for text in ("red", "blue")}
    for text, plan in plans.items():
        (other,) = (each for name, each in plans.items() if name != text)
        biased = request(prompt, {"choice": list(plans)}, logit_bias={plan[0]: 100.0, other[0]: -100.0})
        for drafts in ([], plan, other):
            engine.call(arrange, {biased["prompt"]: drafts}, {})
            ((completion,),) = engine.generate([biased])
            assert completion["text"] == text


REFUSED = {
    "stop": ["x"],
    "stop_token_ids": [7],
    "ignore_eos": True,
    "include_stop_str_in_output": True,
    "min_tokens": 20,
    "bad_words": ["red"],
    "allowed_token_ids": [5],
    "logit_bias": {5: float("-inf")},
}


@pytest.mark.parametrize("option", REFUSED)
def test_options_that_could_break_a_constraint_are_refused_offline(engine, option):
    with pytest.raises(RuntimeError, match=f"Refused: {option}"):
        engine.generate([request("Pick one.", {"choice": ["red"]}, **{option: REFUSED[option]})])


LEFT_WITH_NOTHING = {
    "allowed_token_ids": lambda plan: [plan[0]],
    "bad_words": lambda plan: ["^"],
    "logit_bias": lambda plan: {plan[1]: float("-inf")},
}


@pytest.mark.parametrize("drafted", [True, False], ids=["at a draft", "in an ordinary step"])
@pytest.mark.parametrize("option", LEFT_WITH_NOTHING)
def test_options_that_leave_nothing_of_a_structural_tag_end_it(engine, option, drafted):
    """Tags come from vLLM's tool parsers too, beside whatever options a request has, so these are not refused."""
    prompt = "Only."
    plan = path(engine, "~^", prompt)
    assert len(plan) == 2, "one way to write it"
    asked = request(prompt, tag(("~^",)), **{option: LEFT_WITH_NOTHING[option](plan)})
    engine.call(arrange, {asked["prompt"]: plan} if drafted else {}, {})
    ((completion,),), log = engine.call(run_logged, [asked])
    assert completion["token_ids"] == plan[:1]
    error = completion["constraint"]["error"]
    assert error["type"] == "ConstraintDeadEnd"
    assert error["message"].startswith("After 1 output tokens, the sampling options of the request forbid")
    assert [level for level, _ in log] == ["WARNING"], log


@pytest.mark.parametrize("drafted", [True, False], ids=["at a draft", "in an ordinary step"])
def test_min_tokens_gives_way_where_a_structural_tag_allows_nothing_but_the_end(engine, drafted):
    prompt = "Only."
    plan = [*path(engine, "~^", prompt), engine.eos]
    asked = request(prompt, tag(("~^",)), min_tokens=20)
    engine.call(arrange, {asked["prompt"]: plan} if drafted else {}, {})
    ((completion,),) = engine.generate([asked])
    assert (completion["text"], completion["finish_reason"]) == ("~^", "stop")
    assert completion["constraint"]["terminated"]


@pytest.mark.parametrize("tail", [1, 30])
def test_a_seeded_prompt_of_several_chunks(engine, tail):
    """A chunk that ends no prompt consumes nothing of the request's random stream, however many there are.

    With nobody beside it the last chunk of the former is a step of a single token. Where chunks end moves the last bits
    of the logits; among three tokens chance alone decides.
    """
    engine.call(arrange, {}, {})
    long = {
        "prompt": {"prompt_token_ids": list(range(50, 50 + 5 * BATCHED_TOKENS + tail))},
        "options": {"temperature": 2.0, "seed": 5, "max_tokens": 24, "allowed_token_ids": [60, 70, 80]},
    }
    alone = tokens_of(engine.generate([long]))[0]
    assert len(set(alone)) > 1
    others = [
        {
            "prompt": {"prompt_token_ids": list(range(90, 130 + 7 * index))},
            "options": {"temperature": 1.0, "seed": index, "max_tokens": 40},
        }
        for index in range(4)
    ]
    assert tokens_of(engine.generate([*others, long]))[-1] == alone
