"""LangChain (structured modes, tools) and instructor against the server, whatever the weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import instructor
import langchain_openai
import openai
import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from pydantic import BaseModel, ConfigDict, Field

from tests.server.process import Server, starter


class Item(BaseModel):
    """What was bought."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["food", "drink", "other"]
    quantity: int = Field(ge=1, le=99)
    paid: bool


@pytest.fixture(scope="module", params=["nano", "random"])
def shaped(
    request: pytest.FixtureRequest,
    tiny_checkpoint: tuple[Path, Any],
    tiny_home: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    servers = starter(tiny_checkpoint[0], tiny_home, tmp_path_factory.mktemp("frameworks"))
    flags = ("--model", "nano") if request.param == "nano" else ()
    yield next(servers)(*flags, "--served-model-name", "tiny", "--engine", "onnx").wait_ready()
    next(servers, None)


@pytest.mark.filterwarnings("ignore")  # of the packages
@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
def test_langchain(shaped: Server, method: str) -> None:
    chat = langchain_openai.ChatOpenAI(
        model="tiny",
        base_url=f"{shaped.address}/v1",
        api_key="none",
        max_retries=0,
        max_completion_tokens=200,
    )
    if method == "json_mode":  # any JSON: without weights that know the schema, it is read as such
        try:
            answer = chat.bind(response_format={"type": "json_object"}).invoke("What was bought?")
        except openai.LengthFinishReasonError:  # random weights may go on for ever
            return
        assert isinstance(json.loads(answer.text), dict)
        return
    found = chat.with_structured_output(Item, method=method).invoke("What was bought?")
    assert isinstance(found, Item)


@pytest.mark.filterwarnings("ignore")
def test_langchains_tools_in_responses(shaped: Server) -> None:
    """A call, and its result on the way back."""
    chat = langchain_openai.ChatOpenAI(
        model="tiny",
        base_url=f"{shaped.address}/v1",
        api_key="none",
        max_retries=0,
        max_completion_tokens=200,
        use_responses_api=True,
    )
    question = HumanMessage("What was bought?")
    answer = chat.bind_tools([Item], tool_choice="Item").invoke([question])
    (call,) = answer.tool_calls
    Item.model_validate(call["args"])
    told = ToolMessage("kept", tool_call_id=call["id"])
    last = chat.bind_tools([Item], tool_choice="none").invoke([question, answer, told])
    written = last.usage_metadata["output_tokens"]
    assert last.text or written == 1, (last.text, written)  # nano may end at once
    assert not last.tool_calls
    first, *rest = chat.bind_tools([Item], tool_choice="Item").stream([question])
    (again,) = sum(rest, first).tool_calls
    assert again["args"] == call["args"]


@pytest.mark.filterwarnings("ignore")
def test_instructor(shaped: Server) -> None:
    """Its default mode, which is a call of a function."""
    with shaped.client() as client:
        found = instructor.from_openai(client).chat.completions.create(
            model="tiny",
            response_model=Item,
            max_retries=0,
            max_tokens=200,
            messages=[{"role": "user", "content": "What was bought?"}],
        )
    assert isinstance(found, Item)
