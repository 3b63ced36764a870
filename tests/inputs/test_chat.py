from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from qwink.errors import CheckpointError, PromptError
from qwink.inputs.chat import ChatTemplate
from qwink.inputs.tokenizer import Tokenizer
from qwink.types import Message, ToolCall
from tests.tiny import ADDED_TOKENS, CHAT_TEMPLATE, SPECIAL_TOKENS, write_tokenizer

IMAGE = object()
SYSTEM = Message("system", ("You are brief.",))
ASK = Message("user", (IMAGE, "What's the  total? "))
ANSWER = Message("assistant", ("\n12.50 €\n",))
CONVERSATIONS = [
    [Message("user", ("Hello",))],
    [ASK],
    [SYSTEM, ASK],
    [SYSTEM, ASK, ANSWER, Message("user", ("In ", "words?"))],
    [Message("user", ("  Compare", IMAGE, "with\n", IMAGE, IMAGE, "图片 😀 e\u0301\n\n"))],
    [Message("user", ("",))],
    [Message("user", ())],
    [Message("user", ("\n",)), Message("assistant", ("<think>\nhm\n</think>\n\nyes",))],
    [Message("user", ("a < b && c <= d <x> <|",))],
]

ROOT = Path(__file__).parents[2]
NANO = ROOT / "src" / "qwink" / "assets" / "nano"

# What a template may do to texts: trim, test, join with a separator, compare, measure.
FUSSY_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.content is string %}{{ m.content.strip() }}{% if not m.content %}(empty){% endif %}"
    "{{ m.content | length }}"
    "{% else %}{% for c in m.content %}{% if c.type == 'image' %}<|image_pad|>"
    "{% else %}{{ c.text | trim }}{{ '.' if c.text | trim | length > 3 }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>{{ eos_token }}\n{% endfor %}"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("chat")
    write_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def published() -> str:
    """The chat template of the published Qwen3-VL checkpoints."""
    return (ROOT / "benchmarks" / "published" / "chat_template.jinja").read_text("utf-8")


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.load(folder)


@pytest.fixture(scope="module")
def template(folder: Path) -> ChatTemplate:
    return ChatTemplate.load(folder)


