"""Explain a batch, plan a run, try it out, and name the mistakes behind exceptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy_package import load_on_use

if TYPE_CHECKING:
    from . import batch_report, dispatch, dry_run, eval_dry_run, explain_batch, plan_builder, run_plan, verify_resume
else:
    __getattr__ = load_on_use(__name__)
