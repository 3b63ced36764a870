"""A checkpoint's chat template: conversation to text, conversation to ids.

Renders as Transformers' `apply_chat_template` does. The template works on text, in which an
`<|im_end|>` that a user typed looks like the template's. So, before rendering, each character in
user text that can start an added token ("<", for Qwen) is replaced by a character that occurs
nowhere in the conversation. After rendering, every added token in the text is the template's.
Unlike markers around the text, such a replacement survives trimming, emptiness tests and joining:
two texts "<|im_" and "end|>" do not form a token either.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2 import meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from qwink.errors import CheckpointError, PromptError
from qwink.inputs.tokenizer import Tokenizer, read_json
from qwink.types import Message, ToolCall

_PRIVATE_USE = (range(0xE000, 0xF900), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))


class ChatTemplate:
    """A compiled chat template."""

    def __init__(self, source: str, special_tokens: dict[str, str] | None = None) -> None:
        """`special_tokens`: names such as `eos_token` which the template may use.

        Raises CheckpointError when the template is not valid Jinja.
        """
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise CheckpointError(
                f"the chat template is damaged ({error}); download it again"
            ) from None
        self._source = source
        self.takes_tools = "tools" in meta.find_undeclared_variables(environment.parse(source))
        self._special_tokens = special_tokens or {}

    @classmethod
    def load(cls, folder: str | Path) -> ChatTemplate:
        """Reads chat_template.jinja, or the key `chat_template` of chat_template.json or
        tokenizer_config.json: a string, or a list of named templates with one named "default".

        Raises CheckpointError when there is none or it is damaged.
        """
        folder = Path(folder)
        config = read_json(folder / "tokenizer_config.json") or {}
        try:
            source: Any = (folder / "chat_template.jinja").read_text(encoding="utf-8")
        except FileNotFoundError:
            source = (read_json(folder / "chat_template.json") or config).get("chat_template")
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"{folder / 'chat_template.jinja'} cannot be read ({error}); download it again"
            ) from None
        if isinstance(source, list):
            named = {entry.get("name"): entry.get("template") for entry in source}
            source = named.get("default")
        if not isinstance(source, str):
            raise CheckpointError(
                f"{folder} has no chat template; download chat_template.jinja or .json"
            )
        tokens = {key: _spelling(value) for key, value in config.items() if key.endswith("_token")}
        return cls(source, {key: value for key, value in tokens.items() if value is not None})

    def render(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True, **variables: Any
    ) -> str:
        """The conversation as text, as `apply_chat_template(tokenize=False)` gives it.

        Anything but a string in a message's content counts as an image. `variables`, e.g. `tools`,
        are passed to the template. Raises PromptError for a conversation the template refuses.
        """
        turns = [_turn(message) for message in messages]
        names = {**self._special_tokens, "tools": None, "documents": None, **variables}
        try:
            return self._template.render(
                messages=turns, add_generation_prompt=add_generation_prompt, **names
            )
        except (jinja2.TemplateError, TypeError, ValueError, LookupError) as error:
            raise PromptError(
                f"the chat template refuses this conversation ({error}); change its turns"
            ) from None

    def encode(
        self,
        messages: Sequence[Message],
        tokenizer: Tokenizer,
        *,
        add_generation_prompt: bool = True,
        continue_final: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> list[int]:
        """The conversation as ids, in which an image is a single `<|image_pad|>`. `tools` are
        functions that the answer may call, as Transformers and OpenAI describe them.

        With `continue_final`, the ids end with the text of the last turn, which stays open: the
        answer continues it. `add_generation_prompt` has no effect then.

        Equals Transformers' ids unless a text spells an added token. Such text stays plain text, so
        each `<|image_pad|>` and `<|im_end|>` is the template's. In system and assistant turns this
        holds for special tokens only: there `<think>` and `<tool_call>` become tokens, since the
        model writes them itself. It holds for all tokens in tools, in calls and in their results.

        Raises PromptError for a conversation that the template refuses.
        """
        if tools and not self.takes_tools:
            raise PromptError("this model's chat template has no tools; leave them out")
        texts = [part for message in messages for part in message.content if isinstance(part, str)]
        for message in messages:
            texts += [text for call in message.tool_calls for text in (call.name, call.arguments)]
        texts += _strings(tools)
        _check_unicode(texts)
        starts = sorted({name[0] for name in tokenizer.added_tokens if not name[0].isspace()})
        unused = iter(_unused("".join(texts) + self._source))
        end = next(unused, "")
        hide = dict(zip(starts, unused, strict=False))
        if not end or len(hide) < len(starts):
            raise PromptError("the texts contain all private-use characters; remove some of them")
        words = [name for name in tokenizer.added_tokens if name not in tokenizer.special_tokens]
        spoken = re.compile(
            "|".join(map(re.escape, sorted(words, key=len, reverse=True))) or "(?!)"
        )
        hidden = [_hidden_turn(message, hide, spoken) for message in messages]
        variables["tools"] = _hidden(tools, str.maketrans(hide))
        if continue_final:
            last = hidden[-1]
            hidden[-1] = Message(last.role, (*last.content, end))
            text = self.render(hidden, add_generation_prompt=False, **variables)
            if text.count(end) != 1:
                raise PromptError(
                    "the chat template omits the last turn; make it a turn of the user"
                )
            text = text.partition(end)[0]
        else:
            text = self.render(hidden, add_generation_prompt=add_generation_prompt, **variables)
        return tokenizer.encode_template(text, {ord(new): old for old, new in hide.items()})


def _hidden_turn(message: Message, hide: dict[str, str], spoken: re.Pattern[str]) -> Message:
    """The turn with hidden characters in its texts and calls."""
    words = None if message.role in ("user", "tool") else spoken
    content = [
        _hide(part, hide, words) if isinstance(part, str) else part for part in message.content
    ]
    calls = [
        ToolCall(_hide(call.name, hide, None), _hide(call.arguments, hide, None))
        for call in message.tool_calls
    ]
    return Message(message.role, tuple(content), tuple(calls))


def _hidden(value: Any, table: dict[int, str]) -> Any:
    """A value of JSON with hidden characters in all of its texts."""
    if isinstance(value, str):
        return value.translate(table)
    if isinstance(value, Mapping):
        return {key.translate(table): _hidden(inner, table) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden(inner, table) for inner in value]
    return value


def _strings(value: Any) -> list[str]:
    """All texts in a value of JSON, names of fields included."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [*value, *(text for inner in value.values() for text in _strings(inner))]
    if isinstance(value, list | tuple):
        return [text for inner in value for text in _strings(inner)]
    return []


