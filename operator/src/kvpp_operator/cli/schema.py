"""The JSON that scripts read, as models: the published schema is generated from here, and a test parses what we print."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class FindingShape(Shape):
    """One rule's verdict."""

    rule: Annotated[str, Field(description="Stable id; `kvpp explain RULE` says more.")]
    severity: Literal["error", "warning"]
    path: Annotated[str, Field(description="The field as the user wrote it: `spec.prefill.env[0].name`.")]
    value: Annotated[Any, Field(description="What stands there, shortened.")]
    message: str
    source: str
    fix: Annotated[str, Field(description="The smallest change that removes the finding.")]
    validation: Annotated[
        Literal["never", "ci", "seed"], Field(description="How far the matter is validated on hardware.")
    ]


class DocumentShape(Shape):
    """One KVPPDeployment, or a file that can't be read (then name is null)."""

    file: str
    index: Annotated[int, Field(ge=0, description="Place of the document in its file, from 0.")]
    namespace: str | None
    name: str | None
    accepted: bool
    findings: list[FindingShape]


class SkippedShape(Shape):
    """A document of another kind."""

    file: str
    index: Annotated[int, Field(ge=0)]
    kind: Any
    namespace: Any = None
    name: Any = None


class ValidateShape(Shape):
    """Output of `kvpp validate -o json`. Order: as given, then by path."""

    documents: list[DocumentShape]
    skipped: list[SkippedShape]


class CommandShape(Shape):
    """One line of `kvpp commands -o json`: one engine process."""

    namespace: str
    name: str
    role: Literal["unified", "prefill", "decode"]
    engine: Annotated[int, Field(ge=0)]
    nodeRank: Annotated[int, Field(ge=0)]  # noqa: N815 - the name on the wire
    argv: Annotated[list[str], Field(description="What vLLM receives; `serve` first.")]
    env: dict[str, str]
    kvPort: Annotated[int | None, Field(description="First port of the kv block.")]  # noqa: N815
    kvPortLast: Annotated[int | None, Field(description="Last port of the kv block, included.")]  # noqa: N815


def schema_of(shape: type[Shape]) -> str:
    return json.dumps(shape.model_json_schema(), ensure_ascii=False, indent=2) + "\n"
