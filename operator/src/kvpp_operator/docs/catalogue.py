"""docs/models.md and docs/chips.md, from the catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvpp_operator.catalogue.chips import CHIPS, HUGE_PAGES, TRANSFER_ENV, Chip
from kvpp_operator.catalogue.models import PROFILES, ModelFacts
from kvpp_operator.docs.table import code, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MODELS_HEAD = """# Models

The profiles that `spec.model.profile` takes. `make generate` writes this page from `catalogue/models.py`; do not edit
it. A model that is not listed needs `spec.model.architecture` with the same facts.

KVPP needs latent attention (MLA) or sparse latent attention (SFA) without hybrid layers. A refused profile runs with
`spec.kvpp.enabled: false`.
"""
CHIPS_HEAD = """# Chips

What `spec.accelerator.chip` stands for. `make generate` writes this page from `catalogue/chips.py`; do not edit it.
Resource name, NPUs per node and interconnect can be overridden by a deployment, or for the whole cluster by the
operator's configuration.
"""


def models_page() -> str:
    runs = [model for model in PROFILES if model.runs_kvpp]
    refused = [model for model in PROFILES if not model.runs_kvpp]
    return "\n".join(
        [
            MODELS_HEAD,
            "## With KVPP\n",
            *table(
                "profile | attention | layers | draft layers | cache width | indexer | weights | remote code | source",
                (model_row(model) for model in runs),
            ),
            "",
            "Cache width: latent rank + rotary part, in elements of one token in one layer. Weights: GB of the usual",
            "quantized files. Remote code: whether `--trust-remote-code` is the default.",
            "",
            "## Refused with KVPP\n",
            *table(
                "profile | attention | why | source",
                ((code(model.name), model.attention, model.refusal or "", model.source) for model in refused),
            ),
            "",
        ]
    )


def model_row(model: ModelFacts) -> tuple[str, ...]:
    indexer = f"{model.indexer_head_dim} in {model.indexer_layers} layers" if model.indexer_head_dim else "none"
    return (
        code(model.name),
        model.attention,
        str(model.layers),
        "" if model.draft_layers is None else str(model.draft_layers),
        f"{model.kv_lora_rank} + {model.rope_head_dim}",
        indexer,
        f"{model.weight_gigabytes} GB" if model.weight_gigabytes else "",
        "yes" if model.trust_remote_code else "no",
        model.source,
    )


def chips_page() -> str:
    return "\n".join(
        [
            CHIPS_HEAD,
            *table(
                "chip | product | resource | NPUs per node | image suffix | interconnect | C8 is | source",
                (chip_row(chip) for chip in CHIPS),
            ),
            "",
            *(line for chip in CHIPS for line in chip_section(chip)),
        ]
    )


def chip_row(chip: Chip) -> tuple[str, ...]:
    count = f"{chip.devices_per_node}; one or an even number" if chip.even_devices else str(chip.devices_per_node)
    suffix = code(chip.image_suffix) if chip.image_suffix else "none"
    resource = code(chip.resource_name)
    return (code(chip.name), chip.product, resource, count, suffix, chip.interconnect, chip.cache_type, chip.source)


def chip_section(chip: Chip) -> Iterable[str]:
    yield f"## {chip.name}\n"
    yield "Environment of every engine; `accelerator.envPreset: None` leaves it out:\n"
    yield from table("name | value", assignments(chip.env))
    yield "\nBy interconnect, for KV transfer and pools:\n"
    fabrics = ((fabric, env) for (name, fabric), env in TRANSFER_ENV.items() if name == chip.name)
    rows = ((name, in_one_cell(env), "yes" if (chip.name, name) in HUGE_PAGES else "no") for name, env in fabrics)
    yield from table("interconnect | environment | huge pages with a pool", rows)
    yield "\nFiles of the host, mounted read-only at the same path:\n"
    mounts = ((mount, "with KV transfer" if mount.transfer else "always") for mount in chip.small_files)
    yield from table("path | type | when", ((code(mount.path), mount.type, when) for mount, when in mounts))
    yield ""


def in_one_cell(env: Mapping[str, str]) -> str:
    return "; ".join(f"{name} = {value}" for name, value in assignments(env)) or "none"


def assignments(env: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    return ((code(name), code(value)) for name, value in env.items())
