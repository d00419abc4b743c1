"""AWS Signature Version 4 with the standard library alone: signed headers and presigned URLs.

The SDKs sign what they send; these tests also need requests that no SDK makes: a signed `slice=`,
a presigned URL with a parameter added, an unsigned `x-amz-*` header.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
from urllib.parse import quote, urlsplit

UNSIGNED = "UNSIGNED-PAYLOAD"
EMPTY = hashlib.sha256(b"").hexdigest()


def _quote(text: str) -> str:
    return quote(text, safe="-_.~")


def canonical_query(params: list[tuple[str, str]]) -> str:
    """The query as SigV4 signs it, which is also how it must be sent."""
    return "&".join(f"{k}={v}" for k, v in sorted((_quote(k), _quote(v)) for k, v in params))


def canonical_path(path: str) -> str:
    """The path of an S3 URL, percent-encoded once."""
    return quote(path, safe="/-_.~")


def _signature(secret: str, date: str, region: str, text: str) -> str:
    key = b"AWS4" + secret.encode()
    for part in (date, region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _string_to_sign(stamp: str, scope: str, canonical: str) -> str:
    return f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"


def _now(when: datetime.datetime | None) -> str:
    return (when or datetime.datetime.now(datetime.UTC)).strftime("%Y%m%dT%H%M%SZ")


def signed(
    method: str,
    endpoint: str,
    path: str,
    params: list[tuple[str, str]],
    access_key: str,
    secret_key: str,
    *,
    headers: dict[str, str] | None = None,
    region: str = "us-east-1",
    payload_hash: str | None = None,
    when: datetime.datetime | None = None,
) -> tuple[str, dict[str, str]]:
    """The URL and the headers of a request signed in its headers. `path` is not encoded yet.

    Without `payload_hash` a body of PUT and POST is left unsigned, and others are said to have none.
    """
    payload_hash = payload_hash or (UNSIGNED if method in ("PUT", "POST") else EMPTY)
    stamp = _now(when)
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    sent = {k.lower(): v.strip() for k, v in (headers or {}).items()}
    sent |= {"host": urlsplit(endpoint).netloc, "x-amz-date": stamp, "x-amz-content-sha256": payload_hash}
    names = ";".join(sorted(sent))
    lines = "".join(f"{name}:{sent[name]}\n" for name in sorted(sent))
    query = canonical_query(params)
    canonical = f"{method}\n{canonical_path(path)}\n{query}\n{lines}\n{names}\n{payload_hash}"
    signature = _signature(secret_key, stamp[:8], region, _string_to_sign(stamp, scope, canonical))
    sent["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return f"{endpoint}{canonical_path(path)}" + (f"?{query}" if query else ""), sent


def presigned(
    method: str,
    endpoint: str,
    path: str,
    params: list[tuple[str, str]],
    access_key: str,
    secret_key: str,
    *,
    expires: int = 600,
    region: str = "us-east-1",
    when: datetime.datetime | None = None,
) -> str:
    """A presigned URL that signs `host` and every parameter in `params`."""
    stamp = _now(when)
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    query = canonical_query(
        [
            *params,
            ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
            ("X-Amz-Credential", f"{access_key}/{scope}"),
            ("X-Amz-Date", stamp),
            ("X-Amz-Expires", str(expires)),
            ("X-Amz-SignedHeaders", "host"),
        ]
    )
    host = urlsplit(endpoint).netloc
    canonical = f"{method}\n{canonical_path(path)}\n{query}\nhost:{host}\n\nhost\n{UNSIGNED}"
    signature = _signature(secret_key, stamp[:8], region, _string_to_sign(stamp, scope, canonical))
    return f"{endpoint}{canonical_path(path)}?{query}&X-Amz-Signature={signature}"
