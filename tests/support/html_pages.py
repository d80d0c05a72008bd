"""Pages of a run: their elements, and that nothing in them is loaded from elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any


class Parsed(HTMLParser):
    """Every element with its attributes, and the text of the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.unclosed: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "path", "rect", "br", "img", "link", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.unclosed.append(tag)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def check_self_contained(text: str) -> None:
    """Nothing is loaded, nothing is sent, and scripts are ours."""
    parsed = Parsed(text)
    assert not parsed.open and not parsed.unclosed
    for tag, attributes in parsed.elements:
        assert tag != "img" or str(attributes["src"]).startswith("data:image/png;base64,")
        assert tag not in ("link", "iframe", "object", "embed", "base", "form", "video", "audio", "a")
        names = attributes.keys() - ({"src"} if tag == "img" else set())
        assert not {"src", "href", "srcset", "action", "xlink:href", "background", "poster"} & names
        assert not [name for name in attributes if name.startswith("on")]
        if tag == "style" or "style" in attributes:
            assert "url(" not in (attributes.get("style") or "")
    scripts = [attributes.get("type") for tag, attributes in parsed.elements if tag == "script"]
    assert scripts.count(None) == 1 and set(scripts) <= {None, "application/json"}
    assert not re.search(r"@import|url\(|https?://", text)
    assert "default-src 'none'" in text
