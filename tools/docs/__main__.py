"""Write the generated pages: `python -m tools.docs`."""

from __future__ import annotations

from tools.docs.pages import write_pages

if __name__ == "__main__":
    write_pages()
