"""A picture of a run on a terminal, `docs/pictures/terminal.svg`: `python -m tools.docs.terminal_picture`.

The program of the page *First run* runs on a pseudo terminal. What it writes is followed as a terminal would, up to a
moment in the middle of the run, and drawn.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import sys
import tempfile
import termios
from pathlib import Path

from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.terminal_theme import MONOKAI

ROOT = Path(__file__).parents[2]
COLUMNS, LINES = 100, 40
SEQUENCE = re.compile(r"\x1b\[(?P<numbers>[?\d;]*)(?P<letter>[A-Za-z])")


def record(program: str, moment: str) -> str:
    """Run a program on a pseudo terminal; return what it has written when a pattern first matches."""
    with tempfile.TemporaryDirectory() as directory:
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(directory)
            os.environ.update(TERM="xterm-256color", COLORTERM="truecolor", OMP_NUM_THREADS="1")
            os.execv(sys.executable, [sys.executable, "-c", program])
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        written, at_moment = "", ""
        while True:
            try:
                written += os.read(terminal, 4096).decode("utf-8", "ignore")
            except OSError:  # the end
                break
            if not at_moment and re.search(moment, SEQUENCE.sub("", written), re.DOTALL):
                at_moment = written
        os.waitpid(child, 0)
    return at_moment or written


def follow(written: str) -> list[str]:
    """Return the lines on the screen: carriage returns, erased lines and moves of the cursor are obeyed."""
    screen, row = [""], 0
    place = 0
    while place < len(written):
        found = SEQUENCE.match(written, place)
        if found is not None:
            place = found.end()
            count = int(found["numbers"] or 1) if (found["numbers"] or "1").isdigit() else 1
            if found["letter"] == "A":
                row = max(0, row - count)
            elif found["letter"] == "K":
                screen[row] = ""
            elif found["letter"] == "m":
                screen[row] += found[0]
            continue
        letter = written[place]
        place += 1
        if letter == "\n":
            row += 1
            if row == len(screen):
                screen.append("")
        elif letter == "\r":
            if place < len(written) and written[place] != "\n":
                screen[row] = ""
        elif letter >= " ":
            screen[row] += letter
    return [line for line in screen if line]


def draw(lines: list[str], title: str) -> str:
    """Return the lines as SVG that needs no font from the network."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for line in AnsiDecoder().decode("\n".join(lines)):
        console.print(line, soft_wrap=False, overflow="crop", no_wrap=True)
    picture = console.export_svg(title=title, theme=MONOKAI, unique_id="terminal")
    picture = re.sub(r"@font-face \{.*?\}\n", "", picture, flags=re.DOTALL)
    return picture.replace("Fira Code", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono")


if __name__ == "__main__":
    page = (ROOT / "docs" / "start" / "first-run.md").read_text("utf-8")
    program = page.split("```python\n")[1].split("```")[0].replace("num_train_epochs=10", "num_train_epochs=16")
    text = draw(follow(record(program, moment=r"epoch 11\.00 .*step +5[5-9]\d/800")), "python points.py")
    (ROOT / "docs" / "pictures" / "terminal.svg").write_text(text, "utf-8")
