"""aiomqtt as tests ask for it; see ``mqtt_devices``.

It tells neither whether there was a session nor how a message was acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from typing import Any

from aiomqtt import Client, Message, MqttError, ProtocolVersion, Will
from aiomqtt.exceptions import MqttConnectError
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.support.mqtt_devices import WAIT_S
from tests.support.paho_devices import properties_of, publish_properties, received

__all__ = ["AiomqttClient"]


class _Connection:
    def __init__(self, client: Client, *, is_five: bool) -> None:
        self.client = client
        self.is_five = is_five
        self.messages: AsyncIterator[Message] = aiter(client.messages)


class AiomqttClient:
    """Connections of aiomqtt, in an event loop of their own."""

    def __init__(self) -> None:
        self._connections: dict[str, _Connection] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def ask(self, do: str, **options: Any) -> dict[str, Any]:
        told = {name: value for name, value in options.items() if value is not None}
        done = asyncio.run_coroutine_threadsafe(getattr(self, f"_{do}")(told), self._loop)
        reply: dict[str, Any] = done.result(2 * WAIT_S)
        return reply

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()

    async def _connect(self, options: dict[str, Any]) -> dict[str, Any]:
        is_five = options["version"] == 5
        will = None
        if "will_topic" in options:
            will = Will(
                options["will_topic"],
                bytes.fromhex(options["will_payload"]),
                options["will_qos"],
                bool(options["will_retain"]),
                properties_of(PacketTypes.WILLMESSAGE, WillDelayInterval=options.get("will_delay"))
                if is_five
                else None,
            )
        session: dict[str, Any] = {"clean_session": bool(options["clean"])}
        if is_five:
            session = {
                "clean_start": bool(options["clean"]),
                "properties": properties_of(
                    PacketTypes.CONNECT,
                    SessionExpiryInterval=options.get("expiry"),
                    ReceiveMaximum=options.get("receive_maximum"),
                ),
            }
        client = Client(
            "127.0.0.1",
            options["port"],
            username=options.get("user"),
            password=options.get("password"),
            identifier=options["id"],
            protocol=ProtocolVersion.V5 if is_five else ProtocolVersion.V311,
            will=will,
            timeout=WAIT_S,
            **session,
        )
        try:
            await client.__aenter__()
        except MqttConnectError as error:
            return {"refused": error.rc.value if isinstance(error.rc, ReasonCode) else error.rc}
        self._connections[options["name"]] = _Connection(client, is_five=is_five)
        return {"present": None}

    async def _subscribe(self, options: dict[str, Any]) -> dict[str, Any]:
        connection = self._connections[options["name"]]
        if connection.is_five:
            asked = SubscribeOptions(
                options["qos"],
                noLocal=bool(options.get("no_local")),
                retainAsPublished=bool(options.get("as_published")),
                retainHandling=options.get("handling", 0),
            )
            (granted,) = await connection.client.subscribe(options["filter"], options=asked)
        else:
            (granted,) = await connection.client.subscribe(options["filter"], options["qos"])
        return {"granted": granted.value if isinstance(granted, ReasonCode) else granted}

    async def _unsubscribe(self, options: dict[str, Any]) -> dict[str, Any]:
        await self._connections[options["name"]].client.unsubscribe(options["filter"])
        return {}

    async def _publish(self, options: dict[str, Any]) -> dict[str, Any]:
        connection = self._connections[options["name"]]
        payloads = [bytes.fromhex(payload) for payload in options["payloads"].split(",")]
        properties = publish_properties(options) if connection.is_five else None
        async with asyncio.TaskGroup() as group:
            for payload in payloads:
                group.create_task(
                    connection.client.publish(
                        options["topic"], payload, options["qos"], bool(options["retain"]), properties
                    )
                )
        return {"reasons": [0] * len(payloads)}

    async def _receive(self, options: dict[str, Any]) -> dict[str, Any]:
        messages = self._connections[options["name"]].messages
        found: list[dict[str, Any]] = []
        try:
            async with asyncio.timeout(WAIT_S):
                while len(found) < options["count"]:
                    found.append(received(await anext(messages)))
        except TimeoutError:
            raise AssertionError(f"{len(found)} of {options['count']} messages came: {found}") from None
        return {"messages": found}

    async def _arrived(self, options: dict[str, Any]) -> dict[str, Any]:
        return {"count": len(self._connections[options["name"]].client.messages)}

    async def _disconnect(self, options: dict[str, Any]) -> dict[str, Any]:
        await self._connections.pop(options["name"]).client.__aexit__(None, None, None)
        return {}

    async def _forget(self, options: dict[str, Any]) -> dict[str, Any]:
        connection = self._connections.pop(options["name"])
        with contextlib.suppress(MqttError):
            while True:
                await anext(connection.messages)
        return {}
