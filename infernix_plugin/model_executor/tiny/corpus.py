"""Text that trains the tiny tokenizer and gives the tiny model its word statistics. All of it is written here.

The generators are seeded by a constant, so that every checkpoint has the same vocabulary; only the weights depend on
the user's seed. There is no claim to good prose: what counts is that the usual shapes of model output occur often
enough to earn tokens of several characters: words, JSON punctuation, indentation, tags, digits, other scripts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

CORPUS_SEED = 20_26


def _words(text: str) -> list[str]:
    return text.split()


_NAMES = _words(
    "Ada Ben Chiara David Elif Farid Greta Hugo Ines Jonas Keiko Lena Mateo Nadia Olga Pedro Rosa Sven Tara Wei"
)
_SURNAMES = _words(
    "Almeida Becker Costa Dubois Eriksen Fischer Garcia Hoffman Ivanova Jensen Kim Lopez Moreau Novak Sato"
)
_CITIES = _words("Lisbon Vienna Osaka Nairobi Toronto Oslo Quito Berlin Seville Hanoi Dublin Cairo Boston Lyon Prague")
_MONTHS = _words("January February March April May June July August September October November December")
_NOUNS = _words(
    "answer bridge budget camera car chapter city client cloud colour computer contract country customer day device "
    "document door engine error event example exercise factory family farmer field file flower forest function garden "
    "glass government group harbour history holiday hospital house idea island journey kitchen language lesson letter "
    "library light machine market message method minute model moment money morning mountain museum neighbour network "
    "number office order page painter paper parcel person picture place plan planet player price problem process "
    "product program project question reason recipe record region report request result river road room schedule "
    "school science season server service ship signal song station story street student summer system table task "
    "teacher team ticket time train tree university valley village voice water weather week window winter word world"
)
_ADJECTIVES = _words(
    "active available bright broken careful cheap clear cold common correct curious different difficult early easy "
    "empty exact expensive fast final full general good great green happy heavy high important international large "
    "late little local long modern narrow new next old open perfect popular possible private public quiet ready recent "
    "red second short similar simple slow small special strong sudden useful valid warm white wide wrong young"
)
_VERBS = _words(
    "accepted answered arranged asked believed bought brought built called carried changed checked chose closed "
    "collected compared completed counted created delivered described designed discovered divided explained expected "
    "finished followed forgot found gave heard helped kept learned left liked looked made measured mentioned moved "
    "needed noticed offered opened ordered painted planned prepared produced promised published read received "
    "remembered repaired replaced reported returned saved searched showed started stopped studied suggested tested "
    "thanked translated turned understood used visited waited watched wrote"
)
_ADVERBS = _words(
    "again almost already carefully clearly directly finally later never often quickly quietly slowly soon twice"
)
_PLACES = ["in the", "near the", "behind the", "at the", "from the", "beyond the", "inside the", "on the way to the"]
_LINKS = ["because", "while", "although", "before", "after", "so", "but", "and then", "when", "until"]
_KEYS = _words(
    "name age city email id title status type value price count date time items tags address street country active "
    "description result error message code data user created updated total quantity language temperature unit query "
    "first_name last_name phone score width height color category location"
)
_TOOLS = _words("get_weather search_web send_email run_code read_file write_file convert_currency set_timer")
_LABELS = _words("positive negative neutral billing technical other spam urgent yes no unknown")
_UNITS = _words("celsius fahrenheit metres kilograms euro dollars seconds percent")

_OTHER_SCRIPTS = [
    "今天天气很好，我们去公园散步。", "请把这份文件翻译成英文，谢谢。", "他住在城市的北边，每天坐火车上班。",
    "这个问题的答案是四十二。", "春天来了，花园里的花都开了。", "図書館で本を読みました。",
    "駅まで歩いて十分かかります。", "明日の会議は午後三時からです。",
    "ありがとうございます、とても助かりました。", "내일 아침에 비가 올 것 같아요.",
    "서울에서 부산까지 기차로 세 시간 걸립니다.", "Сегодня хорошая погода, мы идём в парк.",
    "Спасибо за помощь!", "Die Straße ist schön, aber das Café schließt früh.",
    "L'été dernier, nous avons visité un château près de la forêt.", "El niño comió una manzana en el jardín.",
    "Η θάλασσα είναι ήρεμη σήμερα.", "الطقس جميل اليوم في المدينة.", "आज मौसम बहुत अच्छा है।",
    "สวัสดีครับ วันนี้อากาศดี", "Çocuk bahçede oynuyor.", "Zażółć gęślą jaźń.", "🙂 Great work! 🎉🎉",
    "🚀 Launch at noon ✅", "❤️ Thank you 🙏", "⚠️ Warning: low battery 🔋", "☀️ 21 °C → 🌧️ 14 °C",
    "👩‍💻 writes code, 👨‍🍳 cooks 🍜", "Price: €12.50 – £9.99 – ¥1,500", "a² + b² = c², x ≤ y ≠ z, α β γ",
    "“Yes,” she said — ‘maybe…’",
]  # fmt: skip


@dataclass(frozen=True)
class Turn:
    """One exchange with the assistant. ``thinking`` is one paragraph; ``reply`` is what the user sees."""

    question: str
    thinking: str
    reply: str


def documents() -> Iterator[str]:
    """Yield the training text of the tokenizer, document by document, always the same."""
    rng = Random(CORPUS_SEED)
    writers: dict[Callable[[Random], str], int] = {
        _paragraph: 700, _json_document: 700, _python: 160, _javascript: 80, _query: 80, _tool_call: 250,
        _markdown: 120, _markup: 80, _numbers: 120, _foreign: 260,
    }  # fmt: skip
    for write, times in writers.items():
        for _ in range(times):
            yield write(rng)


def conversations() -> Iterator[Turn]:
    """Yield exchanges whose replies cover prose, JSON, labels, dates, code and tool calls, always the same."""
    rng = Random(CORPUS_SEED + 1)
    replies: list[Callable[[Random], str]] = [
        _paragraph, _sentence, _json_document, _json_document, _tool_call, _label, _numbers, _python, _markdown,
        _foreign,
    ]  # fmt: skip
    for _ in range(150):
        for reply in replies:
            yield Turn(_question(rng), _thought(rng), reply(rng))


def _sentence(rng: Random) -> str:
    noun, quality, name, done = rng.choice(_NOUNS), rng.choice(_ADJECTIVES), rng.choice(_NAMES), rng.choice(_VERBS)
    subject = rng.choice([f"The {quality} {noun}", name, f"A {noun}"])
    place = f"{rng.choice(_PLACES)} {rng.choice(_NOUNS)}"
    thing = f"the {rng.choice(_NOUNS)}"
    plain = f"{subject} {done} {thing} {place}"
    shape = rng.randrange(5)
    if shape == 0:
        return f"{plain}."
    if shape == 1:
        return f"{plain} {rng.choice(_LINKS)} {rng.choice(_NAMES)} {rng.choice(_ADVERBS)} {rng.choice(_VERBS)} it."
    if shape == 2:
        return f"{name} {rng.choice(_SURNAMES)} from {rng.choice(_CITIES)} {done} {thing} on {_date(rng)}."
    if shape == 3:
        return f'"Is {thing} {quality}?" {name} {done}; it isn\'t {rng.choice(_ADJECTIVES)}.'
    return f"There are {rng.randrange(2, 99)} {rng.choice(_NOUNS)}s {place}, and we don't need more."


def _paragraph(rng: Random) -> str:
    return " ".join(_sentence(rng) for _ in range(rng.randrange(2, 6)))


def _date(rng: Random) -> str:
    year, month, day = rng.randrange(1990, 2031), rng.randrange(1, 13), rng.randrange(1, 29)
    return rng.choice([f"{year}-{month:02}-{day:02}", f"{day} {_MONTHS[month - 1]} {year}"])


def _label(rng: Random) -> str:
    return rng.choice(_LABELS)


def _numbers(rng: Random) -> str:
    return rng.choice(
        [
            _date(rng),
            f"{rng.randrange(24):02}:{rng.randrange(60):02}",
            str(rng.randrange(100_000)),
            f"{rng.uniform(-50, 50):.2f}",
            f"{rng.randrange(1, 999)} {rng.choice(_UNITS)}",
            f"+{rng.randrange(10, 99)} {rng.randrange(100, 999)} {rng.randrange(10_000, 99_999)}",
        ]
    )


def _scalar(rng: Random) -> object:
    texts = [rng.choice(_NAMES), rng.choice(_CITIES), rng.choice(_LABELS), _date(rng), ""]
    texts += [f"{rng.choice(_ADJECTIVES)} {rng.choice(_NOUNS)}", f"{rng.choice(_NAMES).lower()}@example.com"]
    return rng.choice([*texts, rng.randrange(-10, 1000), round(rng.uniform(0, 100), 2), True, False, None])


def _value(rng: Random, depth: int) -> object:
    if depth == 0 or rng.random() < 0.7:
        return _scalar(rng)
    if rng.random() < 0.5:
        return [_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return _object(rng, depth - 1)


def _object(rng: Random, depth: int) -> dict[str, object]:
    return {key: _value(rng, depth) for key in rng.sample(_KEYS, rng.randrange(1, 6))}


def _json_document(rng: Random) -> str:
    value = _object(rng, 2)
    layout = rng.randrange(3)
    if layout == 0:
        return json.dumps(value, indent=2, ensure_ascii=False)
    return json.dumps(value, separators=(",", ":") if layout == 1 else None)


def _tool_call(rng: Random) -> str:
    """One call in the form Qwen3.5 writes: XML-like tags, one parameter per block, the value on lines of its own."""
    lines = ["<tool_call>", f"<function={rng.choice(_TOOLS)}>"]
    for key in rng.sample(_KEYS, rng.randrange(1, 4)):
        lines += [f"<parameter={key}>", json.dumps(_value(rng, 1)).strip('"'), "</parameter>"]
    return "\n".join([*lines, "</function>", "</tool_call>"])


def _python(rng: Random) -> str:
    noun, verb, key = rng.choice(_NOUNS), rng.choice(_VERBS), rng.choice(_KEYS)
    function = (
        f"def {verb}_{noun}(self, {key}: str) -> int:\n    if {key} is None:\n        return 0\n    return len({key})\n"
    )
    loop = f'for {noun} in range({rng.randrange(100)}):\n    print(f"{key}: {{{noun}}}")\n'
    klass = f"class {noun.title()}:\n    def __init__(self, {key}=None):\n        self.{key} = {key}\n"
    script = f'import json\n\n{noun} = json.loads(text)\nassert {noun}["{key}"] != []\n'
    return rng.choice([function, loop, klass, script])


def _javascript(rng: Random) -> str:
    noun, key, number = rng.choice(_NOUNS), rng.choice(_KEYS), rng.randrange(99)
    fetch = f"const {noun} = await fetch(`/api/${{{key}}}`);\nconsole.log({noun}.{key});\n"
    function = f"function {noun}({key}) {{\n  return {key} === null ? [] : {key}.map((x) => x * 2);\n}}\n"
    program = f'int main(void) {{\n    int {noun} = {number};\n    printf("%d\\n", {noun});\n    return 0;\n}}\n'
    return rng.choice([fetch, function, f"#include <stdio.h>\n{program}"])


def _query(rng: Random) -> str:
    shown, kept, sorting = rng.sample(_KEYS, 3)
    selection = f"SELECT {shown} FROM {rng.choice(_NOUNS)}s WHERE {kept} >= {rng.randrange(100)}"
    return f"{selection} ORDER BY {sorting} DESC LIMIT {rng.randrange(1, 50)};"


def _markdown(rng: Random) -> str:
    title = f"## {rng.choice(_ADJECTIVES).title()} {rng.choice(_NOUNS)}"
    bullets = [rng.choice(["-", "*", "1."]) for _ in range(rng.randrange(2, 5))]
    points = "\n".join(f"{bullet} **{rng.choice(_NOUNS)}**: {_sentence(rng)}" for bullet in bullets)
    return f"{title}\n\n{points}\n\n```json\n{_json_document(rng)}\n```"


def _markup(rng: Random) -> str:
    link = f'<a href="https://example.com/{rng.choice(_NOUNS)}">{_sentence(rng)}</a>'
    return f'<div class="{rng.choice(_NOUNS)}">\n  {link}\n</div>'


def _foreign(rng: Random) -> str:
    return " ".join(rng.sample(_OTHER_SCRIPTS, 3))


def _question(rng: Random) -> str:
    noun, sentence = rng.choice(_NOUNS), _sentence(rng)
    return rng.choice(
        [
            f"What is the {rng.choice(_ADJECTIVES)} {noun} in {rng.choice(_CITIES)}?",
            f"Write a short text about a {noun}.",
            f"Extract the {rng.choice(_KEYS)} and the {rng.choice(_KEYS)} as JSON: {sentence}",
            f"How many {noun}s are there? {sentence}",
            f"Classify this message: {sentence}",
            f"When did {rng.choice(_NAMES)} visit the {noun}?",
        ]
    )


def _thought(rng: Random) -> str:
    return rng.choice(
        [
            f"The user asks about the {rng.choice(_NOUNS)}.",
            f"I need the {rng.choice(_KEYS)} and the {rng.choice(_KEYS)}.",
            f"This is a simple question about {rng.choice(_CITIES)}. I can answer directly.",
            f"Okay, so {_sentence(rng)}",
            f"Let me check the {rng.choice(_NOUNS)}. {_sentence(rng)}",
        ]
    )
