"""Display and accessibility of the page: boxes, Markdown, languages, colours, small screens."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from typing import Any

import PIL.Image
import pytest
from playwright.sync_api import expect

from qwink.server.page import STATIC
from tests.page.conftest import MakeVisit
from tests.page.visit import Visit, axe_source, file_of, line, receipt, shapes
from tests.server.process import Server

PHONE = {"width": 390, "height": 844}
SMALL_PHONE = {"width": 320, "height": 640}
FOUND = [
    {"bbox_2d": [94, 214, 422, 762], "label": "red circle"},
    {"bbox_2d": [500, 381, 734, 786], "label": "blue rectangle"},
    {"bbox_2d": [750, 333, 953, 786], "label": "yellow triangle"},
]
MARKDOWN = """# Invoice
**Total** *due*: `42.50` ~~43~~

| item | price |
|---|---:|
| Tea \\| green | 4.50 |

<table><tr><th colspan="2" onclick="window.hacked = 4">HTML</th></tr>
<tr><td style="color: red">a</td><td align="center">b<script>window.hacked = 5</script></td></tr>
</table>

$E = mc^2$ costs $5 and $6.

$$\\frac{1}{2}$$

1. one
   - inner
2. two

> said

```html
<b>code</b>
```
<script>window.hacked = 1</script> <img src=x onerror="window.hacked = 2">
[good](https://example.org/a) [bad](javascript:window.hacked=3) ![pixel](https://example.org/p.png)
2 * 3 * 4 and snake_case_name
"""


def test_boxes_are_drawn_and_copied(visit: Visit) -> None:
    visit.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visit.answer_with(f"Here they are:\n```json\n{json.dumps(FOUND)}\n```")
    visit.pick(shapes())
    visit.page.click("[data-preset=locate]")
    visit.ask()
    turn = visit.answered()
    picture, boxes = turn.locator(".boxes-stage img"), turn.locator(".boxes-layer rect")
    expect(boxes).to_have_count(3)
    frame, box = picture.bounding_box(), boxes.first.bounding_box()
    assert frame is not None
    assert box is not None
    assert abs(box["x"] - frame["x"] - 0.094 * frame["width"]) < 4
    assert abs(box["height"] - (0.762 - 0.214) * frame["height"]) < 8
    expect(turn.locator(".tag")).to_have_text([str(one["label"]) for one in FOUND])
    expect(turn.locator(".text")).to_contain_text("Here they are:")
    visit.shoot("boxes")
    turn.get_by_role("button", name="Copy 0–1000").click()
    expect(turn.get_by_role("button", name="Copied")).to_be_visible()
    assert json.loads(visit.page.evaluate("navigator.clipboard.readText()")) == FOUND
    turn.get_by_role("button", name="Copy pixels").click()
    expect(turn.get_by_role("button", name="Copied")).to_have_count(2)
    first = json.loads(visit.page.evaluate("navigator.clipboard.readText()"))[0]
    assert first == {"bbox_2d": [60, 90, 270, 320], "label": "red circle"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"bbox_2d": [1, 2, 3, 4]}', [{"label": "", "box": [1, 2, 3, 4]}]),
        ('[{"bbox_2d": [9, 8, 3, 2000], "label": "a"}, {"bb', [[3, 8, 9, 1000]]),
        ('{"point_2d": [5, 6], "label": "dot"}', [[5, 6, 5, 6]]),
        ('{"bbox_2d": [1, 2, "x", 4]} {"bbox_2d": [1]} [1, 2, 3, 4] {"a": 1}', []),
    ],
)
def test_invalid_boxes_are_ignored(visit: Visit, text: str, expected: list[Any]) -> None:
    script = "async (text) => (await import('/static/boxes.js')).parse(text)"
    found = visit.page.evaluate(script, text)
    assert [one["box"] for one in found] == [
        one["box"] if isinstance(one, dict) else one for one in expected
    ]


def test_markdown_is_shown_and_nothing_in_it_runs(visit: Visit) -> None:
    visit.answer_with(MARKDOWN, reason="length")
    visit.pick(line())
    visit.ask("Convert this.")
    turn = visit.answered()
    text = turn.locator(".text")
    expect(text.locator("h3")).to_have_text("Invoice")
    expect(text.locator("td")).to_have_text(["Tea | green", "4.50", "a", "bwindow.hacked = 5"])
    assert text.locator("td").nth(1).get_attribute("align") == "right"
    assert text.locator("th").nth(2).get_attribute("colspan") == "2"
    assert text.locator("[onclick], [style*=red]").count() == 0
    expect(text.locator("math")).to_have_count(2)
    expect(text).to_contain_text("costs $5 and $6.")
    expect(text.locator("ol > li > ul > li")).to_have_text("inner")
    expect(text.locator("pre code")).to_have_text("<b>code</b>\n")
    visit.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    text.locator(".code").get_by_role("button", name="Copy").click()
    expect(text.get_by_role("button", name="Copied")).to_be_visible()
    assert visit.page.evaluate("navigator.clipboard.readText()") == "<b>code</b>"
    for name, words in (("strong", "Total"), ("em", "due"), ("del", "43"), ("blockquote", "said")):
        expect(text.locator(name)).to_have_text(words)
    expect(text).to_contain_text("<script>window.hacked = 1</script>")
    expect(text).to_contain_text("2 * 3 * 4 and snake_case_name")
    assert text.locator("a").evaluate_all("all => all.map((a) => a.href)") == [
        "https://example.org/a"
    ]
    assert text.locator("img, script").count() == 0
    assert visit.page.evaluate("window.hacked") is None
    expect(turn.locator(".remark")).to_contain_text("It stopped at the length limit")


def test_presets_are_edited_and_remembered(visit: Visit) -> None:
    page = visit.page
    page.get_by_role("radio", name="Describe").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("radio", name="Read text")).to_be_focused()
    expect(page.locator("#question")).to_have_value("Read the text.")
    page.click("#edit")
    page.get_by_label("Name").fill("Total")
    page.get_by_label("Question", exact=True).last.fill("What is the total?")
    page.locator("#preset-dialog").get_by_label("Longest answer").fill("9")
    page.get_by_role("button", name="Save").click()
    page.reload()
    visit.ready()
    expect(page.get_by_role("radio", name="Total")).to_have_attribute("aria-checked", "true")
    visit.pick(line())
    visit.ask()
    visit.answered()
    asked = visit.asked()[0]
    assert (asked["task"], asked["max_tokens"], asked["temperature"]) == ("ocr", 9, 0)
    assert asked["messages"][0]["content"][-1]["text"] == "What is the total?"
    page.click("#edit")
    page.get_by_role("button", name="Reset").click()
    expect(page.get_by_role("radio", name="Read text")).to_be_visible()


def test_chinese(visit_of: MakeVisit, server: Server) -> None:
    visit = visit_of(server, locale="zh-CN").ready()
    page = visit.page
    expect(page.get_by_role("heading", name="看图提问")).to_be_visible()
    expect(page.locator("html")).to_have_attribute("lang", "zh-Hans")
    visit.pick(receipt())
    page.click("[data-preset=read]")
    expect(page.locator("#question")).to_have_value("读出图中的文字。")
    visit.ask("Read the text.")
    expect(visit.answered().locator(".stages")).to_contain_text("预填充")
    visit.shoot("chinese")
    page.select_option("#language", "en")
    expect(page.locator("html")).to_have_attribute("lang", "en")
    page.reload()
    page.get_by_role("button", name="New conversation").click()
    expect(page.get_by_role("heading", name="Ask a picture")).to_be_visible()


def test_all_languages_have_all_texts_and_placeholders(visit: Visit) -> None:
    languages: dict[str, dict[str, str]] = visit.page.evaluate("""async () => {
        const { LANGUAGES } = await import('/static/locales/languages.js');
        const texts = ({ code }) => import(`/static/locales/${code}.js`);
        return Object.fromEntries(await Promise.all(
            LANGUAGES.map(async (one) => [one.code, (await texts(one)).default])));
    }""")
    assert languages.keys() == {path.stem for path in (STATIC / "locales").glob("??.js")}

    def named(texts: dict[str, str]) -> dict[str, list[str]]:
        return {key: sorted(set(re.findall(r"\{\w+\}", text))) for key, text in texts.items()}

    english = languages.pop("en")
    for code, texts in languages.items():
        assert named(texts) == named(english), code
        assert [key for key in english if english[key] and not texts[key]] == [], code


def test_dark_theme_of_the_system_and_by_choice(visit_of: MakeVisit, server: Server) -> None:
    visit = visit_of(server, color_scheme="dark").ready()
    page = visit.page
    shade = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(shade) == "rgb(19, 22, 21)"
    page.get_by_role("button", name="Colours: system").click()
    assert page.evaluate(shade) == "rgb(248, 247, 243)"
    page.get_by_role("button", name="Colours: light").click()
    page.reload()
    visit.ready()
    assert page.evaluate(shade) == "rgb(19, 22, 21)"
    expect(page.get_by_role("button", name="Colours: dark")).to_be_visible()
    visit.answer_with(f"```json\n{json.dumps(FOUND)}\n```")
    visit.pick(shapes())
    page.click("[data-preset=locate]")
    visit.ask()
    visit.answered()
    visit.shoot("dark")


def test_a_phone(visit_of: MakeVisit, server: Server) -> None:
    visit = visit_of(server, viewport=PHONE, has_touch=True, is_mobile=True).ready()
    page = visit.page
    expect(page.get_by_role("button", name="Take a photo")).to_be_visible()
    assert page.locator("#camera").get_attribute("capture") == "environment"
    visit.shoot("phone-start")
    wide = "document.documentElement.scrollWidth"
    assert page.evaluate(wide) == PHONE["width"]
    visit.pick(receipt(), shapes())
    visit.shoot("phone-pictures")
    assert page.evaluate(wide) == PHONE["width"]
    page.click("[data-preset=read]")
    visit.ask()
    visit.answered()
    assert page.evaluate(wide) == PHONE["width"]
    visit.shoot("phone")


def test_libraries_are_what_their_list_says() -> None:
    vendor = STATIC / "vendor"
    listed = json.loads((vendor / "vendor.json").read_text())
    for one in listed:
        content = (vendor / one["file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == one["sha256"], one["file"]
        assert (vendor / f"LICENSE.{one['package']}").is_file()
    others = {path.name for path in vendor.iterdir()} - {one["file"] for one in listed}
    assert others == {"vendor.json", *(f"LICENSE.{one['package']}" for one in listed)}


JSON = {"shop": "Tea house", "items": [{"name": "Tea", "price": 4.5}, {"name": "Cake", "price": 3}]}


def test_json_as_a_table_and_a_tree(visit: Visit) -> None:
    visit.answer_with(f"```json\n{json.dumps(JSON)}\n```")
    visit.ask("List the items.")
    shown = visit.answered().locator(".json")
    expect(shown.locator("th")).to_have_text(["name", "price"])
    expect(shown.locator("td")).to_have_text(["Tea", "4.5", "Cake", "3"])
    shown.get_by_role("button", name="Tree").click()
    expect(shown.locator(".tree > ul > li").first).to_have_text("shop Tea house")
    shown.get_by_text("1 2 fields").click()
    expect(shown.locator(".tree")).to_contain_text("name Tea")
    visit.shoot("json")


def test_labels_lie_inside_the_picture_and_do_not_overlap(visit: Visit) -> None:
    found = [{"bbox_2d": [0, 0, 30, 30], "label": f"a long label {n}"} for n in range(3)]
    found.append({"point_2d": [999, 999], "label": "corner"})
    visit.answer_with(json.dumps(found))
    visit.pick(file_of(PIL.Image.new("RGB", (3000, 60), "#ccc")))
    visit.ask("Locate.")
    turn = visit.answered()
    stage = turn.locator(".boxes-stage").bounding_box()
    assert stage is not None
    assert stage["height"] >= 150  # high enough for labels
    places = [tag.bounding_box() for tag in turn.locator(".tag").all()]
    for number, one in enumerate(places):
        assert one is not None
        assert stage["x"] - 1 <= one["x"]
        assert one["x"] + one["width"] <= stage["x"] + stage["width"] + 1
        for other in places[:number]:
            assert other is not None
            apart = one["x"] >= other["x"] + other["width"] - 1
            assert apart or abs(one["y"] - other["y"]) >= one["height"] - 1
    turn.locator(".found li").first.hover()
    expect(turn.locator(".boxes-layer rect").first).to_have_class(re.compile("lit"))


def test_a_picture_is_enlarged_zoomed_and_moved(visit: Visit) -> None:
    visit.answer_with(json.dumps(FOUND))
    visit.pick(shapes())
    visit.ask("Locate.")
    visit.answered().get_by_role("button", name="Enlarge", exact=True).click()
    page = visit.page
    viewer = page.locator("dialog.viewer")
    scale, frame = viewer.locator("output"), viewer.locator(".viewer-frame")
    before = scale.text_content()
    page.keyboard.press("+")
    page.keyboard.press("+")
    expect(scale).not_to_have_text(before or "")
    at = frame.evaluate("one => one.scrollLeft")
    box = frame.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 300, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 150)
    page.mouse.up()
    assert frame.evaluate("one => one.scrollLeft") == pytest.approx(at + 100, abs=2)
    visit.shoot("viewer")
    page.keyboard.press("Escape")
    expect(viewer).to_have_count(0)


def test_nothing_overlaps_on_a_small_phone(visit_of: MakeVisit, server: Server) -> None:
    visit = visit_of(server, viewport=SMALL_PHONE, has_touch=True, is_mobile=True).ready()
    page = visit.page
    visit.pick(receipt())
    visit.ask("Read the text.")
    visit.answered()
    page.evaluate("document.documentElement.scrollTop = document.documentElement.scrollHeight")
    visit.shoot("phone-small")
    parts = [page.locator(part) for part in (".brand", "#status", ".tools > :visible")]
    boxes = [one.bounding_box() for part in parts for one in part.all()]
    for number, one in enumerate(boxes):
        assert one is not None
        assert one["x"] >= 0
        assert one["y"] >= 0  # the header stays in sight
        assert one["x"] + one["width"] <= SMALL_PHONE["width"]
        for other in boxes[:number]:
            assert other is not None
            apart = (
                one["x"] >= other["x"] + other["width"]
                or other["x"] >= one["x"] + one["width"]
                or one["y"] >= other["y"] + other["height"]
                or other["y"] >= one["y"] + one["height"]
            )
            assert apart, (one, other)
    expect(page.get_by_role("slider", name="Detail")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == SMALL_PHONE["width"]


def test_the_page_can_be_installed(visit: Visit, server: Server) -> None:
    script = "document.querySelector('link[rel=manifest]').href"
    response = server.http.get(visit.page.evaluate(script))
    assert response.headers["content-type"].startswith("application/manifest+json")
    manifest = response.json()
    assert (manifest["start_url"], manifest["scope"]) == ("../", "../")  # works under a path
    for icon in manifest["icons"]:
        picture = server.http.get(f"{server.address}/static/{icon['src']}")
        assert picture.headers["content-type"].split(";")[0] == icon["type"]
    session = visit.page.context.new_cdp_session(visit.page)
    assert session.send("Page.getAppManifest")["errors"] == []


def test_a_language_is_one_file(visit_of: MakeVisit, server: Server) -> None:
    page = visit_of(server, locale="de-DE").ready().page
    expect(page.get_by_role("heading", name="Ein Bild befragen")).to_be_visible()
    expect(page.locator("#language")).to_have_value("de")
    page.get_by_role("button", name="Tabelle").click()
    expect(page.get_by_role("heading", name="Eine Frage, viele Bilder")).to_be_visible()


def test_size_and_security_headers_of_the_page(visit: Visit, server: Server) -> None:
    visit.page.select_option("#language", "zh")
    expect(visit.page.locator("html")).to_have_attribute("lang", "zh-Hans")
    own = {r.url for r in visit.requests if "/static/" in r.url or r.url == f"{server.address}/"}
    bodies = {url: server.http.get(url) for url in own}
    assert sum(len(gzip.compress(response.content)) for response in bodies.values()) < 120_000
    everything = (path.read_bytes() for path in STATIC.rglob("*") if path.is_file())
    assert sum(len(gzip.compress(content)) for content in everything) < 400_000
    for url, response in bodies.items():
        policy = response.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["cache-control"] == "no-cache"
        again = server.http.get(url, headers={"If-None-Match": response.headers["etag"]})
        assert (again.status_code, "content-security-policy" in again.headers) == (304, True), url
    served = {url.rsplit("/", 1)[1] for url in own}
    assert {"app.js", "zh.js", "base.css", "icon.svg"} <= served


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility(visit_of: MakeVisit, server: Server, scheme: str) -> None:
    source = axe_source()
    visit = visit_of(server, color_scheme=scheme, bypass_csp=True).ready()
    page = visit.page
    page.evaluate(source)

    def check(what: str) -> None:
        found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
        bad = [
            (violation["id"], [node["html"][:200] for node in violation["nodes"]])
            for violation in found["violations"]
            if violation["impact"] in ("serious", "critical")
        ]
        assert bad == [], what

    check("at the start")
    page.click("#edit")
    check("a preset's dialog")
    page.keyboard.press("Escape")
    visit.answer_with(f"```json\n{json.dumps(FOUND)}\n```\n\n{MARKDOWN}")
    visit.pick(shapes())
    check("with a picture")
    visit.ask("Locate the circle.")
    turn = visit.answered()
    turn.locator(".timings > summary").click()
    check("with an answer")


def test_keyboard_alone(visit: Visit) -> None:
    page = visit.page
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the question")).to_be_focused()
    page.keyboard.press("Enter")
    visit.pick(receipt())
    page.locator("#question").focus()
    page.keyboard.press("Control+a")
    page.keyboard.type("Read the text.")
    page.keyboard.press("Shift+Enter")
    expect(page.locator("#question")).to_have_value(re.compile("Read the text.\n"))
    page.keyboard.press("Enter")
    visit.answered()
    visit.shoot("page")
