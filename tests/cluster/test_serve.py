"""`qwink serve --ray local` with two replicas, asked through HTTP."""

from __future__ import annotations

import httpx

from tests.server.process import Server, ask, image, png, user


def test_answers_streams_uploads_and_metrics(cluster: Server) -> None:
    with cluster.client() as client:
        stream = ask(client, user(image(1), "What is it?"), model="nano", stream=True)
        chunks = list(stream)
        assert chunks[-1].choices[0].finish_reason
        first = [ask(client, user(image(seed), "What is it?"), model="nano") for seed in range(8)]
        again = [ask(client, user(image(seed), "What is it?"), model="nano") for seed in range(8)]
        assert [one.choices[0].message.content for one in first] == [
            one.choices[0].message.content for one in again
        ]
        origins = [one.model_extra["timings"]["origins"]["encode"] for one in again]
        assert "computed" not in origins
    assert len(replicas(cluster)) == 2
    # Both have pictures.
    counts = {
        line.split('replica="')[1].split('"')[0]
        for line in lines(cluster)
        if line.startswith("qwink_stage_seconds_count") and 'stage="encode"' in line
    }
    assert len(counts) == 2


def test_an_upload_is_found_wherever_a_question_about_it_goes(cluster: Server) -> None:
    http = httpx.Client(base_url=cluster.address, trust_env=False, timeout=60)
    with http, cluster.client() as client:
        ids = [http.post("/v1/images", content=png(seed)).json()["id"] for seed in range(20, 26)]
        found = http.get("/v1/images", params={"id": [*ids, "0" * 64]}).json()["data"]
        assert {one["id"] for one in found} == set(ids)
        assert http.head(f"/v1/images/{ids[0]}").status_code == 200
        assert http.head(f"/v1/images/{'0' * 64}").status_code == 404
        parts = [{"type": "image_url", "image_url": {"url": name}} for name in ids]
        answer = ask(client, user(*parts, "How many?"), model="nano")
        assert answer.choices[0].message.content is not None
        gone = {"type": "image_url", "image_url": {"url": f"qwink:sha256:{'0' * 64}"}}
        refused = http.post(
            "/v1/chat/completions", json={"model": "nano", "messages": [user(gone, "Hi")]}
        )
        assert refused.json()["error"]["code"] == "image_not_found"


def lines(server: Server) -> list[str]:
    return server.http.get(f"{server.address}/metrics").text.splitlines()


def replicas(server: Server) -> set[str]:
    return {
        line.split('replica="')[1].split('"')[0]
        for line in lines(server)
        if line.startswith("qwink_engine_up")
    }
