"""Every kind of constraint with the official OpenAI client.

vllm serve MODEL --port 8000
python examples/openai_client.py http://127.0.0.1:8000/v1
"""

import sys

from openai import BadRequestError, OpenAI

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 40},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
COMMAND = """\
root   ::= "turn " ("on" | "off") " the " device
device ::= "lamp" | "heater" | "radio"
"""


def main(base_url: str) -> None:
    """Ask one question under each constraint, stream one of them, and show what a mistake looks like."""
    client = OpenAI(base_url=base_url, api_key="none")
    model = client.models.list().data[0].id

    def ask(question: str, constraint: dict | None = None, **options):
        extra = {"chat_template_kwargs": {"enable_thinking": False}}  # ignored by models that do not think
        if constraint is not None:
            extra["structured_outputs"] = constraint
        messages = [{"role": "user", "content": question}]
        return client.chat.completions.create(
            model=model, messages=messages, max_tokens=100, extra_body=extra, **options
        )

    def show(kind: str, answer) -> None:
        print(f"{kind}: {answer.choices[0].message.content!r} ({answer.choices[0].finish_reason})")

    schema = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    show("json_schema", ask("Maria Silva is 34. Answer in JSON with name and age.", response_format=schema))
    show("json_object", ask("Describe a bicycle as a JSON object.", response_format={"type": "json_object"}))

    show("choice", ask("Good or bad? I loved the cake.", {"choice": ["good", "bad"]}))
    show("regex", ask("When was the treaty signed?", {"regex": "[0-9]{4}-[0-9]{2}-[0-9]{2}"}))

    print("grammar, streamed: ", end="")
    for chunk in ask("It is cold. What should I do?", {"grammar": COMMAND}, stream=True):
        print(chunk.choices[0].delta.content or "", end="", flush=True)
    print()

    try:
        ask("This is refused.", {"regex": "(unclosed"})
    except BadRequestError as refused:
        print(f"refused: HTTP {refused.status_code}, {refused.param}: {refused.body['message']}")


if __name__ == "__main__":
    main(sys.argv[1]) if len(sys.argv) == 2 else sys.exit(__doc__)