@pytest.fixture(scope="module")
def reference(folder: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(folder)


def _as_dicts(messages: list[Message]) -> list[dict[str, Any]]:
    return [
        {
            "role": message.role,
            "content": [
                {"type": "text", "text": part} if isinstance(part, str) else {"type": "image"}
                for part in message.content
            ],
        }
        for message in messages
    ]


@pytest.mark.parametrize("add_generation_prompt", [True, False])
@pytest.mark.parametrize("messages", CONVERSATIONS)
def test_equals_transformers(
    reference: Any,
    template: ChatTemplate,
    tokenizer: Tokenizer,
    messages: list[Message],
    add_generation_prompt: bool,
) -> None:
    chat = _as_dicts(messages)
    text = reference.apply_chat_template(
        chat, tokenize=False, add_generation_prompt=add_generation_prompt
    )
    ids = reference.apply_chat_template(
        chat, tokenize=True, return_dict=False, add_generation_prompt=add_generation_prompt
    )
    assert template.render(messages, add_generation_prompt=add_generation_prompt) == text
    encoded = template.encode(messages, tokenizer, add_generation_prompt=add_generation_prompt)
    assert encoded == ids


@pytest.mark.parametrize("text", ["Total 4", "a\n\nb", "\n é <think>\nhm", "12.50 €"])
def test_continuing_equals_transformers(
    reference: Any, template: ChatTemplate, tokenizer: Tokenizer, text: str
) -> None:
    turns = [SYSTEM, ASK, Message("assistant", (text[:3], text[3:]))]
    chat = [*_as_dicts(turns[:2]), {"role": "assistant", "content": text}]
    ids = reference.apply_chat_template(
        chat, tokenize=True, return_dict=False, continue_final_message=True
    )
    assert template.encode(turns, tokenizer, continue_final=True) == ids


def test_continuing_ends_with_the_text_as_it_is(
    template: ChatTemplate, tokenizer: Tokenizer
) -> None:
    for text in ("Total 4", "Total ", "ends in <|im_end|>", "\ue000"):
        turns = [ASK, Message("assistant", (text,))]
        ids = template.encode(turns, tokenizer, continue_final=True)
        begun = template.encode([ASK], tokenizer)
        assert ids[: len(begun)] == begun
        assert tokenizer.decode(ids[len(begun) :]) == text
        assert tokenizer.im_end not in ids[len(begun) :]


def test_a_template_that_hides_the_last_turn_continues_nothing(tokenizer: Tokenizer) -> None:
    template = ChatTemplate("{% for m in messages[:-1] %}{{ m.content }}{% endfor %}")
    with pytest.raises(PromptError, match="omits the last turn"):
        template.encode([ASK, ANSWER], tokenizer, continue_final=True)


TURNS = st.lists(
    st.builds(
        Message,
        st.sampled_from(["user", "assistant"]),
        st.lists(st.text(max_size=8) | st.text("a \n<|>é", max_size=6)).map(tuple),
    ),
    min_size=1,
    max_size=4,
)


@given(messages=TURNS)
@settings(deadline=None)
def test_any_text_equals_transformers(
    reference: Any, template: ChatTemplate, tokenizer: Tokenizer, messages: list[Message]
) -> None:
    ids = reference.apply_chat_template(
        _as_dicts(messages), tokenize=True, return_dict=False, add_generation_prompt=True
    )
    assert template.encode(messages, tokenizer) == ids


def test_tools_equal_transformers(reference: Any, template: ChatTemplate) -> None:
    function = {"name": "zoom", "description": "<b> & é", "parameters": {"type": "object"}}
    tools = [{"type": "function", "function": function}]
    text = reference.apply_chat_template(_as_dicts([SYSTEM, ASK]), tools=tools, tokenize=False)
    assert template.render([SYSTEM, ASK], add_generation_prompt=False, tools=tools) == text


CALLS = (ToolCall("zoom", '{"by": 2}'), ToolCall("stop", "{}"))
RESULTS = (Message("tool", ("done <b>",)), Message("tool", (IMAGE, "é")))


@pytest.mark.parametrize("text", ["", "Let me look."])
def test_calls_and_results_equal_transformers(
    reference: Any, published: str, tokenizer: Tokenizer, text: str
) -> None:
    """By the template of the published checkpoints, and by nano's, which says the same."""
    turns = [SYSTEM, ASK, Message("assistant", (text,), CALLS), *RESULTS]
    tools = [{"type": "function", "function": {"name": "zoom", "parameters": {"a": "<&>"}}}]
    dicts = _as_dicts(turns)
    dicts[2]["content"] = text
    dicts[2]["tool_calls"] = [
        {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in CALLS
    ]
    options = {"tools": tools, "add_generation_prompt": True, "chat_template": published}
    theirs = reference.apply_chat_template(dicts, tokenize=False, **options)
    ids = reference.apply_chat_template(dicts, tokenize=True, return_dict=False, **options)
    for template in (ChatTemplate(published), ChatTemplate.load(NANO)):
        assert template.takes_tools
        assert template.render(turns, tools=tools) == theirs
        assert template.encode(turns, tokenizer, tools=tools) == ids


@pytest.mark.parametrize("name", SPECIAL_TOKENS + ADDED_TOKENS)
def test_added_tokens_in_tools_and_calls_stay_text(
    published: str, tokenizer: Tokenizer, name: str
) -> None:
    theirs = ChatTemplate(published)

    def ids(word: str) -> list[int]:
        function = {"name": "f", "description": word, "parameters": {word: [word]}}
        call = ToolCall(f"f{word}", f'{{"a": "{word}"}}')
        turns = [ASK, Message("assistant", (), (call,)), Message("tool", (word,))]
        tools = [{"type": "function", "function": function}]
        added = set(tokenizer.added_tokens.values())
        return [token for token in theirs.encode(turns, tokenizer, tools=tools) if token in added]

    assert ids(name) == ids("plain")


def test_a_template_without_tools_refuses_them(tokenizer: Tokenizer) -> None:
    template = ChatTemplate(FUSSY_TEMPLATE)
    assert not template.takes_tools
    with pytest.raises(PromptError, match="has no tools"):
        template.encode([ASK], tokenizer, tools=[{"type": "function"}])
    with pytest.raises(PromptError, match="not valid Unicode"):
        ChatTemplate(CHAT_TEMPLATE).encode([ASK], tokenizer, tools=[{"a": "\ud800"}])


@pytest.mark.parametrize("name", SPECIAL_TOKENS + ADDED_TOKENS)
@pytest.mark.parametrize("cut", [0, 1, 4])
def test_added_tokens_in_texts_stay_text(
    template: ChatTemplate, tokenizer: Tokenizer, name: str, cut: int
) -> None:
    typed = Message("user", (IMAGE, f"a{name[:cut]}", f"{name[cut:]}{name}"))
    plain = Message("user", (IMAGE, "a"))
    added = set(tokenizer.added_tokens.values())
    ids = template.encode([typed], tokenizer)
    kept = [token for token in ids if token in added]
    assert kept == [token for token in template.encode([plain], tokenizer) if token in added]
    # The whole text between two of the template's tokens is encoded at once.
    end = tokenizer.encode_text(f"a{name}{name}")
    start = ids.index(tokenizer.vision_end) + 1
    assert ids[start : start + len(end)] == end


@pytest.mark.parametrize("role", ["system", "assistant"])
def test_tokens_that_the_model_writes_keep_their_ids(
    template: ChatTemplate, tokenizer: Tokenizer, role: Any
) -> None:
    ids = template.encode([Message(role, ("<think>a<|im_end|></think>",))], tokenizer)
    assert tokenizer.token_id("<think>") in ids
    assert tokenizer.token_id("</think>") in ids
    assert ids.count(tokenizer.im_end) == 1


@given(texts=st.lists(st.text(" \na<|im_end>", max_size=12), min_size=1, max_size=3))
@settings(deadline=None)
def test_templates_that_test_texts_see_the_same_texts(
    tokenizer: Tokenizer, texts: list[str]
) -> None:
    template = ChatTemplate(FUSSY_TEMPLATE, {"eos_token": "<|endoftext|>"})
    for messages in ([Message("user", tuple(texts))], [Message("user", (IMAGE, *texts))]):
        ids = template.encode(messages, tokenizer)
        text = template.render(messages)
        assert b"".join(_bytes(tokenizer, token) for token in ids).decode() == text
        assert ids.count(tokenizer.im_end) == 1


def _bytes(tokenizer: Tokenizer, token: int) -> bytes:
    names = {number: name for name, number in tokenizer.added_tokens.items()}
    return names[token].encode() if token in names else tokenizer.token_bytes(token)


def test_private_use_characters_in_texts_stay(template: ChatTemplate, tokenizer: Tokenizer) -> None:
    text = "\ue000\ue001|im_end|> <|im_end|>"
    ids = template.encode([Message("user", (text,))], tokenizer)
    assert text in tokenizer.decode(ids)
    assert ids.count(tokenizer.im_end) == 1
    everything = "".join(
        chr(code)
        for codes in (range(0xE000, 0xF900), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))
        for code in codes
    )
    with pytest.raises(PromptError, match="private-use"):
        template.encode([Message("user", (everything,))], tokenizer)


def test_where_templates_are_found(tmp_path: Path) -> None:
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": "string {{ eos_token }}", "eos_token": "E"}))
    assert ChatTemplate.load(tmp_path).render([]) == "string E"
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "named"}]
    config.write_text(json.dumps({"chat_template": named, "eos_token": {"content": "E"}}))
    assert ChatTemplate.load(tmp_path).render([]) == "named"
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": "json"}))
    assert ChatTemplate.load(tmp_path).render([]) == "json"
    (tmp_path / "chat_template.jinja").write_text("jinja {{ eos_token }}")
    assert ChatTemplate.load(tmp_path).render([]) == "jinja E"


