"""The sampler that a record claims."""

from __future__ import annotations

import msgspec

from logproof.verify.stats.sampler import Sampler, bending, claimed
from verify import builders


def test_the_claimed_sampler() -> None:
    told = builders.sampling(Sampler(0.7, 5, 0.9, 0.1), 1, 4)
    assert claimed(told, "raw") == Sampler(0.7, 5, 0.9, 0.1)
    assert claimed(told, "processed") == Sampler(1.0)
    assert claimed(told, "unknown") == "the logprobs' meaning is unknown"
    assert Sampler(0.0).greedy
    assert not Sampler(0.7).plain
    assert Sampler(1.0).plain
    bent = msgspec.structs.replace(told, presence_penalty=1.5)
    assert bending(bent) == ("presence_penalty",)
    assert "presence_penalty" in str(claimed(bent, "raw"))
    assert claimed(bent, "processed") == Sampler(1.0)
    assert claimed(msgspec.structs.replace(told, temperature=0.0), "processed") == Sampler(0.0)
    open_ = msgspec.structs.replace(told, top_p=None)
    assert "unresolved" in str(claimed(open_, "raw"))
    assert bending(msgspec.structs.replace(told, logit_bias=None)) == ("logit_bias",)
