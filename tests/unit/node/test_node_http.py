"""HTTP at a node: who gets in, what is sent, and what pages of strangers may do."""

from __future__ import annotations

import asyncio
import http.client
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from enmasse.drivers import authority
from enmasse.message.sections import Sections, encode_message
from enmasse.node.connections import waiting
from enmasse.node.http.documents import from_sections, to_sections
from enmasse.node.management.entity_fields import ADDRESS_TYPE, SPACE_TYPE
from tests.support.foreign_tools import require
from tests.support.polling import until_async
from tests.unit.node.http_scene import Scene, basic, play, user, version  # noqa: F401  a fixture
from tests.unit.node.test_node_mqtt_login import TOKEN, Authority

MESSAGES = "orders/messages"


def test_what_a_query_says_is_a_property_where_the_space_takes_it(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        async def takes(is_taken: bool) -> None:
            stored: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            scene.server.entities.update(SPACE_TYPE, "ns/open", {"takeQueryProperties": is_taken}, stored.set_result)
            assert await stored is None

        async def said(client: httpx.AsyncClient, count: int = 1) -> list[dict[str, str]]:
            answer = await client.post("orders/receive?auto=true&wait=30", params={"max": count})
            return [message.get("properties", {}) for message in answer.json()["messages"]]

        async with scene.client() as client:
            refused = await client.post(f"{MESSAGES}?event=up", content=b"x")
            assert (refused.status_code, "no parameter 'event'" in refused.text) == (400, True)
            await takes(True)
            headers = {"X-Property-Event": "mine", "Content-Type": "text/plain"}
            for path, further in ((f"{MESSAGES}?event=up&wait=2&n=%C3%BC", {}), (f"{MESSAGES}?event=up", headers)):
                for _ in range(2):
                    assert (await client.post(path, content=b"x", headers=further)).status_code == 202
            assert [await said(client) for _ in range(4)] == [[{"event": "up", "n": "\u00fc"}]] * 2 + [
                [{"event": "mine"}]
            ] * 2
            lines = b'{"body": 1}\n{"body": 2, "properties": {"event": "join"}}'
            kind = {"Content-Type": "application/x-ndjson"}
            assert (await client.post(f"{MESSAGES}?event=up", content=lines, headers=kind)).status_code == 200
            assert await said(client, 2) == [{"event": "up"}, {"event": "join"}]
            event = {"specversion": "1.0", "id": "1", "source": "s", "type": "t"}
            for sort, content in (("cloudevents", event), ("cloudevents-batch", [event])):
                sent = json.dumps(content).encode()
                kind = {"Content-Type": f"application/{sort}+json"}
                assert (await client.post(f"{MESSAGES}?event=up", content=sent, headers=kind)).status_code in (
                    200,
                    202,
                )
                (found,) = await said(client)
                assert (found["event"], found["cloudEvents_id"]) == ("up", "1")
            # Other actions send nothing, so a parameter that they do not know is a mistake as ever.
            assert (await client.post("orders/receive?event=up")).status_code == 400
            await takes(False)
            assert (await client.post(f"{MESSAGES}?event=up", content=b"x", headers=headers)).status_code == 400

    play(tmp_path, story)


def test_users_get_in_by_password_and_certificate_and_strangers_do_not(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        scene.set_users(user("jo", "orders"), user("card", "orders", certificates=("card.example.com",)))
        async with scene.client("shop.ns") as client:
            refused = await client.post(MESSAGES, content=b"x")
            assert refused.status_code == 401
            assert "Basic" in refused.headers["www-authenticate"]
            assert "Bearer" in refused.headers["www-authenticate"]
            stored = await client.post(MESSAGES, content=b"x", headers=basic("jo"))
            assert stored.status_code == 202, stored.text
            assert (await client.post("any/messages", content=b"x", headers=basic("jo"))).status_code == 403
            assert (await client.post("nothing/messages", content=b"x", headers=basic("jo"))).status_code == 403
            for proof in (basic("bo"), {"Authorization": "Bearer a.b.c"}, {"Authorization": "Digest x"}, {}):
                hidden = await client.post(MESSAGES, content=b"x", headers=proof)
                unknown = await client.post(
                    str(client.base_url).replace("shop.ns", "none.ns") + MESSAGES, content=b"x", headers=proof
                )
                assert hidden.status_code == unknown.status_code == 401
                assert hidden.json()["detail"].replace("shop", "none") == unknown.json()["detail"]

        issued = authority.Authority(scene.directory).issue_client("card.example.com")
        certificate, key = issued.write(tmp_path, "card")

        def by_certificate() -> int:
            context = scene.trusting
            context.load_cert_chain(certificate, key)
            connection = http.client.HTTPSConnection("localhost", scene.port, context=context, timeout=30)
            with closing(connection):
                connection.request("POST", f"/v1/spaces/shop.ns/addresses/{MESSAGES}", b"by certificate")
                return connection.getresponse().status

        assert await asyncio.to_thread(by_certificate) == 202

    play(tmp_path, story)


def test_curl_and_httpx_show_their_certificates(tmp_path: Path) -> None:
    require("curl")

    async def story(scene: Scene) -> None:
        scene.set_users(user("card", "orders", certificates=("card.example.com",)))
        certificate, key = (
            authority.Authority(scene.directory).issue_client("card.example.com").write(tmp_path, "card")
        )
        trusted = scene.directory / "authority" / "ca.crt"
        url = f"https://localhost:{scene.port}/v1/spaces/shop.ns/addresses/{MESSAGES}"
        by_curl = ("curl", "--silent", "--max-time", "30", "--noproxy", "*", "--cacert", trusted, "--data", "x")
        for shown, status in ((("--cert", certificate, "--key", key), 202), ((), 401)):
            command = (*by_curl, *shown, "--output", tmp_path / "answer", "--write-out", "%{http_code}", url)
            curl = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            assert (await curl.communicate())[0] == str(status).encode()
        for offers, status in ((True, 202), (False, 401)):
            context = scene.trusting
            context.load_cert_chain(certificate, key)
            context.post_handshake_auth = offers
            async with scene.client("shop.ns", verify=context) as client:
                assert (await client.post(MESSAGES, content=b"x")).status_code == status

    play(tmp_path, story)


def test_curl_speaks_http2_inside_tls_and_where_it_knows_of_it_in_the_clear(tmp_path: Path) -> None:
    require("curl")

    async def story(scene: Scene) -> None:
        trusted = scene.directory / "authority" / "ca.crt"
        path = f"localhost:{scene.port}/v1/spaces/open.ns/addresses/{MESSAGES}"
        by_curl = ("curl", "--silent", "--max-time", "30", "--noproxy", "*", "--cacert", trusted, "--data", "x")
        written = ("--output", tmp_path / "answer", "--write-out", "%{http_version} %{http_code}")
        for asked, scheme, told in (
            ("--http2", "https", "2 202"),
            ("--http1.1", "https", "1.1 202"),
            ("--http2-prior-knowledge", "http", "2 202"),
            # It asks for an upgrade, which RFC 9113 has given up.
            ("--http2", "http", "1.1 202"),
        ):
            command = (*by_curl, asked, *written, f"{scheme}://{path}")
            curl = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            assert (await curl.communicate())[0].decode() == told, (asked, scheme)

    play(tmp_path, story)


def test_a_connection_may_serve_several_users_one_after_the_other(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        scene.set_users(user("jo", "orders"), user("bo", "any"))
        limits = httpx.Limits(max_connections=1)
        async with scene.client("shop.ns", limits=limits) as client:
            for _ in range(3):
                assert (await client.post(MESSAGES, content=b"x", headers=basic("jo"))).status_code == 202
                assert (await client.post(MESSAGES, content=b"x", headers=basic("bo"))).status_code == 403
                other = str(client.base_url).replace("shop.ns", "open.ns") + MESSAGES
                assert (await client.post(other, content=b"x")).status_code == 202
            connections = scene.server.connections
            assert len(connections) == len(connections.shells) == 1
            # Whose rights are taken away notices at once.
            assert (await client.post(MESSAGES, content=b"x", headers=basic("jo"))).status_code == 202
            scene.set_users(user("jo", "other"))
            assert (await client.post(MESSAGES, content=b"x", headers=basic("jo"))).status_code == 403
            scene.set_users()
            await until_async(lambda: len(connections) == 0)
        async with scene.client("shop.ns") as client:
            assert (await client.post(MESSAGES, content=b"x", headers=basic("jo"))).status_code == 401

    play(tmp_path, story)


def test_a_token_of_the_spaces_provider_lets_its_user_in(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await scene.create(SPACE_TYPE, "ns/tokens", authentication="standard")
        attributes = {"space": "ns/tokens", "address": "orders", "addressType": "queue"}
        await scene.create(ADDRESS_TYPE, "ns/tokens.orders", **attributes)
        async with scene.client("tokens.ns") as client:
            for token, status in ((TOKEN, 202), (TOKEN[:-1], 401), ("", 401)):
                headers = {"Authorization": f"Bearer {token}".strip()}
                assert (await client.post(MESSAGES, content=b"x", headers=headers)).status_code == status, token

    play(tmp_path, story, tokens=Authority())


def test_guesses_of_passwords_are_throttled(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        scene.set_users(user("jo", "orders"))
        async with scene.client("shop.ns") as client:
            statuses: list[int] = []
            while 429 not in statuses:
                asked = client.post(MESSAGES, content=b"x", auth=("jo", f"guess {len(statuses)}"))
                statuses.append((await asked).status_code)
            assert set(statuses[:-1]) == {401}
            right = await client.post(MESSAGES, content=b"x", headers=basic("jo"))
            assert right.status_code == 429
            assert right.headers["retry-after"] == "1"

    play(tmp_path, story)


def test_what_waits_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        space = next(space for name, space in scene.server.entities.spaces.items() if name == "ns/open")
        await scene.create(
            ADDRESS_TYPE, "ns/full", space=space.name, address="full", addressType="queue", maxBytes=10
        )
        monkeypatch.setattr(waiting, "ASSURED_BYTES", 1_000)
        budget = scene.server.connections._waiting
        monkeypatch.setattr(budget, "max_bytes", 4 * waiting.GRAIN_BYTES)
        async with scene.client() as client:
            assert (await client.post("full/messages", content=b"x")).status_code == 202
            waits = asyncio.ensure_future(client.post("full/messages?wait=60", content=bytes(100_000)))
            await until_async(lambda: budget.held == 2 * waiting.GRAIN_BYTES)
            refused = await client.post("full/messages?wait=60", content=bytes(100_000))
            assert (refused.status_code, refused.json()["reason"]) == (429, "no-room")
            assert "too much of this space" in refused.json()["detail"]
            async with scene.amqp() as amqp, amqp.receiver("full") as receiver:
                delivery = await receiver.receive(timeout=60)
                assert delivery is not None
                delivery.accept()
                assert (await waits).status_code == 202
            assert budget.held == 0

    play(tmp_path, story)


def test_what_is_sent_arrives_with_its_properties(tmp_path: Path) -> None:
    headers = {
        "Content-Type": "text/plain",
        "X-Message-Id": "m1",
        "X-Subject": "chairs",
        "X-Correlation-Id": "c1",
        "X-Reply-To": "answers",
        "X-Ttl": "60000",
        "X-Priority": "7",
        "X-Durable": "false",
        "X-Opt-Key": "k",
        "X-Property-Colour": "gr\u00fcn",
        "X-Properties": '{"Legs": 4, "isRed": false}',
    }

    async def story(scene: Scene) -> None:
        async with scene.client() as client, scene.amqp() as amqp:
            for path in ("a%2Fb%C3%BC/messages", "a/b%C3%BC/messages"):
                encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
                answer = await client.post(path, content=b"a chair", headers=encoded)
                assert (answer.status_code, answer.json()) == (202, {"outcome": "accepted"})
                async with amqp.receiver("a/b\u00fc") as receiver:
                    delivery = await receiver.receive(30)
                    assert delivery is not None
                    message = delivery.message
                    delivery.accept()
                assert message.body == b"a chair"
                assert (message.message_id, message.subject, message.reply_to) == ("m1", "chairs", "answers")
                assert (message.correlation_id, message.content_type) == ("c1", "text/plain")
                assert (message.durable, message.priority, round(message.ttl or 0)) == (False, 7, 60)
                assert message.properties == {"colour": "gr\u00fcn", "Legs": 4, "isRed": False}

    play(tmp_path, story)


def test_a_batch_has_an_outcome_for_each_line(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        lines = [
            json.dumps({"body": {"a": 1}, "subject": "one", "properties": {"n": 1}}),
            "no json",
            json.dumps({"bodyBase64": "AAE=", "durable": False}),
            json.dumps({"strange": 1}),
            "",
        ]
        async with scene.client() as client:
            kind = {"Content-Type": "application/x-ndjson"}
            answer = await client.post(MESSAGES, content="\n".join(lines), headers=kind)
            assert answer.headers["content-type"] == "application/x-ndjson"
            outcomes = [json.loads(line) for line in answer.text.splitlines()]
            assert [outcome["status"] for outcome in outcomes] == [202, 400, 202, 400]
            assert (await client.post(MESSAGES, content="\n" * 10, headers=kind)).status_code == 400
            assert (await client.post(MESSAGES, content="{}\n" * 1_001, headers=kind)).status_code == 413
        async with scene.amqp() as amqp, amqp.receiver("orders") as receiver:
            found = [await receiver.receive(30) for _ in range(2)]
            assert [each.message.body for each in found if each is not None] == [b'{"a": 1}', b"\0\1"]

    play(tmp_path, story)


def test_mistakes_are_answered_with_what_was_expected(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        asked: list[tuple[str, str, dict[str, str], int]] = [
            ("GET", "/", {}, 404),
            ("POST", "/v1/spaces/open.ns/addresses//messages", {}, 404),
            ("POST", "/v1/spaces/open/addresses/orders/messages", {}, 404),
            ("POST", "/v1/spaces/open.ns/addresses/orders/nothing", {}, 404),
            ("POST", "/v1/spaces/open.ns/addresses/none/messages", {}, 404),
            ("PUT", "/v1/spaces/open.ns/addresses/orders/messages", {}, 405),
            ("POST", "/v1/spaces/open.ns/addresses/%zz/messages", {}, 400),
            ("POST", "/v1/spaces/open.ns/addresses/%ff/messages", {}, 400),
            ("POST", "/v1/spaces/open.ns/addresses/orders/messages?wait=long", {}, 400),
            ("POST", "/v1/spaces/open.ns/addresses/orders/messages?wiat=1", {}, 400),
            ("POST", "/v1/spaces/open.ns/addresses/orders/messages?wait=1&wait=2", {}, 400),
            ("POST", "/v1/spaces/open.ns/addresses/orders/messages", {"X-Ttl": "soon"}, 400),
            ("POST", "/v1/spaces/open.ns/addresses/orders/messages", {"X-Properties": '{"a": []}'}, 400),
            ("POST", "/v1/spaces/open.ns/addresses/orders/messages", {"X-Properties": '{"a": 1e999}'}, 400),
        ]
        async with scene.client() as client:
            for method, path, headers, status in asked:
                answer = await client.request(method, f"http://localhost:{scene.port}{path}", headers=headers)
                assert answer.status_code == status, (method, path, answer.text)
                assert answer.json()["detail"]
            large = await client.post(MESSAGES, content=bytes((16 << 20) + 1))
            assert large.status_code == 413
            # Health is as it was.
            assert (await client.get(f"http://localhost:{scene.port}/healthz")).status_code == 200

    play(tmp_path, story)


def test_pages_of_strangers_are_refused_unless_the_operator_allows_them(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        async with scene.client() as client:
            for headers in (
                {"Origin": "http://evil.example"},
                {"Origin": "null"},
                {"Sec-Fetch-Site": "same-origin", "Host": "evil.example"},
            ):
                refused = await client.post(MESSAGES, content=b"x", headers=headers)
                assert refused.status_code == 403, headers
                assert "access-control-allow-origin" not in refused.headers
            page = {"Origin": "https://shop.example"}
            preflight = await client.options(MESSAGES, headers=page | {"Access-Control-Request-Method": "POST"})
            assert preflight.status_code == 204
            assert "POST" in preflight.headers["access-control-allow-methods"]
            for path, status in ((MESSAGES, 202), ("none/messages", 404)):
                answer = await client.post(path, content=b"x", headers=page)
                assert answer.status_code == status
                assert answer.headers["access-control-allow-origin"] == "https://shop.example"
                assert answer.headers["vary"] == "Origin"

    play(tmp_path, story, origins=("https://shop.example",))


def test_a_message_whose_client_is_gone_is_not_sent(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", scene.port)
        path = "/v1/spaces/open.ns/addresses/any/messages?wait=60"
        writer.write(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\ngone".encode())
        connections = scene.server.connections
        await until_async(lambda: connections.links == 1)
        writer.close()
        await until_async(lambda: len(connections) == 0)
        async with scene.amqp() as amqp, amqp.receiver("any") as receiver, scene.client() as client:
            asked = asyncio.create_task(client.post("any/messages?wait=60", content=b"here"))
            delivery = await receiver.receive(30)
            assert delivery is not None
            assert delivery.message.body == b"here"
            delivery.accept()
            assert (await asked).status_code == 200

    play(tmp_path, story)


def test_an_address_that_is_deleted_ends_what_waits_for_it(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        connections = scene.server.connections
        async with scene.client() as client:
            requests = [
                client.post("any/messages?wait=60", content=b"x"),
                client.post("any/messages?wait=60", content=b"x", headers={"Connection": "close"}),
                client.post("orders/receive?wait=60"),
                client.post("orders/receive?wait=60", headers={"Connection": "close"}),
                client.get("orders/events", headers={"Accept": "text/event-stream"}),
            ]
            *waiting, events = [asyncio.create_task(each) for each in requests]
            await until_async(lambda: connections.links == len(requests))
            for address in ("any", "orders"):
                done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                scene.server.entities.delete("io.enmasse.address", f"ns/open.{address}", done.set_result)
                await done
            assert [(await each).status_code for each in waiting] == [410] * len(waiting)
            # An answer that has begun has no other way to say that it is over.
            with pytest.raises(httpx.RemoteProtocolError):
                await events
            assert (await client.post("any/messages", content=b"x")).status_code == 404
            assert (await client.post("news/messages", content=b"x")).status_code == 202
            await until_async(lambda: connections.links == 1)

    play(tmp_path, story)


def test_messages_of_every_kind_have_a_form_in_json() -> None:
    for document in (
        {"body": "text", "contentType": "text/plain", "durable": True, "subject": "s", "expires": 5},
        {"body": {"a": [1, None, "\u00fc"]}, "contentType": "application/json", "priority": 9, "durable": True},
        {"body": "quoted", "contentType": "application/vnd.x+json", "durable": True},
        {"bodyBase64": "/w==", "durable": True, "annotations": {"x-opt-key": 5}, "properties": {"a": 1.5}},
    ):
        assert from_sections(to_sections(json.dumps(document))) == document
    assert from_sections(encode_message({"a": [b"\xff"]})) == {
        "contentType": "application/json",
        "body": {"a": ["/w=="]},
    }
    assert "malformed" in from_sections(b"\x00\x53\x75")
    assert Sections(to_sections("{}")).body == b""