def _hide(text: str, hide: dict[str, str], spoken: re.Pattern[str] | None) -> str:
    """`text` with the characters of `hide` replaced, except at the start of a `spoken` word."""
    table = str.maketrans(hide)
    if spoken is None:
        return text.translate(table)
    pieces, end = [], 0
    for match in spoken.finditer(text):
        word = match.group()
        pieces += [text[end : match.start()].translate(table), word]
        end = match.end()
    return "".join([*pieces, text[end:].translate(table)])


def _check_unicode(texts: Iterable[str]) -> None:
    """Refuse half a surrogate pair, which broken escapes and terminals produce."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        raise PromptError(
            f"a text is not valid Unicode ({error.object[error.start]!r}); remove that character"
        ) from None


def _unused(text: str) -> Iterable[str]:
    """Private-use characters that `text` does not contain."""
    used = set(text)
    return (chr(code) for codes in _PRIVATE_USE for code in codes if chr(code) not in used)


def _turn(message: Message) -> dict[str, Any]:
    """A turn as templates take it."""
    turn = {"role": message.role, "content": _content(message.content)}
    if not message.tool_calls:
        return turn
    functions = [{"name": call.name, "arguments": call.arguments} for call in message.tool_calls]
    calls = [{"type": "function", "function": function} for function in functions]
    return turn | {"tool_calls": calls}


def _content(parts: Sequence[Any]) -> str | list[dict[str, str]]:
    # Texts alone are given as one string: templates of text-only models accept nothing else.
    if all(isinstance(part, str) for part in parts):
        return "".join(parts)
    return [
        {"type": "text", "text": part} if isinstance(part, str) else {"type": "image"}
        for part in parts
    ]


def _spelling(token: Any) -> str | None:
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) else None


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's filter of this name escapes HTML characters.
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)
