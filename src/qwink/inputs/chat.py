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
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from qwink.errors import CheckpointError, PromptError
from qwink.inputs.tokenizer import Tokenizer, read_json
from qwink.types import Message

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
        turns = [
            {"role": message.role, "content": _content(message.content)} for message in messages
        ]
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
        **variables: Any,
    ) -> list[int]:
        """The conversation as ids, in which an image is a single `<|image_pad|>`.

        With `continue_final`, the ids end with the text of the last turn, which stays open: the
        answer continues it. `add_generation_prompt` has no effect then.

        Equals Transformers' ids unless a text spells an added token. Such text stays plain text, so
        each `<|image_pad|>` and `<|im_end|>` is the template's. In system and assistant turns this
        holds for special tokens only: there `<think>` and `<tool_call>` become tokens, since the
        model writes them itself.
        """
        texts = [part for message in messages for part in message.content if isinstance(part, str)]
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
        hidden = [
            Message(
                message.role,
                tuple(
                    _hide(part, hide, None if message.role == "user" else spoken)
                    if isinstance(part, str)
                    else part
                    for part in message.content
                ),
            )
            for message in messages
        ]
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
