from __future__ import annotations

from eval.toy import ToyEngine, connection, ready
from logproof.eval.plan.run_identity import provenance
from logproof.store.digest import canonical


def test_sample_keys_tell_apart_whatever_changes_a_sample() -> None:
    conn = connection(ToyEngine())
    other = connection(ToyEngine(), "openai_completions")
    keys = set()
    for c, settings in [(conn, {}), (conn, {"shots": 2}), (conn, {"seed": 1}), (conn, {"max_tokens": 9}), (other, {})]:
        job = ready(c, "gsm8k_gen", limit="1", **settings)[0]
        doc = next(job.docs())
        keys |= {job.key(doc, 0), job.key(doc, 1)}
    assert len(keys) == 10
    again = ready(conn, "gsm8k_gen", limit="2")[0]
    assert again.key(next(again.docs()), 0) in keys


def test_provenance_holds_what_decides_results_and_no_url_in_identity() -> None:
    conn = connection(ToyEngine(), fingerprint="fp1")
    stored = provenance(ready(conn, "gsm8k_gen", "arc_easy_ppl", limit="3"), [conn], {"concurrency": 4})
    assert stored.fingerprints == ("fp1",)
    assert set(stored.tasks) == set(stored.datasets) == set(stored.few_shot) == {"gsm8k_gen", "arc_easy_ppl"}
    assert "127.0.0.1" not in canonical([stored.config, stored.model, stored.tasks])
    other = provenance(ready(conn, "gsm8k_gen", limit="3", seed=1), [conn], {})
    assert other.tasks["gsm8k_gen"] != stored.tasks["gsm8k_gen"]
