from __future__ import annotations

from datetime import UTC, datetime

from enmasse.pipeline.lake.conditional_writes import signed


def test_a_request_is_signed_as_amazons_own_library_does_it() -> None:
    settings = {
        "accessKeyId": "id",
        "secretAccessKey": "a secret",
        "sessionToken": "tok/en==",
        "region": "eu-central-1",
    }
    headers = {"host": "storage.test:9000", "if-none-match": "*"}
    target = "/lake/pl%21ant_.%2A%27%28x%29-/lake/_c-1"
    found = signed(target, headers, settings, datetime(2026, 11, 27, 16, 0, 5, tzinfo=UTC))
    # By botocore, of the same request.
    names = "host;if-none-match;x-amz-content-sha256;x-amz-date;x-amz-security-token"
    signature = "f1c6febf486f5b38072814267ee0dbcc1e2c205e75a0bada3af60200cbbd3420"
    assert found["authorization"] == (
        f"AWS4-HMAC-SHA256 Credential=id/20261127/eu-central-1/s3/aws4_request, SignedHeaders={names}, "
        f"Signature={signature}"
    )
