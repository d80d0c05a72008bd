"""Catalog of tasks and their recipes, under all names in use."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING

from ostinato import ConfigError

if TYPE_CHECKING:
    from .recipe import Recipe

# A recipe's module is imported when its task is requested.
RECIPES = {
    "text-classification": "text_classification:TextClassification",
    "token-classification": "token_classification:TokenClassification",
    "multiple-choice": "multiple_choice:MultipleChoice",
    "question-answering": "question_answering:QuestionAnswering",
    "question-answering-beam": "question_answering_beam:QuestionAnsweringBeam",
    "question-answering-seq2seq": "question_answering_seq2seq:QuestionAnsweringSeq2Seq",
    "clm": "clm:CausalLanguageModeling",
    "mlm": "mlm:MaskedLanguageModeling",
    "plm": "plm:PermutationLanguageModeling",
    "fim": "fim:FillInTheMiddle",
    "summarization": "summarization:Summarization",
    "translation": "translation:Translation",
    "sentence-embedding": "sentence_embedding:SentenceEmbedding",
    "image-classification": "image_classification:ImageClassification",
    "image-pretraining-mae": "image_pretraining_mae:MaskedAutoencoder",
    "image-pretraining-mim": "image_pretraining_mim:MaskedImageModeling",
    "semantic-segmentation": "semantic_segmentation:SemanticSegmentation",
    "contrastive-image-text": "contrastive_image_text:ContrastiveImageText",
    "audio-classification": "audio_classification:AudioClassification",
    "speech-recognition-ctc": "speech_recognition_ctc:SpeechRecognitionCTC",
    "speech-recognition-seq2seq": "speech_recognition_seq2seq:SpeechRecognitionSeq2Seq",
    "speech-pretraining": "speech_pretraining:SpeechPretraining",
}
# The names of transformers' example scripts, without "run_" in front.
ALIASES = {
    "glue": "text-classification",
    "xnli": "text-classification",
    "classification": "text-classification",
    "ner": "token-classification",
    "pos": "token-classification",
    "chunk": "token-classification",
    "swag": "multiple-choice",
    "qa": "question-answering",
    "qa-beam-search": "question-answering-beam",
    "seq2seq-qa": "question-answering-seq2seq",
    "language-modeling": "clm",
    "clip": "contrastive-image-text",
    "mae": "image-pretraining-mae",
    "mim": "image-pretraining-mim",
    "speech-recognition-ctc-adapter": "speech-recognition-ctc",
    "ctc": "speech-recognition-ctc",
    "wav2vec2-pretraining": "speech-pretraining",
}

# Options that some of these names imply beyond the task.
IMPLIED_OPTIONS = {"pos": {"task_name": "pos"}, "chunk": {"task_name": "chunk"}}


def find_recipe(name: str) -> type[Recipe]:
    """Find the recipe of a task.

    Args:
        name: The name of the task, or that of transformers' example script for it.

    Returns:
        The class of the recipe.

    Raises:
        ConfigError: There is no such task.

    >>> find_recipe("run_glue.py").name
    'text-classification'
    """
    normalized = _normalize_name(name)
    task = ALIASES.get(normalized, normalized)
    if task not in RECIPES:
        near = get_close_matches(normalized, [*RECIPES, *ALIASES], n=1, cutoff=0.5)
        raise ConfigError(
            what=f"there is no task {name!r}",
            why=f"the nearest is {near[0]!r}" if near else "no recipe has that name",
            fix=f"use one of {', '.join(RECIPES)}",
        )
    module, _, recipe = RECIPES[task].partition(":")
    return getattr(import_module(f".{module}", __package__), recipe)


def find_implied_options(name: object) -> dict[str, str]:
    """Return the options that a name implies besides its task; the user's options take precedence.

    >>> find_implied_options("pos"), find_implied_options("ner")
    ({'task_name': 'pos'}, {})
    """
    return IMPLIED_OPTIONS.get(_normalize_name(name), {}) if isinstance(name, str) else {}


def _normalize_name(name: str) -> str:
    return name.removesuffix(".py").removesuffix("_no_trainer").removeprefix("run_").replace("_", "-")