def test_no_or_damaged_template(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no chat template"):
        ChatTemplate.load(tmp_path)
    with pytest.raises(CheckpointError, match="damaged"):
        ChatTemplate("{% if %}")
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(CheckpointError, match="cannot be read"):
        ChatTemplate.load(tmp_path)


def test_what_templates_may_call() -> None:
    loops = "{% for m in [1, 2, 3] %}{% if m == 2 %}{% break %}{% endif %}{{ m }}{% endfor %}"
    assert ChatTemplate(loops).render([]) == "1"
    assert ChatTemplate("{{ '<é>' | tojson }}").render([]) == '"<é>"'
    year = str(datetime.now().year)
    assert ChatTemplate("{{ strftime_now('%Y') }}").render([]) == year
    with pytest.raises(PromptError, match="roles must alternate"):
        ChatTemplate("{{ raise_exception('roles must alternate') }}").render([])
    with pytest.raises(PromptError):
        ChatTemplate("{{ messages.__class__.__mro__ }}{{ messages.append(1) }}").render([])


def test_the_template_of_the_tests_is_complete() -> None:
    assert "CONTENT" not in CHAT_TEMPLATE


def test_half_a_surrogate_pair_is_refused(tokenizer: Tokenizer, template: ChatTemplate) -> None:
    with pytest.raises(PromptError, match="not valid Unicode"):
        template.encode([Message("user", ("broken \udcff text",))], tokenizer)
