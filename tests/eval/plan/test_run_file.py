from __future__ import annotations

import codecs
import inspect
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.cli.evaluate.eval import evaluate
from logproof.errors import InputError, UsageError
from logproof.eval.plan import run_file
from logproof.eval.plan.run_file import ModelEntry, RunFile, load, parse, settings_of
from logproof.eval.tasks.task import Settings

GOOD = """
out: runs/monday
tasks:
  - arc_easy_ppl
  - {name: gsm8k_gen, settings: {shots: 3, limit: 50}}
models:
  - {label: native, url: "http://127.0.0.1:8000", dialect: vllm_native}
  - {label: echo, url: "http://127.0.0.1:8000", dialect: openai_completions, key_env: MY_KEY}
settings: {seed: 7, limit: 0.5}
concurrency: 4
"""


def test_a_run_file_names_tasks_models_and_settings() -> None:
    run = parse(GOOD.encode(), "run.yaml")
    assert run.entries() == [
        ("arc_easy_ppl", Settings(seed=7, limit="0.5")),
        ("gsm8k_gen", Settings(seed=7, limit="50", shots=3)),
    ]
    assert [m.label for m in run.models] == ["native", "echo"]
    assert run.models[1].key_env == "MY_KEY"


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (GOOD + "concurency: 3\n", "did you mean 'concurrency'?"),
        (GOOD.replace("shots: 3", "shot: 3"), "did you mean 'shots'?"),
        (GOOD.replace("key_env", "keyenv"), "did you mean 'key_env'?"),
        (GOOD.replace("seed: 7", "sed: 7"), "did you mean 'seed'?"),
        (GOOD + "zzzzzz: 3\n", "known keys: out, tasks"),
    ],
)
def test_unknown_keys_are_refused_with_the_nearest(wrong: str, hint: str) -> None:
    with pytest.raises(UsageError, match="unknown field") as caught:
        parse(wrong.encode(), "run.yaml")
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("", "run.yaml"),
        ("a: [", "no YAML"),
        ("- 1", "run.yaml"),
        (GOOD.replace("concurrency: 4", "concurrency: many"), "concurrency"),
        (GOOD.replace("concurrency: 4", "concurrency: [4]"), "concurrency"),
        (GOOD + "max_failures: -1\n", "max_failures below 0"),
        (GOOD + "patience: -1\n", "patience is seconds from 0 on"),
        (GOOD + "metrics: 70000\n", "no port"),
        (GOOD.replace('"http://127.0.0.1:8000", dialect: vllm_native', "[]"), "a model without a url"),
        (GOOD.replace("concurrency: 4", "concurrency: 0"), "concurrency"),
        (GOOD.replace("concurrency: 4", "concurrency: 1000000000"), "concurrency from 1 to 4096"),
        (GOOD.replace("shots: 3", "shots: -3"), "at least 0"),
        (GOOD.replace("label: echo", "label: native"), "used twice"),
        (GOOD.replace("label: echo", "label: ../up"), "no plain directory name"),
        ("out: x\ntasks: []\nmodels: []\n", "needs a model"),
        ("a: &a [*a]", "run.yaml"),
        ("!!python/object/apply:os.system ['true']", "no YAML"),
    ],
)
def test_wrong_files_are_one_line(wrong: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        parse(wrong.encode(), "run.yaml")
    assert "\n" not in caught.value.message


def test_a_run_file_covers_every_option_of_eval() -> None:
    """Whoever adds an option to the command adds its key, or says here under which name it stands."""
    elsewhere = {"task": "tasks", "model": "url", "directory": "out", "model_name": "name", "header": "headers"}
    keys = {f for kind in (RunFile, ModelEntry, Settings) for f in kind.__struct_fields__}
    options = {name for name in inspect.signature(evaluate).parameters if name != "context"}
    assert {elsewhere.get(name, name) for name in options - {"config", "as_json"}} <= keys


def test_all_of_it_in_one_file() -> None:
    more = "resume: true\naccept: [fp-2]\ncanary: false\nlog: run.log\nmetrics: 0\nfail_fast: true\n"
    text = GOOD.replace("concurrency: 4", "concurrency: auto") + more
    text = text.replace("key_env: MY_KEY", "timeout: 5, key_env: MY_KEY").replace(
        '"http://127.0.0.1:8000", dialect: openai', '["http://one:1", "http://two:2"], dialect: openai'
    )
    run = parse(text.encode(), "run.yaml")
    assert (run.concurrency, run.resume, run.accept, run.fail_fast) == ("auto", True, ["fp-2"], True)
    assert (run.canary, run.log, run.metrics) == (False, "run.log", 0)
    assert [m.urls for m in run.models] == [["http://127.0.0.1:8000"], ["http://one:1", "http://two:2"]]
    assert [m.timeout for m in run.models] == [None, 5.0]


def test_a_byte_order_mark_is_no_part_of_a_run_file() -> None:
    assert parse(codecs.BOM_UTF8 + GOOD.encode(), "run.yaml") == parse(GOOD.encode(), "run.yaml")


def test_files_are_bounded_and_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(GOOD)
    assert load(path).concurrency == 4
    with pytest.raises(InputError, match="cannot read"):
        load(tmp_path / "none.yaml")
    monkeypatch.setattr(run_file, "MAX_BYTES", 10)
    with pytest.raises(InputError, match="longer than 10 bytes"):
        load(path)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_run_file_or_one_error(data: bytes) -> None:
    with pytest.raises(UsageError):
        parse(data, "run.yaml")


def test_limits_may_be_numbers() -> None:
    assert settings_of({"limit": 5}).limit == "5"
    assert settings_of({"limit": "0.5"}).limit == "0.5"
