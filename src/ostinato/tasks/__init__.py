"""Tasks: recipes for `ostinato train`. One main (`command.py`), and a small file for what is specific to each task.

    ostinato train text-classification --train_file train.csv --validation_file dev.csv --do_train --do_eval ...

    recipe.py          what a recipe defines, with a default for each part
    command.py         the order: arguments, rows, model, encoding, training, evaluation, prediction
    catalog.py         tasks and their recipes              configs.py      files of options
    task_arguments.py  flags that all tasks share           rows.py         rows from files and datasets, checked
    models.py          config, tokenizer, model             tokenizers.py   a tokenizer trained from the rows
    feature_cache.py   rows to features, cached             results.py      what is written at the end
    command_output.py  what a command prints                samples/        a whole run on generated rows
    generation.py      text from a trained model: `ostinato generate`

What two or three recipes share has a file by its subject: label_names, max_length, text_blocks, context_windows,
nbest, towers, ...

A recipe uses the public API alone, so a custom one can do whatever those here do: subclass `Recipe`, call `run`.
"""

from __future__ import annotations

from .catalog import ALIASES, RECIPES, find_recipe
from .command import run
from .recipe import Recipe, Sample

__all__ = ["ALIASES", "RECIPES", "Recipe", "Sample", "find_recipe", "run"]
