"""qwink behind a real nginx: under a path, and with a plain proxy_pass."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from tests.deploy.nginx import example, proxy
from tests.server.process import Serve, Server, ask, image, png, starter, user

NAME = "pictures.example"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nano-home")


@pytest.fixture
def serve(home: Path, tmp_path: Path) -> Iterator[Serve]:
    yield from starter(Path("nano"), home, tmp_path)


@pytest.fixture(scope="module")
def server(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    servers = starter(Path("nano"), home, tmp_path_factory.mktemp("nginx"))
    yield next(servers)().wait_ready()
    next(servers, None)


def test_the_example_serves_page_and_api_under_a_path(server: Server, tmp_path: Path) -> None:
    with proxy(example(server.address), tmp_path / "nginx") as address:
        with httpx.Client(base_url=f"{address}/qwink/", trust_env=False, timeout=60) as http:
            page = http.get("").raise_for_status().text
            addresses = re.findall(r'(?:href|src)="([^"#]+)"', page)
            assert any("app.js" in found for found in addresses)
            for found in addresses:
                assert http.get(found).status_code == 200, found
            # As the page on https or localhost sends it.
            headers = {"Origin": address, "Sec-Fetch-Site": "same-origin"}
            sent = http.post("v1/images", content=png(1, 900), headers=headers)
            assert sent.status_code == 200  # 2 MB, above nginx's own limit
            foreign = headers | {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}
            refused = http.post("v1/images", content=png(1), headers=foreign)
            assert refused.json()["error"]["code"] == "origin_not_allowed"
        with openai.OpenAI(base_url=f"{address}/qwink/v1", api_key="none") as client:
            stream = ask(client, user(image(1), "What is it?"), model="nano", stream=True)
            assert list(stream)


@pytest.mark.parametrize("header", ["", "proxy_set_header Host $host;"])
def test_a_plain_proxy_pass(serve: Serve, tmp_path: Path, header: str) -> None:
    """The page's name, allowed once, is accepted as Host and as the page's origin."""
    server = serve("--allow-host", NAME).wait_ready()
    location = f"location / {{ proxy_pass {server.address}; {header} }}"
    with (
        proxy(location, tmp_path / "nginx") as address,
        httpx.Client(base_url=address, trust_env=False, timeout=60) as http,
    ):
        headers = {"Host": NAME, "Origin": f"http://{NAME}"}  # plain HTTP: no Sec-Fetch-Site
        assert http.get("/", headers=headers).status_code == 200
        assert http.post("/v1/images", content=png(1), headers=headers).status_code == 200
        foreign = headers | {"Origin": "http://evil.example"}
        assert http.post("/v1/images", content=png(1), headers=foreign).status_code == 403
        large = http.post("/v1/images", content=png(1, 900), headers=headers)
        assert large.status_code == 413  # nginx's own, which the page explains
        assert "json" not in large.headers["content-type"]
    assert server.stop() == 0


def test_without_a_word_about_the_name_it_is_refused(server: Server, tmp_path: Path) -> None:
    location = f"location / {{ proxy_pass {server.address}; }}"
    with proxy(location, tmp_path / "nginx") as address:
        headers = {"Host": NAME, "Origin": f"http://{NAME}"}
        refused = httpx.post(f"{address}/v1/images", content=png(1), headers=headers)
        assert refused.status_code == 403
        assert "--allow-host" in refused.json()["error"]["message"]
