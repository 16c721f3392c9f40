"""ed25519 seals on artifacts and requests, through the optional package `cryptography`.

A signature says which key sealed the record, nothing about whether the record is honest.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Protocol, cast

import msgspec

from logproof.errors import ArtifactError, UsageError
from logproof.files import read_bounded
from logproof.verify.artifact.artifact import Artifact, Seal, Signature, artifact_digest

KEY_BYTES = 32


class _Public(Protocol):
    def verify(self, signature: bytes, data: bytes) -> None: ...
    def public_bytes_raw(self) -> bytes: ...


class _Private(Protocol):
    def sign(self, data: bytes) -> bytes: ...
    def public_key(self) -> _Public: ...


class _PrivateFactory(Protocol):
    def from_private_bytes(self, data: bytes) -> _Private: ...


class _PublicFactory(Protocol):
    def from_public_bytes(self, data: bytes) -> _Public: ...


class _Library(Protocol):
    Ed25519PrivateKey: _PrivateFactory
    Ed25519PublicKey: _PublicFactory


def _library() -> _Library:
    try:
        module = importlib.import_module("cryptography.hazmat.primitives.asymmetric.ed25519")
    except ImportError:
        raise UsageError("signing needs the package `cryptography`", hint="pip install cryptography") from None
    return cast(_Library, module)


def available() -> bool:
    """Whether signatures can be made and checked here: the package is installed."""
    try:
        _library()
    except UsageError:
        return False
    return True


def signature_of(digest: str, private_key: bytes) -> Signature:
    """The key's signature over a digest. digest: 64 hex digits. private_key: 32 raw bytes.

    Raises UsageError where the key has another length or the package is missing.
    """
    if len(private_key) != KEY_BYTES:
        raise UsageError(f"an ed25519 private key has {KEY_BYTES} bytes, this one {len(private_key)}")
    key = _library().Ed25519PrivateKey.from_private_bytes(private_key)
    return Signature(
        alg="ed25519",
        key_id=key.public_key().public_bytes_raw().hex(),
        value=key.sign(bytes.fromhex(digest)).hex(),
    )


def fits(signature: Signature, digest: str) -> bool:
    """Whether the key that the signature names signed this digest. Raises UsageError where the package is missing."""
    library = _library()
    invalid = importlib.import_module("cryptography.exceptions").InvalidSignature
    try:
        public = library.Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature.key_id))
        public.verify(bytes.fromhex(signature.value), bytes.fromhex(digest))
    except (ValueError, invalid):
        return False
    return True


def sign(artifact: Artifact, private_key: bytes) -> Artifact:
    """The artifact with a signed seal. Raises as `signature_of`."""
    value = artifact_digest(artifact)
    return msgspec.structs.replace(artifact, seal=Seal(digest=value, signature=signature_of(value, private_key)))


def check_signature(artifact: Artifact) -> str:
    """The public key (hex) that signed the artifact's present content.

    Raises ArtifactError: no signature, a digest that is not the content's, a signature that does not fit.
    """
    if artifact.seal is None or artifact.seal.signature is None:
        raise ArtifactError("this artifact is not signed")
    if artifact.seal.digest != artifact_digest(artifact):
        raise ArtifactError("the seal's digest is not the digest of the content")
    if not fits(artifact.seal.signature, artifact.seal.digest):
        raise ArtifactError("the signature does not fit the content and key")
    return artifact.seal.signature.key_id


def signed(artifact: Artifact, private_key: bytes | None) -> Artifact:
    """The artifact, signed where there is a key. Raises as `sign`."""
    return artifact if private_key is None else sign(artifact, private_key)


def read_public_key(text: str) -> str:
    """The public key, lower-case hex, that a text names: 64 hex digits, or a file of 32 bytes, raw or as hex digits.

    Raises UsageError where it names none or the package is missing, InputError for a file that cannot be read.
    """
    if re.fullmatch("[0-9a-fA-F]{64}", text):
        key = bytes.fromhex(text)
    else:
        data = read_bounded(Path(text), 4096)
        digits = data.decode(errors="replace").strip()
        key = bytes.fromhex(digits) if re.fullmatch("[0-9a-fA-F]{64}", digits) else data
    if len(key) != KEY_BYTES:
        raise UsageError(
            f"{text} holds no ed25519 public key", hint="64 hex digits, or a file of 32 bytes, raw or as hex"
        )
    _library()
    return key.hex()


def read_key(path: Path) -> bytes:
    """The private key of a file: 32 bytes, raw or as hex digits. Raises UsageError where it holds none."""
    data = read_bounded(path, 4096)
    if len(data) != KEY_BYTES:
        try:
            data = bytes.fromhex(data.decode())
        except ValueError:
            data = b""
    if len(data) != KEY_BYTES:
        raise UsageError(f"{path} holds no ed25519 private key", hint="32 bytes, raw or as 64 hex digits")
    return data
