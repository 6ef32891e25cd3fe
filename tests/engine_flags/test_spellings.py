"""Every way to write a flag that the engine understands, and what it means."""

from __future__ import annotations

import pytest

from kvpp_operator.engine_flags import catalogue, parse

NEWEST = catalogue("0.30.0rc2")
TP, GRAPH, JSON = "--tensor-parallel-size", "--compilation-config", "--additional-config"

SPELLINGS = {
    "two words": (["--tensor-parallel-size", "4"], (TP, None, ("4",), False)),
    "one word": (["--tensor-parallel-size=4"], (TP, None, ("4",), False)),
    "underscores": (["--tensor_parallel_size", "4"], (TP, None, ("4",), False)),
    "underscores in one word": (["--tensor_parallel_size=4"], (TP, None, ("4",), False)),
    "mixed": (["--tensor-parallel_size", "4"], (TP, None, ("4",), False)),
    "short": (["-tp", "4"], (TP, None, ("4",), False)),
    "short in one word": (["-tp=4"], (TP, None, ("4",), False)),
    "abbreviated": (["--tensor-par", "4"], (TP, None, ("4",), False)),
    "abbreviated in one word": (["--tensor-par=4"], (TP, None, ("4",), False)),
    "abbreviated with underscores": (["--tensor_par=4"], (TP, None, ("4",), False)),
    "abbreviated short": (["-t", "4"], (TP, None, ("4",), False)),
    "one letter with its value": (["-qfp8"], ("--quantization", None, ("fp8",), False)),
    "one letter with =": (["-q=fp8"], ("--quantization", None, ("fp8",), False)),
    "another name of a name": (["-cc", "{}"], (GRAPH, None, ("{}",), False)),
    "switch": (["--enforce-eager"], ("--enforce-eager", None, (), False)),
    "switched off": (["--no-enforce-eager"], ("--enforce-eager", None, (), True)),
    "switched off with underscores": (["--no_enable_prefix_caching"], ("--enable-prefix-caching", None, (), True)),
    "switched off, half underscores": (["--no-async_scheduling"], ("--async-scheduling", None, (), True)),
    "switched off, abbreviated": (["--no-async"], ("--async-scheduling", None, (), True)),
    "short switch": (["-ep"], ("--enable-expert-parallel", None, (), False)),
    "a key": (["--compilation-config.cudagraph_mode", "PIECEWISE"], (GRAPH, "cudagraph_mode", ("PIECEWISE",), False)),
    "a key in one word": (["--compilation-config.cudagraph_mode=PIECEWISE"], (GRAPH, "cudagraph_mode", ("PIECEWISE",), False)),
    "a key, underscores": (["--compilation_config.cudagraph_mode", "FULL"], (GRAPH, "cudagraph_mode", ("FULL",), False)),
    "a key of the short name": (["-cc.cudagraph_mode=none"], (GRAPH, "cudagraph_mode", ("none",), False)),
    "a key of an abbreviation": (["--compil.mode=3"], (GRAPH, "mode", ("3",), False)),
    "a nested key": (["--compilation-config.pass_config.enable_sp", "true"], (GRAPH, "pass_config.enable_sp", ("true",), False)),
    "an element": (["--compilation-config.custom_ops+", "none"], (GRAPH, "custom_ops", ("none",), False)),
    "elements": (["--compilation-config.custom_ops+=a,b"], (GRAPH, "custom_ops", ("a,b",), False)),
    "a key of free JSON": (["--additional-config.enable_kvpp", "true"], (JSON, "enable_kvpp", ("true",), False)),
    "level": (["-O3"], ("--optimization-level", None, ("3",), False)),
    "level with =": (["-O=3"], ("--optimization-level", None, ("3",), False)),
    "level in two words": (["-O", "3"], ("--optimization-level", None, ("3",), False)),
    "level by name": (["-Ofast"], ("--optimization-level", None, ("fast",), False)),
    "several values": (["--served-model-name", "a", "b"], ("--served-model-name", None, ("a", "b"), False)),
    "a value that may be absent": (["--hf-token"], ("--hf-token", None, (), False)),
    "a negative number": (["--max-model-len", "-1"], ("--max-model-len", None, ("-1",), False)),
    "thousands": (["--max-num-batched-tokens", "32k"], ("--max-num-batched-tokens", None, ("32k",), False)),
    "a value with a dot": (["--gpu-memory-utilization", "0.9"], ("--gpu-memory-utilization", None, ("0.9",), False)),
    "a value with a dot in one word": (["--gpu-memory-utilization=0.9"], ("--gpu-memory-utilization", None, ("0.9",), False)),
    "a value with =": (["--served-model-name=a=b"], ("--served-model-name", None, ("a=b",), False)),
    "a value that starts with a dash and has a space": (["--chat-template", "- {x}"], ("--chat-template", None, ("- {x}",), False)),
    "Ascend's own dtype": (["--kv-cache-dtype", "int8"], ("--kv-cache-dtype", None, ("int8",), False)),
    "Ascend's own dtype of the indexer": (
        ["--attention-config.indexer_kv_dtype=int8"], ("--attention-config", "indexer_kv_dtype", ("int8",), False),
    ),
    "numbers with a suffix inside JSON": (
        ["--kv-transfer-config", '{"kv_buffer_size": 2G}'], ("--kv-transfer-config", None, ('{"kv_buffer_size": 2G}',), False),
    ),
    "a file": (["--config", "serve.yaml"], ("--config", None, ("serve.yaml",), False)),
}  # fmt: skip


@pytest.mark.parametrize(("words", "expected"), SPELLINGS.values(), ids=SPELLINGS)
def test_a_spelling_is_understood(words: list[str], expected: tuple[str, str | None, tuple[str, ...], bool]) -> None:
    (one,) = parse(words, NEWEST)

    assert (one.flag, one.path, one.values, one.negated) == expected
    assert one.problems == ()
    assert (one.index, one.text) == (0, words[0])


def test_places_are_those_of_the_list() -> None:
    parsed = parse(["--seed", "1", "-O3", "-cc.mode", "0", "--served-model-name", "a", "b", "--enforce-eager"], NEWEST)

    assert [(one.index, one.flag) for one in parsed] == [
        (0, "--seed"), (2, "--optimization-level"), (3, "--compilation-config"), (5, "--served-model-name"), (8, "--enforce-eager"),
    ]  # fmt: skip


def test_the_last_use_of_a_flag_counts() -> None:
    parsed = parse(["--seed", "1", "--no-enable-prefix-caching", "--seed=2", "--enable-prefix-caching"], NEWEST)

    seed, caching = parsed.last("--seed"), parsed.last("--enable-prefix-caching")
    assert (seed and seed.values, caching and caching.negated) == (("2",), False)
    assert [one.values for one in parsed.of("--seed")] == [("1",), ("2",)]
    assert parsed.last("--port") is None


def test_a_cluster_of_short_flags_is_two_flags() -> None:
    assert [(one.flag, one.values) for one in parse(["-ep=q4"], NEWEST)] == [
        ("--enable-expert-parallel", ()), ("--quantization", ("4",)),
    ]  # fmt: skip


def test_a_negative_fraction_is_read_as_a_key_and_swallows_the_next_word() -> None:
    """vLLM's own oddity: `-0.5` has a dot and begins with a dash."""
    parsed = parse(["--kv-cache-dtype-skip-layers", "-0.5", "--seed"], NEWEST)

    assert parsed.problems == ()
    assert [one.flag for one in parsed] == ["--kv-cache-dtype-skip-layers"]
