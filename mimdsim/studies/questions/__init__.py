"""Kinds of question, one file each: what a study needs for it and how it is answered. Each `KIND` in this folder is
found."""

from __future__ import annotations

import importlib
import pkgutil

from mimdsim.studies.pareto import Ranking
from mimdsim.studies.questions.kind import QuestionKind

_MODULES = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
KINDS: dict[str, QuestionKind] = {module.KIND.name: module.KIND for module in _MODULES if hasattr(module, "KIND")}


def kind_of(ranking: Ranking) -> QuestionKind:
    """The kind that a study names; else what matters most in a sensitivity that is done, or which point is best."""
    return KINDS[ranking.study.question_kind or ("which-of" if ranking.result.found is None else "sensitivity")]


__all__ = ["KINDS", "QuestionKind", "kind_of"]
