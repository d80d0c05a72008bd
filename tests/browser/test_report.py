"""The pages in a real browser: they draw, their script runs, nothing complains, nothing is asked of the network."""

from __future__ import annotations

import html
import json
import re
import shutil
import struct
import subprocess
import zlib
from dataclasses import dataclass
from pathlib import Path

import pytest

from ostinato.journal.study_record import read_study
from ostinato.report.compare import compare_runs
from ostinato.report.journal_reader import read_run
from ostinato.report.run_page import render_run
from ostinato.report.search_page import render_study
from ostinato.report.text import format_number
from tests.support.journals import loss_at, whole_run
from tests.support.studies import write_study

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
BROWSER = next((found for name in NAMES if (found := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium: apt-get install chromium lets these tests run")

# What a script of the page does when a pointer moves over the first chart. It is added by the test, so the policy of
# the page, which allows its own script only, is taken out of that copy.
HOVER = """<script>
addEventListener("load", () => {
  const plot = document.querySelector(".plot"), box = plot.getBoundingClientRect();
  plot.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + box.width / 2, clientY: box.top + 5}));
  const tip = plot.querySelector(".tip");
  top.document.body.dataset.tip = tip.hidden ? "hidden" : tip.innerText;
  plot.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight"}));
  top.document.body.dataset.next = tip.innerText;
  top.document.body.dataset.wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  top.document.body.dataset.inner = innerWidth;
  const plots = [...document.querySelectorAll("svg")].map(one => one.parentElement);
  top.document.body.dataset.plots = plots.filter(one => one.scrollWidth > one.clientWidth).length;
  const heads = [...document.querySelectorAll("th")];
  top.document.body.dataset.cut = heads.filter(one => one.scrollWidth > one.clientWidth).length;
});
</script></body>"""


@dataclass(frozen=True)
class Seen:
    """What the browser made of a page."""

    text: str  # of the document, or where the picture is
    complaints: list[str]
    requests: list[str]


def browse(page: Path, scratch: Path, *options: str, width: int = 1280, height: int = 1000) -> Seen:
    """Open a page; whatever name it asks for is not found, and whatever it asks for is written down."""
    assert BROWSER is not None
    log = scratch / "net.json"
    done = subprocess.run(
        [
            BROWSER,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-first-run",
            "--hide-scrollbars",
            "--force-device-scale-factor=1",
            "--enable-logging=stderr",
            "--virtual-time-budget=2000",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--log-net-log={log}",
            f"--user-data-dir={scratch / 'profile'}",
            f"--window-size={width},{height}",
            *options,
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return Seen(done.stdout, complaints, requests_in(log, page))


def requests_in(log: Path, page: Path) -> list[str]:
    """The addresses that the page had loaded; the browser's own errands are not its."""
    text = log.read_text(errors="replace").rstrip().rstrip(",")
    try:
        content = json.loads(text)
    except ValueError:  # the browser was quicker than its log
        content = json.loads(text + "]}")
    found = []
    for event in content["events"]:
        told = event.get("params", {})
        initiator = str(told.get("initiator", ""))
        if "url" in told and (initiator.startswith(("file:", "null")) or page.name in str(told)):
            found.append(str(told["url"]))
    return [address for address in found if not address.startswith(page.as_uri())]


def pixels(path: Path) -> tuple[int, int, list[bytes]]:
    """Width, height and rows of a picture, as the browser writes it: eight bits, red, green, blue (and alpha)."""
    data = path.read_bytes()
    width, height, depth, kind = struct.unpack(">IIBB", data[16:26])
    assert depth == 8 and kind in (2, 6)
    size, place, packed = (3 if kind == 2 else 4), 8, b""
    while place < len(data):
        (length,) = struct.unpack(">I", data[place : place + 4])
        if data[place + 4 : place + 8] == b"IDAT":
            packed += data[place + 8 : place + 8 + length]
        place += 12 + length
    raw, stride = zlib.decompress(packed), width * size
    rows, before = [], bytes(stride)
    for row in range(height):
        begin = row * (stride + 1)
        before = unfiltered(raw[begin], raw[begin + 1 : begin + 1 + stride], before, size)
        rows.append(before)
    return width, height, [b"".join(row[at : at + 3] for at in range(0, stride, size)) for row in rows]


def unfiltered(how: int, line: bytes, above: bytes, size: int) -> bytes:
    """One row of a PNG as it was before it was filtered."""
    if how == 0:
        return line
    out = bytearray(line)
    for at in range(len(out)):
        left, up = (out[at - size] if at >= size else 0), above[at]
        corner = above[at - size] if at >= size else 0
        if how == 1:
            guess = left
        elif how == 2:
            guess = up
        elif how == 3:
            guess = (left + up) // 2
        else:
            near = left + up - corner
            distances = (abs(near - left), abs(near - up), abs(near - corner))
            guess = (left, up, corner)[distances.index(min(distances))]
        out[at] = (out[at] + guess) & 255
    return bytes(out)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    whole_run(folder / "a", name="<script>document.body.dataset.evil = 1</script>")
    long = {f"eval_of_a_data_set_with_a_long_name_metric_{number}": 0.5 for number in range(4)}
    whole_run(folder / "b", name="two", until=60).log(60, **long).evaluation(60, **long)
    (folder / "report.html").write_text(render_run(read_run(folder / "a")), encoding="utf-8")
    (folder / "comparison.html").write_text(compare_runs([folder / "a", folder / "b"]), encoding="utf-8")
    return folder


def with_hovering(page: Path, scratch: Path, width: int) -> Path:
    """The page in a frame of this width (a window is never narrower than 500), and a pointer that moves over it."""
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text(encoding="utf-8"))
    inside = html.escape(text.replace("</body>", HOVER), quote=True)
    frame = scratch / f"frame-{page.name}"
    style = f"border:0;width:{width}px;height:900px"
    frame.write_text(
        f'<!doctype html><body><iframe style="{style}" srcdoc="{inside}"></iframe></body>', encoding="utf-8"
    )
    return frame


def attribute(document: str, name: str) -> str | None:
    found = re.search(rf'<body[^>]* data-{name}="([^"]*)"', document)
    return found.group(1) if found else None


@pytest.mark.parametrize("name", ["report.html", "comparison.html"])
def test_the_page_loads_without_errors_or_requests(pages: Path, tmp_path: Path, name: str) -> None:
    seen = browse(pages / name, tmp_path, "--dump-dom")
    assert seen.complaints == []
    assert seen.requests == []
    assert 'class="cursor"' in seen.text, "the script of the page did not run"
    assert attribute(seen.text, "evil") is None


def test_errors_and_requests_would_be_detected(tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text('<!doctype html><img src="http://example.invalid/x.png"><script>nothing.there()</script>')
    seen = browse(page, tmp_path, "--dump-dom")
    assert any("ReferenceError" in line for line in seen.complaints)
    assert "http://example.invalid/x.png" in seen.requests


@pytest.mark.parametrize("width", [1280, 768, 390])
@pytest.mark.parametrize("name", ["report.html", "comparison.html"])
def test_the_layout_fits_and_the_pointer_shows_values(pages: Path, tmp_path: Path, name: str, width: int) -> None:
    seen = browse(with_hovering(pages / name, tmp_path, width), tmp_path, "--dump-dom")
    assert seen.complaints == []
    assert attribute(seen.text, "inner") == str(width)
    assert attribute(seen.text, "wide") == "0", "the page has to be scrolled sideways"
    assert attribute(seen.text, "cut") == "0", "headings of a table lie on one another"
    tip, following = attribute(seen.text, "tip"), attribute(seen.text, "next")
    assert tip is not None and tip.startswith("step 50") and format_number(loss_at(50)) in tip
    assert following is not None and following.startswith("step 51")


def test_the_plots_of_a_search_fit(tmp_path: Path) -> None:
    write_study(tmp_path, ("minimize", "maximize"))
    page = tmp_path / "search.html"
    page.write_text(render_study(read_study(tmp_path)), encoding="utf-8")
    seen = browse(with_hovering(page, tmp_path, 390), tmp_path, "--dump-dom")
    assert seen.complaints == []
    assert (attribute(seen.text, "wide"), attribute(seen.text, "plots")) == ("0", "0")


@pytest.mark.parametrize(("options", "dark"), [((), False), (("--blink-settings=preferredColorScheme=0",), True)])
def test_screenshots(pages: Path, tmp_path: Path, options: tuple[str, ...], dark: bool) -> None:
    picture = tmp_path / "page.png"
    browse(pages / "report.html", tmp_path, f"--screenshot={picture}", *options, width=800, height=900)
    width, height, rows = pixels(picture)
    assert (width, height) == (800, 900)
    background = rows[70][3:6]
    assert (sum(background) < 150) is dark
    colours = {row[at : at + 3] for row in rows[400:] for at in range(0, len(row), 3)}
    line = bytes.fromhex("8c9eff" if dark else "3d5afe")  # of the first curve
    assert line in colours, "no curve was drawn"
