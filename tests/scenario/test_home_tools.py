"""Tools of houses at a space, each replayed by paho as its documentation says that it speaks MQTT.

The payloads are written for these tests after the shapes in the documentation of Tasmota (*MQTT*), Zigbee2MQTT (*MQTT
topics and messages*, *Home Assistant*), ESPHome (*MQTT client component*) and Home Assistant (*MQTT*, *discovery*).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections import defaultdict
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

from tests.support.foreign_tools import HERE, require
from tests.support.polling import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from tests.support.installation import Installation

pytestmark = pytest.mark.slow

USERS = {
    "tasmota": (("tele/#", "stat/#", "cmnd/#", "tasmota/discovery/#"), ("cmnd/#",)),
    "zigbee2mqtt": (("zigbee2mqtt/#", "homeassistant/#"), ("zigbee2mqtt/#", "homeassistant/#")),
    "esphome": (("porch/#", "homeassistant/#"), ("porch/#", "homeassistant/#")),
    "hass": (("#",), ("#",)),
}
"""What each of them sends, and what it receives."""

NODE_RED_PROGRAM = HERE / "node-red/node_modules/node-red/red.js"

DEVICES = 80
"""Of Zigbee, whose list is one retained value of some 200 KB."""


@pytest.fixture(scope="module")
def home(installation: Installation) -> Installation:
    require("paho-mqtt")
    installation.be_empty()
    installation.ok("create", "space", "home", "--authentication", "standard", "--any-name", "--wait", "150")
    for user, (sends, receives) in USERS.items():
        rights = [word for name in sends for word in ("--send", name)]
        rights += [word for name in receives for word in ("--recv", name)]
        installation.ok("create", "user", user, "--space", "home", "--wait", "150", *rights, stdin=f"{user}'s own\n")
    return installation


class Session:
    """A client of 3.1.1 that one of the tools is.

    Attributes:
        heard: what came, by name: each payload, and whether it was a retained value.
        was_there: whether a session was there as it connected.
    """

    def __init__(self, home: Installation, name: str, user: str, **options: Any) -> None:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion

        self.heard: dict[str, list[tuple[str, bool]]] = defaultdict(list)
        self.granted: dict[int, list[int]] = {}
        self.connected: list[bool] = []
        self.client = Client(
            CallbackAPIVersion.VERSION2,
            name,
            clean_session=options.get("clean", True),
            reconnect_on_failure=False,
        )
        self.client.username_pw_set(user, f"{user}'s own")
        if "will" in options:
            self.client.will_set(*options["will"])
        self.client.on_connect = lambda _client, _data, flags, reason, _more: self.connected.append(
            flags.session_present if not reason.is_failure else pytest.fail(str(reason))
        )
        self.client.on_subscribe = lambda _client, _data, number, reasons, _more: self.granted.__setitem__(
            number, [reason.value for reason in reasons]
        )
        self.client.on_message = lambda _client, _data, message: self.heard[message.topic].append(
            (message.payload.decode(), message.retain)
        )
        port = int(home.url("mqtt").rpartition(":")[2])

        def connects() -> bool:
            with suppress(ConnectionRefusedError):  # the node may be starting again
                return self.client.connect("127.0.0.1", port, keepalive=options.get("keepalive", 30)) == 0
            return False

        until(connects)
        self.client.loop_start()
        until(lambda: bool(self.connected))
        self.was_there = self.connected[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def subscribe(self, *filters: str, qos: int = 0) -> list[int]:
        """Subscribe, and return what is granted."""
        _, number = self.client.subscribe([(name, qos) for name in filters])
        assert number is not None
        until(lambda: number in self.granted)
        return self.granted[number]

    def say(self, name: str, payload: str | dict[str, Any] | list[Any], *, qos: int = 0, retain: bool = True) -> None:
        text = payload if isinstance(payload, str) else json.dumps(payload)
        told = self.client.publish(name, text, qos, retain)
        if qos:
            until(told.is_published)

    def hears(self, name: str, payload: str, *, retained: bool | None = None) -> None:
        """Wait for a message; None: it may have come as it was sent, or as the value that was there."""
        asked = [retained] if retained is not None else [False, True]
        until(lambda: any((payload, kind) in self.heard[name] for kind in asked), lambda: f"{self.heard[name]}")

    def die(self) -> None:
        """Lose the connection without a word."""
        found = self.client.socket()
        assert isinstance(found, socket.socket)
        with suppress(OSError):
            found.shutdown(socket.SHUT_RDWR)
        self.client.loop_stop()


def home_assistant(home: Installation) -> Session:
    """Home Assistant as it starts: it looks for configurations, and says that it is there."""
    will = ("homeassistant/status", "offline", 0, False)
    found = Session(home, "home-assistant", "hass", will=will, keepalive=60)
    found.subscribe("homeassistant/+/+/config", "homeassistant/+/+/+/config")
    found.say("homeassistant/status", "online", retain=False)
    return found


def tasmota(home: Installation) -> Session:
    """A plug that starts."""
    found = Session(home, "DVES_3D5E26", "tasmota", will=("tele/plug/LWT", "Offline", 1, True))
    found.say("tele/plug/LWT", "Online")
    found.say("cmnd/plug/POWER", "")  # takes away what somebody has retained as a command
    found.subscribe("cmnd/plug/#", "cmnd/tasmotas/#", "cmnd/DVES_3D5E26_fb/#")
    found.say("tasmota/discovery/0C8B953D5E26/config", {"ip": "192.0.2.7", "t": "plug", "ft": "%prefix%/%topic%/"})
    found.say("tasmota/discovery/0C8B953D5E26/sensors", {"sn": {"ENERGY": {"Power": 0}}, "ver": 1})
    found.say("tele/plug/INFO1", {"Info1": {"Module": "Plug", "Version": "14.1.0"}}, retain=False)
    return found


def test_a_plug_of_tasmota_is_commanded_tells_its_state_and_is_missed(home: Installation) -> None:
    with Session(home, "panel", "hass") as panel:
        panel.subscribe("tele/#", "stat/#", "tasmota/discovery/+/config")
        # A command that was retained by mistake would switch the plug at each start.
        panel.say("cmnd/plug/POWER", "ON", qos=1)
        plug = tasmota(home)
        panel.hears("tele/plug/LWT", "Online")
        until(lambda: "tasmota/discovery/0C8B953D5E26/config" in panel.heard)
        panel.say("cmnd/plug/POWER", "TOGGLE", retain=False)
        plug.hears("cmnd/plug/POWER", "TOGGLE", retained=False)
        assert ("ON", True) not in plug.heard["cmnd/plug/POWER"]
        plug.say("stat/plug/RESULT", {"POWER": "ON"}, retain=False)
        plug.say("stat/plug/POWER", "ON", retain=False)
        panel.hears("stat/plug/POWER", "ON", retained=False)
        panel.say("cmnd/tasmotas/STATUS", "8", retain=False)  # all of the group
        plug.hears("cmnd/tasmotas/STATUS", "8", retained=False)
        plug.say("tele/plug/SENSOR", {"Time": "2026-05-04T06:00:00", "ENERGY": {"Power": 12}}, retain=False)
        until(lambda: "tele/plug/SENSOR" in panel.heard)
        plug.die()
        panel.hears("tele/plug/LWT", "Offline", retained=False)
        with Session(home, "late", "hass") as late:
            late.subscribe("tele/+/LWT")
            late.hears("tele/plug/LWT", "Offline", retained=True)


def zigbee2mqtt(home: Installation) -> Session:
    """The bridge as it starts, with a list of devices that is long."""
    will = ("zigbee2mqtt/bridge/state", '{"state": "offline"}', 1, True)
    found = Session(home, "mqttjs_d41d8cd9", "zigbee2mqtt", will=will, keepalive=60)
    found.subscribe("zigbee2mqtt/#", "homeassistant/status")
    exposes = [{"name": f"value_{number}", "property": f"value_{number}", "access": 7} for number in range(30)]
    devices = [
        {"ieee_address": f"0x00158d{number:010x}", "type": "Router", "friendly_name": f"hall/lamp_{number}",
         "definition": {"model": "LED1", "vendor": "IKEA", "exposes": exposes}}
        for number in range(DEVICES)
    ]  # fmt: skip
    found.say("zigbee2mqtt/bridge/info", {"version": "2.0.0", "permit_join": False})
    found.say("zigbee2mqtt/bridge/devices", devices)
    for number in range(DEVICES):
        name = f"zigbee2mqtt/hall/lamp_{number}"
        about: dict[str, Any] = {"name": None, "state_topic": name, "command_topic": f"{name}/set", "schema": "json"}
        about |= {"availability": [{"topic": "zigbee2mqtt/bridge/state", "value_template": "{{ value_json.state }}"}]}
        found.say(f"homeassistant/light/0x00158d{number:010x}/light/config", about, qos=1)
    found.say("zigbee2mqtt/bridge/state", {"state": "online"}, qos=1)
    return found


def test_a_bridge_of_zigbee_retains_all_its_devices_and_takes_commands(home: Installation) -> None:
    with home_assistant(home) as hass, zigbee2mqtt(home) as bridge:
        until(lambda: sum("/light/0x00158d" in name for name in hass.heard) == DEVICES)
        about = json.loads(hass.heard[f"homeassistant/light/0x00158d{7:010x}/light/config"][0][0])
        hass.subscribe(about["state_topic"], about["availability"][0]["topic"])
        hass.hears("zigbee2mqtt/bridge/state", '{"state": "online"}')
        hass.say(about["command_topic"], '{"state": "ON"}', retain=False)
        # The bridge listens to all of its names, and so to what it says itself.
        bridge.hears("zigbee2mqtt/hall/lamp_7/set", '{"state": "ON"}', retained=False)
        bridge.hears("zigbee2mqtt/bridge/state", '{"state": "online"}')
        bridge.say("zigbee2mqtt/hall/lamp_7", '{"state": "ON", "brightness": 215}', retain=False)
        hass.hears("zigbee2mqtt/hall/lamp_7", '{"state": "ON", "brightness": 215}', retained=False)
        with Session(home, "front end", "hass") as late:
            late.subscribe("zigbee2mqtt/bridge/#")
            until(lambda: "zigbee2mqtt/bridge/devices" in late.heard)
            payload, retained = late.heard["zigbee2mqtt/bridge/devices"][0]
            assert (len(json.loads(payload)), retained) == (DEVICES, True)
        # A device that is taken away has its configuration taken away.
        bridge.say(f"homeassistant/light/0x00158d{7:010x}/light/config", "", qos=1)
        hass.hears(f"homeassistant/light/0x00158d{7:010x}/light/config", "", retained=False)


def esphome(home: Installation) -> Session:
    """A node of ESPHome, whose session stays."""
    will = ("porch/status", "offline", 0, True)
    found = Session(home, "porch-8caab5", "esphome", clean=False, will=will, keepalive=15)
    found.subscribe("porch/switch/relay/command", "homeassistant/status")
    about = {"name": "relay", "stat_t": "porch/switch/relay/state", "cmd_t": "porch/switch/relay/command"}
    found.say(
        "homeassistant/switch/porch/relay/config", about | {"avty_t": "porch/status", "uniq_id": "ESPswitchrelay"}
    )
    found.say("porch/status", "online")
    found.say("porch/switch/relay/state", "OFF")
    found.say("porch/debug", "[D][mqtt]: connected", retain=False)
    return found


def test_a_node_of_esphome_comes_back_and_home_assistant_finds_all_after_a_crash(home: Installation) -> None:
    with home_assistant(home) as hass:
        node = esphome(home)
        until(lambda: "homeassistant/switch/porch/relay/config" in hass.heard)
        about = json.loads(hass.heard["homeassistant/switch/porch/relay/config"][0][0])
        hass.subscribe(about["stat_t"], about["avty_t"])
        hass.hears("porch/status", "online")
        hass.say(about["cmd_t"], "ON", retain=False)
        node.hears("porch/switch/relay/command", "ON", retained=False)
        node.say("porch/switch/relay/state", "ON")
        hass.hears("porch/switch/relay/state", "ON", retained=False)
        node.die()
        hass.hears("porch/status", "offline", retained=False)
    with esphome(home) as node:
        assert node.was_there
        with Session(home, "plain", "hass") as seen:
            seen.subscribe("porch/#")
            seen.hears("porch/status", "online")
            seen.hears("porch/switch/relay/state", "OFF")
    killed = home.pid("node")
    os.kill(killed, signal.SIGKILL)
    until(lambda: home.pid("node") != killed)
    home.ok("status", "--wait", "150")
    with home_assistant(home) as hass:
        hass.hears("homeassistant/switch/porch/relay/config", json.dumps(about), retained=True)
        hass.subscribe("porch/switch/relay/state")
        hass.hears("porch/switch/relay/state", "OFF", retained=True)


@contextmanager
def started(command: list[str], log: TextIO) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program, and end it."""
    with subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield process
        finally:
            process.kill()


