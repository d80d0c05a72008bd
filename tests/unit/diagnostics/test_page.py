"""Pages in every form: aligned, short lines, nothing lost, nothing taken for markup."""

from __future__ import annotations

from ostinato.diagnostics.render import WIDTH, Page, Section, render_html, render_markdown, render_text, render_tree

LONG = "a sentence that goes on and on until no line of any terminal could hold it, and then a little further still"
PAGE = Page(
    "A title",
    (
        Section(
            "first", "two things", (("x", "(8, 4)", "float32", "note"), ("long_name", "()", "int64", "")), ("A note.",)
        ),
        Section("a longer title", LONG),
        Section("MISTAKE", "it is wrong", (("why", LONG),), mark="mistake"),
    ),
)


def test_columns_are_aligned() -> None:
    lines = render_text(PAGE).splitlines()
    one, other = (line for line in lines if "float32" in line or "int64" in line)
    assert one.index("float32") == other.index("int64")
    assert one.index("(8, 4)") == other.index("()")


def test_headings_are_aligned_and_marked() -> None:
    lines = render_text(PAGE).splitlines()
    starts = {
        line.index(text)
        for line in lines
        for text in ("two things", "a sentence that goes", "it is wrong")
        if text in line and line[0] in "12X"
    }
    assert len(starts) == 1
    assert any(line.startswith("X  MISTAKE") for line in lines)


def test_lines_are_short_and_words_whole() -> None:
    text = render_text(PAGE)
    assert max(map(len, text.splitlines())) <= WIDTH
    assert " ".join(text.split()).count(LONG) == 2
    assert all(line == line.rstrip() for line in text.splitlines())


def test_two_long_cells_share_a_line() -> None:
    lines = render_text(Page("t", (Section("s", "", (("name", LONG, LONG),)),))).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert sum("sentence that goes" in line for line in lines) == 1  # both begin in the same line
    assert next(line for line in lines if "sentence that goes" in line).count("sentence that goes") == 2


def test_a_word_that_is_too_long_stays_whole() -> None:
    word = "x" * (WIDTH + 20)
    assert word in render_text(Page("t", (Section("s", "", (("path", word),)),)))


def test_markdown_has_tables_and_escapes_text() -> None:
    page = Page("t", (Section("s", "a_b * c", (("n", "x | y"), ("m", "<b>", "more")), ("note_1",)),))
    text = render_markdown(page)
    assert "| `n` | x \\| y |  |" in text
    assert "\\<b>" in text
    assert "a\\_b \\* c" in text
    assert "- note\\_1" in text


def test_html_is_escaped() -> None:
    text = render_html(Page("<t>", (Section("<s>", "<u>", (("<v>", "&"),), ("<w>",)),)))
    for sign in "tsuvw":
        assert f"&lt;{sign}&gt;" in text
    assert "&amp;" in text


def test_a_tree_has_the_same_text() -> None:
    from rich.console import Console

    console = Console(width=WIDTH, file=open("/dev/null", "w"), record=True)  # noqa: SIM115
    with console.file:
        console.print(render_tree(PAGE))
    drawn = " ".join(console.export_text().replace("│", "").replace("└──", "").replace("├──", "").split())
    assert "A note." in drawn
    assert "X MISTAKE it is wrong" in drawn
    assert "float32" in drawn
