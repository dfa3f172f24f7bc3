"""The chat template of the tiny checkpoints: renders what Qwen3.5's own template renders, in our wording and code.

- Everything is ``<|im_start|>role\\n ... <|im_end|>\\n``. Content may be a string or a list of parts.
- Tools are described in the system turn, before the user's system text; calls use the XML-like form.
- Assistant turns after the last real user question keep their reasoning; older ones lose it.
- Tool results are grouped into one user turn. They do not count as a question.
- The generation prompt opens the reasoning, or closes it at once with ``enable_thinking=false``.
"""

CHAT_TEMPLATE = r"""
{%- macro text_of(content, where) -%}
    {%- if content is string -%}
        {{- content -}}
    {%- elif content is defined and content is not none -%}
        {%- for part in content -%}
            {%- if part.text is defined -%}
                {{- part.text -}}
            {%- elif where == 'system' -%}
                {{- raise_exception('A system message holds text only.') -}}
            {%- elif part.type == 'image' or part.image is defined or part.image_url is defined -%}
                {{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
            {%- elif part.type == 'video' or part.video is defined -%}
                {{- '<|vision_start|><|video_pad|><|vision_end|>' -}}
            {%- else -%}
                {{- raise_exception('A content part must be text, image or video.') -}}
            {%- endif -%}
        {%- endfor -%}
    {%- endif -%}
{%- endmacro -%}

{%- macro call_block(call) -%}
    {%- set call = call.function if call.function is defined else call -%}
    {{- '<tool_call>\n<function=' ~ call.name ~ '>\n' -}}
    {%- for name, value in (call.arguments or {}) | items -%}
        {%- set structured = value is mapping or (value is sequence and value is not string) -%}
        {{- '<parameter=' ~ name ~ '>\n' ~ (value | tojson if structured else value | string) ~ '\n</parameter>\n' -}}
    {%- endfor -%}
    {{- '</function>\n</tool_call>' -}}
{%- endmacro -%}

{%- if not messages -%}
    {{- raise_exception('There are no messages.') -}}
{%- endif -%}

{#- The system turn: tools first, then the caller's own text. -#}
{%- set opening = text_of(messages[0].content, 'system') | trim if messages[0].role == 'system' else '' -%}
{%- if tools -%}
    {{- '<|im_start|>system\n# Tools\n\nThese functions can be called:\n\n<tools>' -}}
    {%- for tool in tools -%}
        {{- '\n' ~ (tool | tojson) -}}
    {%- endfor -%}
    {{- '\n</tools>\n\nTo call one, end the reply with a block of exactly this form, and write nothing after it:\n\n'
        ~ '<tool_call>\n<function=name_of_function>\n<parameter=name_of_parameter>\n'
        ~ 'the value, on as many lines as it needs\n</parameter>\n</function>\n</tool_call>\n\n'
        ~ 'Give every required parameter. For several calls, write several blocks. Explanations belong before the '
        ~ 'first block. If no function fits, answer as usual and do not mention functions.' -}}
    {{- ('\n\n' ~ opening if opening else '') ~ '<|im_end|>\n' -}}
{%- elif messages[0].role == 'system' -%}
    {{- '<|im_start|>system\n' ~ opening ~ '<|im_end|>\n' -}}
{%- endif -%}

{#- The last question of a person; user messages that only wrap a tool's result are not questions. -#}
{%- set last = namespace(question=-1) -%}
{%- for message in messages -%}
    {%- set text = text_of(message.content, 'user') | trim if message.role == 'user' else '' -%}
    {%- if message.role == 'user' and not (text.startswith('<tool_response>') and text.endswith('</tool_response>')) -%}
        {%- set last.question = loop.index0 -%}
    {%- endif -%}
{%- endfor -%}
{%- if last.question < 0 -%}
    {{- raise_exception('There is no question of a user among the messages.') -}}
{%- endif -%}

{%- for message in messages -%}
    {%- set text = text_of(message.content, message.role) | trim -%}
    {%- if message.role == 'system' -%}
        {%- if not loop.first -%}
            {{- raise_exception('A system message must come first.') -}}
        {%- endif -%}
    {%- elif message.role == 'user' -%}
        {{- '<|im_start|>user\n' ~ text ~ '<|im_end|>\n' -}}
    {%- elif message.role == 'assistant' -%}
        {%- set reasoning = message.reasoning_content or message.reasoning or '' -%}
        {%- if not reasoning and '</think>' in text -%}
            {%- set reasoning = text.split('</think>')[0].split('<think>')[-1] -%}
            {%- set text = text.split('</think>')[-1].lstrip('\n') -%}
        {%- endif -%}
        {{- '<|im_start|>assistant\n' -}}
        {%- if loop.index0 > last.question -%}
            {{- '<think>\n' ~ (reasoning | trim) ~ '\n</think>\n\n' -}}
        {%- endif -%}
        {{- text -}}
        {%- for call in message.tool_calls or [] -%}
            {{- ('' if loop.first and not text else '\n\n' if loop.first else '\n') ~ call_block(call) -}}
        {%- endfor -%}
        {{- '<|im_end|>\n' -}}
    {%- elif message.role == 'tool' -%}
        {{- '' if loop.previtem and loop.previtem.role == 'tool' else '<|im_start|>user' -}}
        {{- '\n<tool_response>\n' ~ text ~ '\n</tool_response>' -}}
        {{- '' if loop.nextitem and loop.nextitem.role == 'tool' else '<|im_end|>\n' -}}
    {%- else -%}
        {{- raise_exception('Unknown role: ' ~ message.role) -}}
    {%- endif -%}
{%- endfor -%}

{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\n<think>\n' -}}
    {%- if enable_thinking is defined and enable_thinking is false -%}
        {{- '\n</think>\n\n' -}}
    {%- endif -%}
{%- endif -%}
""".lstrip("\n")
