"""Show progress: a live bar on a terminal, plain lines in a pipe, a table in a notebook."""
