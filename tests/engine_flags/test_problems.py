"""What the engine's parser refuses, in words for the person who wrote it."""

from __future__ import annotations

import pytest

from kvpp_operator.engine_flags import ParsedArguments, catalogue, parse, requirements

NEWEST = catalogue("0.30.0rc2")

REFUSED = {
    "a typo": (["--tool-call-parsr", "glm47"], "unknown-flag", "--tool-call-parser"),
    "another project's flag": (["--enable-kvpp"], "unknown-flag", ""),
    "a short flag glued to its value": (["-tp4"], "unknown-flag", ""),
    "an abbreviated short flag with =": (["-t=4"], "unknown-flag", ""),
    "an abbreviation of several": (["--data-parallel-s", "2"], "ambiguous-flag", "--data-parallel-supervisor-port"),
    "no value": (["--seed"], "missing-value", ""),
    "no value before the next flag": (["--seed", "--enforce-eager"], "missing-value", ""),
    "no value of many": (["--served-model-name"], "missing-value", ""),
    "no value of a key": (["--compilation-config.mode"], "missing-value", ""),
    "a value too many": (["--seed", "1", "2"], "positional", ""),
    "a value for a switch": (["--enforce-eager", "true"], "positional", ""),
    "a value glued to a switch": (["--enforce-eager=true"], "unexpected-value", ""),
    "not an integer": (["--seed", "many"], "wrong-type", ""),
    "a fraction": (["--seed", "1.5"], "wrong-type", ""),
    "a suffix where none is read": (["--max-num-seqs", "1k"], "wrong-type", ""),
    "a fraction of a power of two": (["--max-model-len", "1.5K"], "wrong-type", ""),
    "not a number": (["--gpu-memory-utilization=most"], "wrong-type", ""),
    "not a choice": (["--dtype", "bfloat1"], "not-a-choice", "bfloat16"),
    "the choice None, which can't be chosen": (["--dcp-comm-backend", "None"], "not-a-choice", ""),
    "a number that is no choice": (["--max-lora-rank", "17"], "not-a-choice", ""),
    "not JSON": (["--additional-config", "{enable_kvpp: true}"], "invalid-json", ""),
    "not JSON either": (["--speculative-config={'method': 'mtp'}"], "invalid-json", ""),
    "a key of no class": (["--compilation-config", '{"cudagraf_mode": "FULL"}'], "unknown-key", "cudagraph_mode"),
    "a dotted key of no class": (["--compilation-config.cudagraf_mode", "FULL"], "unknown-key", "cudagraph_mode"),
    "a value of no kind": (["--compilation-config.cudagraph_mode", "SOME"], "wrong-type", ""),
    "a key's wrong type": (["--kv-transfer-config", '{"kv_port": "high"}'], "wrong-type", ""),
    "a list for an object": (["--kv-transfer-config", "[]"], "wrong-type", ""),
    "keys of a plain flag": (["--seed.x", "1"], "no-keys", ""),
    "a level with a key": (["-O.level=3", "-x"], "unknown-flag", ""),
    "a word alone": (["stray"], "positional", ""),
    "a separator": (["--"], "separator", ""),
    "help": (["--help"], "stops-early", ""),
    "help about something": (["--help=seed"], "stops-early", ""),
    "the model again": (["--model", "/other"], "second-model", ""),
    "the model again, in one word": (["--model=/other"], "second-model", ""),
    "a file of another kind": (["--config", "serve.json"], "config-file", ""),
    "a file that is missing": (["--config"], "missing-value", ""),
}  # fmt: skip


@pytest.mark.parametrize(("words", "kind", "closest"), REFUSED.values(), ids=REFUSED)
def test_a_mistake_is_found(words: list[str], kind: str, closest: str) -> None:
    _, problem = parse(words, NEWEST).problems[0]

    assert problem.kind == kind
    assert (problem.closest[0] if closest else "") == closest


def test_all_mistakes_are_found_at_once() -> None:
    parsed = parse(
        ["--seed", "many", "--tool-call-parsr", "x", "--dtype=f", "stray", "--compilation-config.mod=1"], NEWEST
    )

    assert [(one.index, problem.kind) for one, problem in parsed.problems] == [
        (0, "wrong-type"), (2, "unknown-flag"), (4, "not-a-choice"), (5, "positional"), (6, "unknown-key"),
    ]  # fmt: skip


def test_the_words_after_an_unknown_flag_are_not_blamed_as_well() -> None:
    (one,) = parse(["--tool-call-parsr", "a", "b"], NEWEST)

    assert (one.values, len(one.problems)) == (("a", "b"), 1)


def test_each_key_is_blamed_for_itself() -> None:
    parsed = parse(["--kv-transfer-config.kv_port", "high", "--kv-transfer-config.kv_role", "kv_both"], NEWEST)

    assert [(one.path, [problem.message for problem in one.problems]) for one in parsed] == [
        ("kv_port", ['--kv-transfer-config.kv_port takes an integer, not "high"']),
        ("kv_role", []),
    ]


def test_a_message_says_what_was_written_and_what_is_expected() -> None:
    words = ["--seed", "many", "--max-model-len", "long", "--compilation-config.cudagraph_mode", "SOME"]

    assert [problem.message for _, problem in parse(words, NEWEST).problems] == [
        "--seed takes an integer, not 'many'",
        "--max-model-len takes an integer, also as 32k or 1M, or auto, not 'long'",
        (
            "--compilation-config.cudagraph_mode takes one of NONE, PIECEWISE, FULL, FULL_DECODE_ONLY, FULL_AND_PIECEWISE or "
            'one of 0, 1, 2, not "SOME"'
        ),
    ]


NEEDS = {
    "a parser for tools": (["--enable-auto-tool-choice"], ["--enable-auto-tool-choice"]),
    "a parser for tools, given": (["--enable-auto-tool-choice", "--tool-call-parser", "glm47"], []),
    "tools switched off again": (["--enable-auto-tool-choice", "--no-enable-auto-tool-choice"], []),
    "log of requests": (["--enable-log-outputs"], ["--enable-log-outputs"]),
    "statistics": (["--enable-per-request-metrics", "--disable-log-stats"], ["--enable-per-request-metrics"]),
    "no servers on other nodes": (["--headless", "--api-server-count", "2"], ["--api-server-count"]),
    "zero servers on other nodes": (["--headless", "--api-server-count", "0"], []),
    "one balancer": (["--data-parallel-start-rank", "2", "-dpe"], ["--data-parallel-start-rank"]),
}


@pytest.mark.parametrize(("words", "blamed"), NEEDS.values(), ids=NEEDS)
def test_a_flag_that_needs_another(words: list[str], blamed: list[str]) -> None:
    parsed: ParsedArguments = parse(words, NEWEST)

    assert parsed.problems == ()
    assert [one.flag for one, _ in requirements(parsed)] == blamed
