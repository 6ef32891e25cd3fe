"""Hugging Face configurations that make vLLM see a kind of attention. Shapes from the models' published config.json."""

from __future__ import annotations

from typing import Any

FILES: dict[str, dict[str, Any]] = {
    "quant_model_description.json": {"model_quant_type": "W8A8_DYNAMIC", "version": "1.0.0"},
    "tokenizer.json": {
        "version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": {"<unk>": 0}, "unk_token": "<unk>"},
    },
    "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>"},
}  # fmt: skip
"""What else lies beside weights: the quantization of each layer (read for `--quantization ascend`; none is named, since no
layer is made) and a tokenizer of one word (read where a reasoning parser is chosen)."""

_COMMON: dict[str, Any] = {
    "torch_dtype": "bfloat16", "hidden_act": "silu", "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "attention_bias": False,
    "bos_token_id": 0, "eos_token_id": 1, "max_position_embeddings": 163840,
}  # fmt: skip

_MLA = _COMMON | {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
    "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128, "vocab_size": 129280,
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
    "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "first_k_dense_replace": 3, "moe_layer_freq": 1, "n_group": 8, "topk_group": 4,
    "norm_topk_prob": True, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
    "num_nextn_predict_layers": 1, "rope_theta": 10000,
}  # fmt: skip

_SFA = _MLA | {
    "architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32",
    "max_position_embeddings": 202752,  # GLM-5's; DeepSeek V3.2 has 163840
    "index_topk": 2048, "index_n_heads": 64, "index_head_dim": 128,
}  # fmt: skip

_GQA = _COMMON | {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
    "hidden_size": 4096, "num_hidden_layers": 94, "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128,
    "vocab_size": 151936, "intermediate_size": 12288, "moe_intermediate_size": 1536, "num_experts": 128,
    "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True, "rope_theta": 1000000,
}  # fmt: skip

_MQA = _COMMON | {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 1,
    "vocab_size": 32000, "intermediate_size": 11008, "rope_theta": 10000,
}  # fmt: skip

_HYBRID = _COMMON | {
    "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next",
    "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
    "vocab_size": 151936, "intermediate_size": 5120, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
    "num_experts": 512, "num_experts_per_tok": 10, "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True,
    "full_attention_interval": 4, "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "partial_rotary_factor": 0.25, "rope_theta": 10000000,
}  # fmt: skip

_BY_ATTENTION: dict[str, dict[str, Any]] = {"MLA": _MLA, "SFA": _SFA, "GQA": _GQA, "MQA": _MQA, "Hybrid": _HYBRID}


def config(model: dict[str, Any]) -> dict[str, Any]:
    """The configuration for `{"attention": …, "layers": int}`; anything under "config" goes over it."""
    layers = {"num_hidden_layers": model["layers"]} if "layers" in model else {}
    over: dict[str, Any] = model.get("config", {})
    return _BY_ATTENTION[model.get("attention", "MLA")] | layers | over
