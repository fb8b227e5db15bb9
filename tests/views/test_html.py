"""HTML with escaping by default: any text is parsed back as the same text."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.printable import printable_lines
from clawblox.views import html
from tests.cli.test_hostile_text import unsafe
from tests.conformance.reports import HOSTILE

TEXTS = st.one_of(
    st.text(),
    st.text("<>&\"'/!-=\r\n\t \x00\x1b\x7f\x9b\u200b\u202e\u2066\u2028\ufeff\ufffe\ud800a"),
    st.sampled_from((HOSTILE, "</p></body>", "<!--", "&lt;&#60;&amp", "<![CDATA[", "</title>")),
)


class Reader(HTMLParser):
    """Reads the elements of a document, with their attributes and texts."""

    def __init__(self, document: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self.comments: list[str] = []
        self._open: list[str] = []
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag != "meta":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in set(self._open):
            self.texts[tag] = self.texts.get(tag, "") + data

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    handle_pi = unknown_decl = handle_comment


@given(TEXTS, TEXTS)
def test_escaped_text_is_parsed_back_unchanged(text: str, name: str) -> None:
    element = html.element("p", html.element("i", name), text, id=name)
    reader = Reader(element.html)
    assert [tag for tag, _ in reader.elements if tag != "b"] == ["p", "i"]
    assert reader.elements[0][1] == {"id": printable_lines(name)}
    assert reader.texts.get("p", "") == printable_lines(name) + printable_lines(text)
    assert reader.texts.get("i", "") == printable_lines(name)
    assert reader.comments == []
    assert not unsafe(element.html)


@given(TEXTS)
def test_page_is_valid_html_with_any_title(title: str) -> None:
    page = html.document(title, html.style("check"), html.element("p", title))
    reader = Reader(page)
    tags = [tag for tag, _ in reader.elements if tag not in ("meta", "b")]
    assert tags == ["html", "title", "style", "body", "p"]
    assert reader.texts.get("title", "") == printable_lines(title)
    assert reader.texts["style"].strip() == html.read_rules("check").strip()
    page.encode()


def test_escapes_of_control_characters_are_marked() -> None:
    assert html.text("\x1b[2J").html == r'<b class="sign">\x1b</b>[2J'
    assert html.text(r"\x1b[2J").html == r"\x1b[2J"


def test_an_attribute_that_could_load_or_run_something_is_refused() -> None:
    for name in ("onclick", "style", "src", "href"):
        with pytest.raises(ValueError, match=f"attributes: must be among .*, not '{name}'"):
            html.element("p", **{name: "x"})


def test_pieces_are_joined_with_text_between_them() -> None:
    joined = html.join(("<", None, html.element("i", "x")), "&")
    assert joined.html == "&lt;&amp;<i>x</i>"


def test_the_policy_of_a_page_forbids_everything_but_its_style() -> None:
    (policy,) = re.findall(
        r'Content-Security-Policy" content="(.*?)"', html.document("x", html.style())
    )
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