NODE_RED = """
module.exports = {credentialSecret: false, telemetry: {enabled: false, updateNotification: false}};
"""


def test_a_flow_of_node_red_reads_and_tells_and_is_missed(home: Installation, tmp_path: Path) -> None:
    require("Node-RED")
    port = home.url("mqtt").rpartition(":")[2]
    broker = {"type": "mqtt-broker", "broker": "127.0.0.1", "port": port, "autoConnect": True, "cleansession": True}
    said = {"birthTopic": "flows/state", "birthPayload": "here", "birthQos": "1", "birthRetain": "true"}
    said |= {"willTopic": "flows/state", "willPayload": "gone", "willQos": "1", "willRetain": "true"}
    doubled = "msg.topic = 'flows/power'; msg.payload = {watts: 2 * msg.payload.ENERGY.Power}; return msg;"
    flow = [
        {"id": "tab", "type": "tab", "label": "power"},
        broker | said | {"id": "four", "clientid": "node-red-4", "protocolVersion": "4"},
        broker | said | {"id": "five", "clientid": "node-red-5", "protocolVersion": "5", "birthTopic": "flows/sends"},
        {"id": "in", "type": "mqtt in", "z": "tab", "topic": "tele/+/SENSOR", "qos": "1", "datatype": "json",
         "broker": "four", "rap": True, "rh": 0, "wires": [["double"]]},
        {"id": "double", "type": "function", "z": "tab", "func": doubled, "outputs": 1, "wires": [["out"]]},
        {"id": "out", "type": "mqtt out", "z": "tab", "topic": "", "qos": "1", "retain": "true", "broker": "five",
         "wires": []},
    ]  # fmt: skip
    login = {"user": "hass", "password": "hass's own"}
    (tmp_path / "flow.json").write_text(json.dumps(flow))
    (tmp_path / "flow_cred.json").write_text(json.dumps({"four": login, "five": login}))
    (tmp_path / "settings.js").write_text(NODE_RED)
    with socket.create_server(("127.0.0.1", 0)) as found:
        own = str(found.getsockname()[1])
    command = ["node", NODE_RED_PROGRAM, "--userDir", tmp_path, "--settings", tmp_path / "settings.js"]
    with (
        Session(home, "panel", "hass") as panel,
        (tmp_path / "log").open("w") as log,
        started([*map(str, command), "-p", own, str(tmp_path / "flow.json")], log) as node_red,
    ):
        panel.subscribe("flows/#", qos=1)
        panel.hears("flows/state", "here")
        panel.hears("flows/sends", "here")  # what is to be sent before that, it drops
        # A value, which reaches it also if it subscribes later.
        panel.say("tele/plug/SENSOR", {"ENERGY": {"Power": 12}}, qos=1)
        panel.hears("flows/power", '{"watts":24}')
        node_red.kill()
        panel.hears("flows/state", "gone")


def test_a_tool_that_may_not_use_a_name_is_not_heard_there(home: Installation) -> None:
    with home_assistant(home) as hass:
        hass.subscribe("tele/#")
        with Session(home, "intruder", "esphome") as node:
            assert node.subscribe("tele/#") == [0x80]
            node.say("tele/plug/LWT", "Online")
            node.say("porch/status", "online", qos=1)
        hass.subscribe("porch/status")
        hass.hears("porch/status", "online")
        assert ("Online", False) not in hass.heard["tele/plug/LWT"]
