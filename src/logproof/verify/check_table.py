"""The table of all checks: what each is called, what it sees and what it is blind to. Pure.

`Finding.test` takes only ids of this table; the blind texts of findings and the table of docs/verification.md are made
from it. Ids are what verdicts on disk hold: they never change, and a check that is gone leaves its id unused.
"""

from __future__ import annotations

import msgspec


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One test of the verifier.

    id: as `Finding.test` holds it. name: a few words. sees: what is computed. source: whose idea it is. file: where its
    code lies, below verify/. blind: what it cannot see, as its findings say it. blind_also: what else it cannot see,
    for documents alone. exact: an honest record never fails it. note: it never rejects.
    """

    id: str
    name: str
    sees: str
    source: str
    file: str
    blind: str = ""
    blind_also: str = ""
    exact: bool = False
    note: bool = False


SEEDS_CHOSEN = "seeds chosen to fit"
"""What every test of a seed is blind to, where the executor chose it."""

STRUCTURE = Check(
    id="S0a",
    name="structure",
    sees="ids in range and distinct, counts equal, logprobs finite, at most 0, sum at most 1, in their number format,"
    " whose rounding is no larger than the format makes it and whose unit is fine enough; rows as wide as was asked,"
    " but where the claimed cuts explain it; the vocabulary that policy and trusted engine know; seal and signature",
    source="our rules, exact",
    file="checks/structure.py",
    blind="anything wrong but consistent",
    exact=True,
)
ROUNDING = Check(
    id="S0b",
    name="rounding",
    sees="share of rows whose differences are multiples of 1/32 (bfloat16) or 1/256 (float16), times the temperature if"
    " processed: float32 that lies there is none (exact); else noted, with the dtype and temperature that fit",
    source="rounding of logits",
    file="checks/rounding.py",
    blind="models that scale or cap logits, float32 heads, forged values",
    blind_also="coarse recording",
    exact=True,
)
MASS = Check(
    id="S0c",
    name="mass of the recorded rows",
    sees="rows that no processed logprobs have (exact): those that list all that was kept sum to 1, and top-k leaves"
    " nothing but ties with its k-th; else a note where all rows sum to 1 under raw ones",
    source="normalisation after the cuts, exact",
    file="checks/mass.py",
    blind="rows narrower than what was kept, forged sums",
    blind_also="temperature 1 without cuts",
    exact=True,
)
END = Check(
    id="S6",
    name="end",
    sees="finish reason, stop ids, stop strings in the decoded text, EOS and counts against the claim (exact);"
    " reported only: the chance of the end that was drawn, or of one at a cut end, of the likeliest end passed by, and"
    " of passing all by",
    source="our rules; the rows under the claimed sampler",
    file="checks/end.py",
    blind="an early stop on a likely end",
    exact=True,
)
SELF_REPLAY = Check(
    id="S4",
    name="self-replay",
    sees="the recorded logprobs and the seed must draw the recorded tokens; greedy: each token is the best of its own"
    " row",
    source="the sampler's definition, exact",
    file="checks/seed.py",
    blind="a wrong model that is consistent with itself",
    blind_also=f"{SEEDS_CHOSEN}; profiles that cannot be replayed",
    exact=True,
)
SEED_ORIGIN = Check(
    id="seed",
    name="who chose the seed",
    sees="the recorded request states the seed, derived from a nonce or not; of several choices, it asks for as many",
    source="our rules",
    file="checks/seed.py",
    blind="a requester who is in league with the executor",
)
REQUEST = Check(
    id="request",
    name="the request that was recorded",
    sees="every leaf that the request's body states is the record's: sampling, seed, limits, stops, constraint, model,"
    " choices, width and kind of logprobs; what it leaves out is not said to be requested",
    source="our rules, exact",
    file="checks/request_match.py",
    blind="values that the request left to the server, and a body that is not the one that was sent",
    exact=True,
)
PROMPT = Check(
    id="prompt",
    name="the requester's prompt",
    sees="the recorded prompt ids are those that the verifier makes from the requester's own request, with the trusted"
    " engine's tokenizer and template (exact); of a request that only the record tells of, a contradiction alone",
    source="our rules, exact",
    file="checks/prompt_match.py",
    blind="a trusted engine whose template is not the promised one",
    blind_also="prompts that are not text or ids, and fields whose effect on the prompt is not certain: no level above"
    " `distribution`",
    exact=True,
)
CLAIM = Check(
    id="claim",
    name="stated, not requested",
    sees="the sampling values that the request did not name, and who stated them",
    source="our rules",
    file="checks/claim.py",
    blind_also="a false statement about the server's defaults",
    note=True,
)
POLICY = Check(
    id="policy",
    name="whether the policy speaks about this record",
    sees="its last day, model, tokenizer, method, mode and width against the record's and the replay's; what it"
    " requires of seed, executor, sampler, sampling, number format and key against what the record claims. Fails where"
    " a seed that the request asks for is missing or binds nobody",
    source="our rules",
    file="checks/policy_match.py",
    blind="a false claim of what is required, which the other tests hold against the evidence",
)
REQUIREMENTS = Check(
    id="requires",
    name="whether the policy says what a record must have",
    sees="sampling ranges, kinds of executor and number formats stand in the policy; without them no verdict is above"
    " *distribution*",
    source="our rules",
    file="checks/policy_match.py",
    blind="requirements that are wider than what was calibrated",
)
ALIGNMENT = Check(
    id="align",
    name="alignment",
    sees="the replay emitted the recorded ids, and reports logprobs of the same kind; else nothing is compared",
    source="our rules",
    file="checks/alignment.py",
    blind_also="an engine that reports another kind than it gives",
)
DISTRIBUTION = Check(
    id="S1",
    name="distribution",
    sees="tz: mean of ln(1 + z²/4), z = (e - v) / honest scale at this depth; conformal p-value among honest records of"
    " this length. Equality where the pair of engines is exact",
    source="ours; conformal prediction",
    file="checks/distribution.py",
    blind="who wrote the text: a foreign text scored by the right model has distance 0",
)
TOO_GOOD = Check(
    id="N1",
    name="too good",
    sees="over 90 % of entries equal to the last bit where the pair is not exact",
    source="ours",
    file="checks/distribution.py",
    blind_also="added noise",
    note=True,
)
SEED = Check(
    id="S2",
    name="seed",
    sees="the draw repeated on v; margins by which recorded tokens lose: their mean, each capped at 0.5 nat, among"
    " honest records of this length (conformal p-value), and a bet token by token that a share of the tokens is"
    " another's",
    source="Gumbel-max; ours; betting e-process",
    file="checks/seed.py",
    blind=f"{SEEDS_CHOSEN}, speculative decoding",
)
GREEDY = Check(
    id="S2g",
    name="greedy",
    sees="tokens more than one rounding step below the best, ties as sets; bet against the honest share",
    source="ours",
    file="checks/sampling.py",
    blind="foreign text in flat regions",
)
SAMPLING = Check(
    id="S3",
    name="sampling",
    sees="surprise against entropy (calibrated z), tokens outside top-k, top-p or min-p, tempered alternatives"
    " (e-process)",
    source="textbook; likelihood ratios",
    file="checks/sampling.py",
    blind="weight changes that keep the distribution nearly the same",
    blind_also="texts with little entropy",
)
OTHER_PROMPT = Check(
    id="S5",
    name="other prompt",
    sees="fall of tz under another prompt, where S1 failed",
    source="ours",
    file="audit/explain.py",
    blind="prompts that were not tried; another model fits badly under all",
    note=True,
)

CHECKS: dict[str, Check] = {
    check.id: check
    for check in (
        STRUCTURE,
        ROUNDING,
        MASS,
        END,
        SELF_REPLAY,
        SEED_ORIGIN,
        REQUEST,
        PROMPT,
        CLAIM,
        POLICY,
        REQUIREMENTS,
        ALIGNMENT,
        DISTRIBUTION,
        TOO_GOOD,
        SEED,
        GREEDY,
        SAMPLING,
        OTHER_PROMPT,
    )
}
"""Every check by its id, in the order of the documents."""
