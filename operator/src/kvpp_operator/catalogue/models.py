"""The models we know: attention class, cache widths, layers; what KVPP may and may not run.

Verdicts: seed guide, Supported Models (non-hybrid MLA and SFA); launch facts 1.5 and 8.2.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvpp_operator.api.model import Attention

FACTS_MODELS = "launch facts 1.5: vLLM 0.30 model_arch_config_convertor.py, the list of MLA model types"
FACTS_CACHE = "launch facts 8.2: bytes per token and layer"


@dataclass(frozen=True)
class ModelFacts:
    """What rules and the capacity estimate need of a model. Widths in elements, sizes in GB of the usual quantized weights."""

    name: str
    attention: Attention
    layers: int
    moe: bool
    kv_lora_rank: int | None = None
    rope_head_dim: int | None = None
    indexer_head_dim: int | None = None
    indexer_layers: int = 0
    draft_layers: int | None = None
    draft_shares_target_cache: bool = False
    multimodal: bool = False
    trust_remote_code: bool = False
    weight_gigabytes: int | None = None
    attention_heads: int | None = None
    """TP splits them (the models' own config.json, num_attention_heads)."""
    refusal: str | None = None
    """Why KVPP can't run it although nothing above says so."""
    source: str = "spec.model.architecture"

    @property
    def runs_kvpp(self) -> bool:
        return self.attention in ("MLA", "SFA") and self.refusal is None


def mla(
    name: str,
    *,
    draft_layers: int,
    weight_gigabytes: int,
    source: str,
    heads: int = 128,
    trust_remote_code: bool = False,
) -> ModelFacts:
    """The DeepSeek V3 family: 61 layers, latent 512 + rope 64."""
    return ModelFacts(
        name, "MLA", 61, moe=True, kv_lora_rank=512, rope_head_dim=64, draft_layers=draft_layers,
        trust_remote_code=trust_remote_code, weight_gigabytes=weight_gigabytes, attention_heads=heads, source=source,
    )  # fmt: skip


def sfa(
    name: str, layers: int, indexer_layers: int, *, weight_gigabytes: int, source: str, heads: int = 64
) -> ModelFacts:
    """Sparse attention with an indexer of width 128 beside the latent cache."""
    return ModelFacts(
        name, "SFA", layers, moe=True, kv_lora_rank=512, rope_head_dim=64, indexer_head_dim=128,
        indexer_layers=indexer_layers, draft_layers=1, weight_gigabytes=weight_gigabytes, attention_heads=heads, source=source,
    )  # fmt: skip


def refused(name: str, attention: Attention, layers: int, refusal: str, *, moe: bool = True) -> ModelFacts:
    return ModelFacts(name, attention, layers, moe=moe, refusal=refusal, source=FACTS_MODELS)


GQA = "its attention is grouped-query: vLLM does not treat it as MLA"
HYBRID = "it is a hybrid model"

PROFILES = (
    sfa("GLM-5", 78, 78, weight_gigabytes=744, source=f"{FACTS_MODELS} (glm_moe_dsa); {FACTS_CACHE}"),
    sfa("GLM-5.1", 78, 78, weight_gigabytes=744, source=f"{FACTS_MODELS} (glm_moe_dsa); {FACTS_CACHE}"),
    sfa("GLM-5.2", 78, 21, weight_gigabytes=744, source=f"seed guide, Supported Models; {FACTS_CACHE} (21 indexer layers)"),
    sfa("GLM-5.3", 78, 21, weight_gigabytes=744, source=f"{FACTS_MODELS} (glm_moe_dsa); layers inferred from the 42+36 split"),
    mla("DeepSeek-V3", draft_layers=1, weight_gigabytes=671, source=f"{FACTS_MODELS} (deepseek_v3); {FACTS_CACHE}"),
    mla("DeepSeek-V3.1", draft_layers=1, weight_gigabytes=671, source=f"{FACTS_MODELS} (deepseek_v3); {FACTS_CACHE}"),
    mla("DeepSeek-R1", draft_layers=1, weight_gigabytes=671, source=f"{FACTS_MODELS} (deepseek_v3); {FACTS_CACHE}"),
    sfa("DeepSeek-V3.2", 61, 61, weight_gigabytes=671, heads=128, source=f"{FACTS_MODELS} (deepseek_v32); {FACTS_CACHE}"),
    mla("Kimi-K2", draft_layers=0, weight_gigabytes=1000, heads=64, trust_remote_code=True,
        source=f"{FACTS_MODELS} (kimi_k2); {FACTS_CACHE}"),
    refused("GLM-4.5", "GQA", 92, GQA),
    refused("GLM-4.6", "GQA", 92, GQA),
    refused("GLM-4.7", "GQA", 92, GQA),
    refused("GLM-5.3-Flash", "Hybrid", 47, HYBRID),
    refused("MiniMax-M2", "GQA", 62, GQA),
    refused("Qwen3-MoE", "GQA", 94, GQA),
    refused("Qwen3-Next", "Hybrid", 48, HYBRID),
    refused("Kimi-Linear", "Hybrid", 27, HYBRID),
    refused("DeepSeek-V4", "MLA", 61, "its compressed cache has several groups, KVPP needs one"),
    refused("DeepSeek-V4.1", "MLA", 61, "its compressed cache has several groups, KVPP needs one"),
)  # fmt: skip
BY_NAME = {profile.name: profile for profile in PROFILES}
