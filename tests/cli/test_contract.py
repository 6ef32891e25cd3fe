"""Exit codes, streams and JSON shapes: what scripts rely on."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import specs
import yaml

from kvpp_operator.cli import documents
from kvpp_operator.cli.schema import CommandShape, ValidateShape

GOOD = yaml.safe_dump(specs.deployment(specs.DISAGGREGATED))
BAD = yaml.safe_dump(specs.deployment(specs.DISAGGREGATED, prefill__graphMode="Full"))
OTHER = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n"


@pytest.mark.parametrize(
    ("what", "text", "code"),
    [
        ("an accepted deployment", GOOD, 0),
        ("a refused one", BAD, 1),
        ("a wrong type", GOOD.replace("tensor: 8", "tensor: eight"), 1),
        ("an unknown field", GOOD.replace("tensor: 8", "tensr: 8"), 1),
        ("another kind", OTHER, 0),
        ("nothing", "", 0),
        ("no YAML", "a: [", 2),
        ("a key given twice", "a: 1\na: 2\n", 2),
        ("no text", b"\xff\xfe\x00", 2),
        ("a number that JSON does not have", GOOD + "x: .nan\n", 2),
        ("a list where a deployment should be", "- 1\n", 0),
    ],
)  # fmt: skip
def test_validate_exits_by_what_it_found(kvpp: Any, what: str, text: str | bytes, code: int) -> None:
    for form in ("text", "json", "sarif"):
        assert kvpp("validate", "-o", form, "-", input=text).exit_code == code, (what, form)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("1:30.5", "1:30.5"), ("yes", True), ("off", False), ("010", 8), ("0x10", 16), ("~", None),
        ("y", True), ("N", False), ("8e0", 8), ("1e3", 1000), ("9e-1", 0.9), ("1.6e1", 16), ("16.0", 16), ("0o17", 15),
        ("017", 15), ("08", 8), ("09.5", 9.5), ("1_000", 1000), ("5.", 5), (".5", 0.5), ("+3", 3), ("-0", 0),
        ("0b12", "0b12"), ("=", "="), ("12:30", "12:30"), ("2001-01-01", "2001-01-01"), ("2001-01-01T00:00:00Z", "2001-01-01T00:00:00Z"), ("0.30", 0.3), ("1e400", "1e400"), ("190:20:30", "190:20:30"),
        ("1e", "1e"), ("0x1F_F", 511), ("1__0", 10), ("_1", "_1"), ("1_", 1), ("0b1_0", 2), ("+.5", 0.5), ("-.5e3", -500),
        ("+0x1f", 31), ("0o8", "0o8"), ("099", 99), ("1.5_0", 1.5), ("1._5", 1.5),
    ],
)  # fmt: skip
def test_a_value_is_read_as_kubectl_reads_it(written: str, read: object) -> None:
    """What sigs.k8s.io/yaml v1.6.0, which kubectl reads with, makes of it."""
    [document] = documents.documents("-", f"a: {written}".encode())
    assert isinstance(document, documents.Document)
    assert document.body == {"a": read}
    assert type(document.body["a"]) is type(read)


def test_a_merge_gives_way_to_what_stands_there() -> None:
    """The sizes of another role with one changed; a key that stands twice by itself stays an error."""
    [merged] = documents.documents("-", b"a: &a {b: 1, c: 2}\nd: {<<: *a, c: 3}\ne: {<<: [*a, {b: 5, f: 6}]}")
    assert isinstance(merged, documents.Document)
    assert merged.body == {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}, "e": {"b": 1, "c": 2, "f": 6}}
    [twice] = documents.documents("-", b"a: {<<: {b: 1}, c: 2, c: 3}")
    assert isinstance(twice, documents.Unreadable)


@pytest.mark.parametrize(
    "arguments",
    [
        ("validate",),
        ("validate", "no-such-file.yaml"),
        ("validate", "-o", "xml", "-"),
        ("render", "--config", "no-such-file.yaml", "-"),
        ("validate", ""),
    ],
)
def test_wrong_usage_is_2(kvpp: Any, arguments: tuple[str, ...]) -> None:
    assert kvpp(*arguments, input=GOOD).exit_code == 2


def test_the_report_of_validate(kvpp: Any) -> None:
    report = json.loads(kvpp("validate", "-o", "json", "-", input=f"{BAD}\n---\n{OTHER}").stdout)
    [document] = report["documents"]
    [finding] = document.pop("findings")
    assert document == {"file": "-", "index": 0, "namespace": "default", "name": "demo", "accepted": False}
    assert {key: finding[key] for key in ("rule", "severity", "path", "value")} == {
        "rule": "GRAPH001", "severity": "error", "path": "spec.prefill.graphMode", "value": "Full",
    }  # fmt: skip
    assert all(finding[key] for key in ("message", "source", "fix"))
    assert report["skipped"] == [
        {"file": "-", "index": 1, "kind": "ConfigMap", "namespace": "default", "name": "other"}
    ]


def test_an_unreadable_file_does_not_hide_the_others(kvpp: Any, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: [", "utf-8")
    (tmp_path / "b.yaml").write_text(BAD, "utf-8")
    result = kvpp("validate", "-o", "json", str(tmp_path))
    found = {document["name"]: document["accepted"] for document in json.loads(result.stdout)["documents"]}
    assert (result.exit_code, found) == (2, {"demo": False, None: False})


@pytest.mark.parametrize("command", ["render", "commands"])
def test_a_refusal_prints_findings_on_stderr_and_nothing_else(kvpp: Any, command: str) -> None:
    result = kvpp(command, "-", input=f"{GOOD}\n---\n{BAD}")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "GRAPH001" in result.stderr


def test_commands_as_json(kvpp: Any) -> None:
    lines = [json.loads(line) for line in kvpp("commands", "-o", "json", "-", input=GOOD).stdout.splitlines()]
    assert [(line["role"], line["engine"], line["nodeRank"], line["kvPort"], line["kvPortLast"]) for line in lines] == [
        ("prefill", 0, 0, 22000, 22008), ("decode", 0, 0, 22009, 22024),
    ]  # fmt: skip
    assert all(line["argv"][0] == "serve" and line["env"]["VLLM_HOST_IP"] == "$(POD_IP)" for line in lines)
    assert set(lines[0]) == {"namespace", "name", "role", "engine", "nodeRank", "argv", "env", "kvPort", "kvPortLast"}


def test_commands_as_text_can_be_pasted(kvpp: Any) -> None:
    [prefill, _] = kvpp("commands", "-", input=GOOD).stdout.splitlines()
    assert 'VLLM_HOST_IP="${POD_IP}"' in prefill
    assert """--additional-config '{"enable_kvpp":true}'""" in prefill


def test_render_prints_yaml_or_a_json_list(kvpp: Any) -> None:
    as_yaml = list(yaml.safe_load_all(kvpp("render", "-", input=GOOD).stdout))
    as_json = json.loads(kvpp("render", "-o", "json", "-", input=GOOD).stdout)
    assert as_json == {"apiVersion": "v1", "kind": "List", "items": as_yaml}


def test_a_list_of_deployments_is_read_like_several_documents(kvpp: Any) -> None:
    listing = json.dumps({"apiVersion": "v1", "kind": "List", "items": [yaml.safe_load(GOOD), yaml.safe_load(BAD)]})
    report = json.loads(kvpp("validate", "-o", "json", "-", input=listing).stdout)
    assert [document["accepted"] for document in report["documents"]] == [True, False]


def test_no_colour_in_a_pipe(kvpp: Any) -> None:
    assert "\x1b" not in kvpp("validate", "-", input=BAD).stdout


def test_the_configuration_names_another_repository(kvpp: Any, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("imageRepository: mirror.example/vllm-ascend\n", "utf-8")
    assert "mirror.example/vllm-ascend:v0.30.0rc2-a5" in kvpp("render", "--config", str(config), "-", input=GOOD).stdout


def test_a_wrong_configuration_is_wrong_usage(kvpp: Any, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("imageRepo: x\n", "utf-8")
    result = kvpp("validate", "--config", str(config), "-", input=GOOD)
    assert (result.exit_code, "imageRepo" in result.stderr) == (2, True)


def test_what_is_printed_has_the_published_shape(kvpp: Any) -> None:
    texts = [GOOD, BAD, OTHER, "- 1\n", "a: [", "", GOOD.replace("tensor: 8", "tensor: [1, {a: b}]")]
    for text in texts:
        ValidateShape.model_validate_json(kvpp("validate", "-o", "json", "-", input=text).stdout)
    for line in kvpp("commands", "-o", "json", "-", input=GOOD).stdout.splitlines():
        CommandShape.model_validate_json(line)


def test_five_hundred_documents_in_a_folder(kvpp: Any, tmp_path: Path) -> None:
    for number in range(500):
        body = specs.deployment(specs.DISAGGREGATED if number % 2 else specs.UNIFIED, name=f"d{number:03}")
        if number % 100 == 99:
            body["spec"]["prefill"]["graphMode"] = "Full"
        (tmp_path / f"{number:03}.yaml").write_text(yaml.safe_dump(body), "utf-8")
    result = kvpp("validate", str(tmp_path))
    assert (result.exit_code, "500 documents: 495 accepted, 5 refused" in result.stdout) == (1, True)


def test_sarif_names_rule_file_and_place(kvpp: Any) -> None:
    [run] = json.loads(kvpp("validate", "-o", "sarif", "-", input=BAD).stdout)["runs"]
    [result] = run["results"]
    assert (result["ruleId"], result["level"]) == ("GRAPH001", "error")
    assert result["locations"][0]["logicalLocations"][0]["fullyQualifiedName"] == "spec.prefill.graphMode"
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["GRAPH001"]


def test_an_unreadable_file_is_a_finding_in_every_form(kvpp: Any) -> None:
    said = "The file can't be read: "
    text, sarif, lines = (kvpp("validate", "-o", form, "-", input="{{") for form in ("text", "sarif", "json"))
    assert (text.exit_code, sarif.exit_code, lines.exit_code) == (2, 2, 2)
    assert "error SCHEMA000 - $" in text.stdout and said in text.stdout
    [result] = json.loads(sarif.stdout)["runs"][0]["results"]
    assert result["ruleId"] == "SCHEMA000" and said in result["message"]["text"]
    [document] = json.loads(lines.stdout)["documents"]
    assert document["findings"][0]["message"].startswith(said)
    assert "readable YAML" in kvpp("explain", "SCHEMA000").stdout


def test_capacity_is_predicted_for_roles_with_kvpp(kvpp: Any) -> None:
    """Decode runs without KVPP, so nothing is said of it."""
    one = specs.deployment(specs.DISAGGREGATED)
    answer = kvpp("capacity", "-o", "json", "-", input=yaml.safe_dump(one))
    assert json.loads(answer.stdout) == [
        {"namespace": "default", "name": "demo", "role": "prefill", "group": 8, "multiplier": 6.11, "method": "arithmetic"}
    ]  # fmt: skip
    assert kvpp("capacity", "-", input=yaml.safe_dump(one)).stdout.splitlines()[1].split() == [
        "default/demo", "prefill", "8", "6.11", "arithmetic",
    ]  # fmt: skip
    assert (kvpp("capacity", "-", input=BAD).exit_code, kvpp("capacity", "-", input=BAD).stdout) == (1, "")


def test_version(kvpp: Any) -> None:
    assert kvpp("--version").stdout == f"kvpp, version {version('kvpp-operator')}\n"


def test_explain_and_rules(kvpp: Any) -> None:
    text = kvpp("explain", "graph001").stdout
    assert all(word in text for word in ("GRAPH001", "source", "versions", "evidence", "breaks it"))
    assert kvpp("explain", "GRAPH999").exit_code == 2
    assert "GRAPH001" in kvpp("rules").stdout
    assert {rule["id"] for rule in json.loads(kvpp("rules", "-o", "json").stdout)} >= {"GRAPH001", "GRAPH002"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "the following arguments are required: --deployment"),
        (("--deployment", "glm", "--service", "glm-router", "--sevice"), "unrecognized arguments: --sevice"),
        (("--deployment", "glm", "--service", "glm-router"), "--namespace or POD_NAMESPACE is needed"),
        (("--deployment", "glm", "--service", "s", "--namespace", "n"), "kvpp: no way to the API server: "),
    ],
)
def test_a_routers_agent_says_why_it_does_not_start(
    kvpp: Any, monkeypatch: pytest.MonkeyPatch, capfd: Any, arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    result = kvpp("router-agent", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr + capfd.readouterr().err


def test_a_routers_agent_lists_its_options(kvpp: Any) -> None:
    result = kvpp("router-agent", "--help")
    assert result.exit_code == 0
    assert "--drain-delay" in result.stdout
