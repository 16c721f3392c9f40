"""`calibrate`, as a command."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cli.verify import judging
from cli.verify.judging import SHORT, captured, invoke, requests_of, start
from fakes.server import FakeServer
from logproof.verify.artifact import artifact_files
from logproof.verify.artifact.artifact import TokenIds, seal
from logproof.verify.policy import load
from logproof.verify.requirements import NumberFormat
from verify.tiny import Tiny

fake, prompts, rules = judging.fake, judging.prompts, judging.rules


def test_calibrate_writes_a_policy(
    fake: FakeServer, prompts: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "p.json"
    args = (
        "calibrate",
        prompts,
        "--engine",
        fake.url,
        "-o",
        out,
        "-k",
        10,
        "--nonce",
        "c",
        "--concurrencies",
        "2",
        *SHORT,
    )
    assert invoke(*args) == 0
    text = capfd.readouterr().out
    assert "an exact pair: equality within 1.0e-04 nat; other machines were not seen" in text
    assert "machines: vllm 0.32.0, float32, cpu" in text
    assert "requires a seed that the executor did not choose" in text
    assert "requires sampling: greedy, temperature 1, top_p 1, top_k off, min_p 0" in text
    assert "requires an executor: vllm 0.32.0 v1 cpu v1-cpu-splitmix" in text
    assert "requires logprobs in float32" in text
    assert "held-out sequences" in text
    made = load(out.read_bytes())
    assert made.floor.repeat == 0.0
    assert made.model_id == "tiny"
    path = captured(fake, prompts)
    assert invoke("verify", path, "--engine", fake.url, "--policy", out, "--requests", requests_of(path)) == 0
    assert invoke(*args[: -len(SHORT) - 1], "1,none", *SHORT) == 3


def test_calibrate_takes_honest_artifacts_of_other_machines(
    fake: FakeServer, prompts: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Records that differ a little from the trusted engine make a policy that is not exact, and are counted."""
    rules, other = prompts.with_name("p.json"), prompts.with_name("o.jsonl")
    args = ("calibrate", prompts, "--engine", fake.url, "-o", rules, "-k", 10, "--nonce", "c", "--concurrencies", 2,
            "--no-greedy", "--eos-id", 0, *SHORT)  # fmt: skip
    assert invoke(*args) == 0
    alone = load(rules.read_bytes())
    with FakeServer() as machine:
        start(machine, Tiny(jitter=0.02))
        captured(machine, prompts, "o.jsonl")
    assert invoke(*args, "--honest", other) == 0
    made = load(rules.read_bytes())
    assert (alone.exact is None, made.exact is None) == (False, True)
    assert made.rates.tokens > alone.rates.tokens
    bare = [
        seal(
            msgspec.structs.replace(
                a, tokens=TokenIds(prompt_ids=None, completion_ids=None), positions=None, logprobs=None
            )
        )
        for a in artifact_files.read(other)
    ]
    artifact_files.write(other, bare)
    assert invoke(*args, "--honest", other) == 4
    assert "the record holds no ids or no logprobs" in capfd.readouterr().err


def test_calibrate_counts_an_honest_record_once_and_mixes_no_models(
    fake: FakeServer, prompts: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rules, other, second = (prompts.with_name(n) for n in ("p.json", "o.jsonl", "q.jsonl"))
    base = ("-k", 10, "--eos-id", 0, *SHORT)
    args = ("calibrate", prompts, "--engine", fake.url, "-o", rules, "--nonce", "c", "--concurrencies", 2, *base,
            "--identity", f"weights_digest={'a' * 64}", "--honest", other)  # fmt: skip
    with FakeServer() as machine:
        start(machine, Tiny(jitter=0.02))
        captured(machine, prompts, "o.jsonl")
        assert invoke(*args) == 0
        single = load(rules.read_bytes())
        capfd.readouterr()
        assert invoke(*args, "--honest", other) == 0
        assert "14 of 28 honest records are repeats" in capfd.readouterr().err
        double = load(rules.read_bytes())
        assert (double.scores, double.rates.tokens) == (single.scores, single.rates.tokens)
        told = ("--identity", f"weights_digest={'b' * 64}")
        assert invoke("capture", prompts, "-m", machine.url, "-o", second, "--nonce", "n", *base, *told) == 0
    assert invoke(*args, "--honest", second) == 3
    assert f"weights_digest {'a' * 64} and {'b' * 64}" in capfd.readouterr().err


def test_calibrate_says_when_there_are_too_few_scores(
    prompts: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with FakeServer() as noisy:
        start(noisy, Tiny(jitter=0.05))
        code = invoke(
            "calibrate", prompts, "--engine", noisy.url, "-o", tmp_path / "p.json", "-k", 10, "--no-greedy",
            "--nonce", "c", "--concurrencies", "1", *SHORT,
        )  # fmt: skip
    assert code == 0
    assert "add prompts" in capfd.readouterr().err


def test_calibrate_requires_the_format_and_names_the_processor_that_were_given(
    fake: FakeServer, prompts: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rules, fixed = prompts.with_name("p.json"), prompts.with_name("f.jsonl")
    base = ("-k", 10, "--eos-id", 0, *SHORT)
    args = ("calibrate", prompts, "--engine", fake.url, "-o", rules, "--nonce", "c", "--concurrencies", 2, *base)
    assert invoke(*args, "--fixed", "--processor", "Xeon 8581C") == 0
    made = load(rules.read_bytes())
    assert made.requires.numbers == (NumberFormat(format="fixed", denominator=1024),)
    assert made.exact == 1e-4
    assert "machines: vllm 0.32.0, float32, Xeon 8581C" in capfd.readouterr().out
    asked = ("--requests", requests_of(fixed))
    assert invoke("capture", prompts, "-m", fake.url, "-o", fixed, "--fixed", "--nonce", "n", *asked, *base) == 0
    assert invoke("verify", fixed, "--engine", fake.url, "--policy", rules, *asked) == 0
    capfd.readouterr()
    assert invoke("verify", captured(fake, prompts), "--engine", fake.url, "--policy", rules) == 2
    assert "float32, required fixed 1/1024" in capfd.readouterr().out


def test_calibrate_says_that_engines_make_other_prompts_of_one_text(
    fake: FakeServer, prompts: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two honest engines with different templates would make every record of the one invalid on the other."""
    with FakeServer() as executor:
        start(executor, Tiny(lead="Be brief. "))
        args = ("--engine", fake.url, "--executor", executor.url, "-o", prompts.with_name("p.json"), "-k", 10)
        assert invoke("calibrate", prompts, *args, "--nonce", "c", "--concurrencies", 2, *SHORT) == 4
    assert "both engines make other prompt ids of one request" in capfd.readouterr().err
