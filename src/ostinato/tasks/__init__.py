"""Tasks: the recipes people run. One main (`run.py`), one small file for what is peculiar to each task.

    ostinato train text-classification --train_file train.csv --validation_file dev.csv --do_train --do_eval ...

    recipe.py       what a recipe may say of itself, with a default for each
    run.py          the order: arguments, rows, model, encoding, training, evaluation, prediction
    catalog.py      which task is which recipe           configs.py    files of options
    arguments.py    flags that all tasks share           reading.py    rows from files and data sets, checked
    models.py       config, tokenizer, model             tokenizers.py a tokenizer trained on the spot
    encoding.py     rows to features, cached             results.py    what is written at the end
    telling.py      what a command says                  samples/      a whole run on rows of our own making
    generation.py   what a trained model writes: `ostinato generate`

What two or three recipes share has a file by its subject: labels, lengths, blocks, windows, nbest, towers, ...

A recipe uses the public API alone, so one of your own can do whatever those here do: subclass `Recipe`, call `run`.
"""

from __future__ import annotations

from .catalog import ALIASES, RECIPES, find_recipe
from .command import run
from .recipe import Recipe, Sample

__all__ = ["ALIASES", "RECIPES", "Recipe", "Sample", "find_recipe", "run"]
