"""Which arguments the engine of a version takes: `catalogue(version)`, `parse(arguments, catalogue)`.

The data comes from the real parsers (`make generate-engine-flags`); nothing of vLLM is imported at run time.
"""

from __future__ import annotations

from kvpp_operator.engine_flags.additional import AdditionalProblem, check_additional
from kvpp_operator.engine_flags.catalogue import LATEST, NEWEST, VERSIONS, Flag, FlagCatalogue, catalogue
from kvpp_operator.engine_flags.parse import Argument, ParsedArguments, parse
from kvpp_operator.engine_flags.problems import Problem, ProblemKind
from kvpp_operator.engine_flags.requirements import requirements

__all__ = (
    "LATEST", "NEWEST", "VERSIONS", "AdditionalProblem", "Argument", "Flag", "FlagCatalogue", "ParsedArguments", "Problem",
    "ProblemKind", "catalogue", "check_additional", "parse", "requirements",
)  # fmt: skip
