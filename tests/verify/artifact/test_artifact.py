from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest

from logproof.errors import ArtifactError, UsageError
from logproof.verify.artifact import signing
from logproof.verify.artifact.artifact import (
    Artifact,
    Positions,
    RecordedSampling,
    Seal,
    Signature,
    TokenIds,
    artifact_columns,
    artifact_digest,
    artifact_schema,
    canonical_form,
    decode_artifact,
    encode_artifact,
)
from logproof.verify.stats.sampler import Sampler
from verify.builders import artifact, change, draw, logits, record

SCHEMA_FILE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "artifact.schema.json"


@pytest.fixture
def made() -> Artifact:
    z = logits(6, 1)
    return artifact(record(z, draw(z, Sampler(1.0), 7), 4), k=4)


def test_json_round_trip(made: Artifact) -> None:
    assert decode_artifact(encode_artifact(made)) == made
    assert b"\n" not in encode_artifact(made)


def test_published_schema_is_current_and_fits(made: Artifact) -> None:
    schema = json.loads(SCHEMA_FILE.read_text())
    assert schema == json.loads(json.dumps(artifact_schema())), "run make docs"
    jsonschema.validate(json.loads(encode_artifact(made)), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**json.loads(encode_artifact(made)), "extra": 1}, schema)


def nested(levels: int) -> object:
    """Arrays and objects in each other."""
    value: object = 1
    for i in range(levels):
        value = [value] if i % 2 else {"a": value}
    return value


def test_a_deep_request_has_a_digest(made: Artifact) -> None:
    document = {**json.loads(encode_artifact(made)), "seal": None}
    document["request"]["body"] = nested(100)
    assert len(artifact_digest(decode_artifact(json.dumps(document)))) == 64


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda d: d.update(extra=1), "unknown field"),
        (lambda d: d.pop("tokens"), "tokens"),
        (lambda d: d.pop("logprobs"), "logprobs"),
        (lambda d: d["logprobs"].pop("mode"), "mode"),
        (lambda d: d.update(schema="logproof-artifact/9"), "Invalid enum value"),
        (lambda d: d["tokens"].update(completion_ids=["5"]), "int"),
        (lambda d: d["tokens"].update(completion_ids=[True]), "int"),
        (lambda d: d["tokens"].update(completion_ids=[1.5]), "int"),
        (lambda d: d["positions"]["ids"][0].append(2**63), "64 bits"),
        (lambda d: d["positions"].update(kept=[-(2**63) - 1]), "64 bits"),
        (lambda d: d["request"].update(body=nested(101)), "100 levels"),
    ],
)
def test_what_is_missing_or_unknown_is_malformed(made: Artifact, edit: object, match: str) -> None:
    document = json.loads(encode_artifact(made))
    assert callable(edit)
    edit(document)
    with pytest.raises(ArtifactError, match=match):
        decode_artifact(json.dumps(document))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b'{"schema":' + b"[" * 100_000, b"NaN"])
def test_not_json(data: bytes) -> None:
    with pytest.raises(ArtifactError):
        decode_artifact(data)


def test_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logproof.verify.artifact.artifact.MAX_BYTES", 10)
    with pytest.raises(ArtifactError, match="limit"):
        decode_artifact(b" " * 11)


def test_digest_covers_everything_but_the_seal(made: Artifact) -> None:
    assert made.seal is not None
    assert artifact_digest(made) == made.seal.digest
    assert artifact_digest(msgspec.structs.replace(made, seal=None)) == made.seal.digest
    assert made.positions is not None
    nudged = tuple((v[0] - 1e-9, *v[1:]) if i == 3 else v for i, v in enumerate(made.positions.logprobs))
    others = (
        msgspec.structs.replace(made, created_at="2026-01-02T03:04:06+00:00"),
        msgspec.structs.replace(made, positions=msgspec.structs.replace(made.positions, logprobs=nudged)),
        msgspec.structs.replace(made, positions=msgspec.structs.replace(made.positions, sampled=(None,) * 6)),
        msgspec.structs.replace(made, request=msgspec.structs.replace(made.request, body={"temperature": 0.5})),
    )
    assert len({made.seal.digest, *map(artifact_digest, others)}) == 5


def test_canonical_form_holds_no_json_floats(made: Artifact) -> None:
    def floats(value: object) -> bool:
        if isinstance(value, dict):
            return any(map(floats, value.values()))
        return any(map(floats, value)) if isinstance(value, list) else isinstance(value, float)

    body = json.loads(canonical_form(made))
    assert not floats(body)
    assert body["sampling"]["temperature"] == (1.0).hex()
    assert list(body) == sorted(body)


def test_moving_a_value_between_rows_changes_the_digest(made: Artifact) -> None:
    a = msgspec.structs.replace(made, positions=Positions(sampled=(), ids=((1, 2), (3,)), logprobs=((), ())))
    b = msgspec.structs.replace(made, positions=Positions(sampled=(), ids=((1,), (2, 3)), logprobs=((), ())))
    assert artifact_digest(a) != artifact_digest(b)


def test_what_cannot_be_sealed(made: Artifact) -> None:
    with pytest.raises(ArtifactError, match="finite"):
        artifact_digest(change_body(made, {"temperature": float("nan")}))
    rows = Positions(sampled=(), ids=((2**70,),), logprobs=((),))
    with pytest.raises(ArtifactError, match="64 bits"):
        artifact_digest(msgspec.structs.replace(made, positions=rows))


def change_body(made: Artifact, body: object) -> Artifact:
    return msgspec.structs.replace(made, request=msgspec.structs.replace(made.request, body=body))


def test_columns_need_ids_and_logprobs(made: Artifact) -> None:
    assert len(artifact_columns(made)) == 6
    with pytest.raises(ArtifactError, match="no token ids"):
        artifact_columns(change(made, positions=None, logprobs=None))
    with pytest.raises(ArtifactError, match="fit together"):
        artifact_columns(change(made, tokens=TokenIds(prompt_ids=(1,), completion_ids=(1,))))


def test_unresolved_sampling_is_named() -> None:
    assert "seed" not in RecordedSampling().unresolved()
    assert RecordedSampling(temperature=1.0).unresolved()[:2] == ("top_p", "top_k")


KEY = bytes(range(32))


def test_signature(made: Artifact) -> None:
    signed = signing.sign(made, KEY)
    assert signed.seal is not None
    assert signed.seal.signature is not None
    assert signing.check_signature(signed) == "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"
    assert signing.check_signature(decode_artifact(encode_artifact(signed))) == signed.seal.signature.key_id
    with pytest.raises(ArtifactError, match="not the digest"):
        signing.check_signature(msgspec.structs.replace(signed, artifact_id="other"))
    other = msgspec.structs.replace(signed.seal.signature, value="00" * 64)
    with pytest.raises(ArtifactError, match="does not fit"):
        signing.check_signature(with_signature(signed, other))
    with pytest.raises(ArtifactError, match="does not fit"):
        signing.check_signature(with_signature(signed, msgspec.structs.replace(other, key_id="zz")))
    with pytest.raises(ArtifactError, match="not signed"):
        signing.check_signature(made)
    with pytest.raises(UsageError, match="32 bytes"):
        signing.sign(made, b"short")


def with_signature(made: Artifact, signature: Signature) -> Artifact:
    assert made.seal is not None
    return msgspec.structs.replace(made, seal=Seal(digest=made.seal.digest, signature=signature))


def test_signing_without_the_package(made: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(signing.importlib, "import_module", refuse)
    with pytest.raises(UsageError, match="needs the package") as caught:
        signing.sign(made, KEY)
    assert caught.value.hint == "pip install cryptography"
