"""The wheel: it is built the same everywhere, and works in bare environments, for a user who is not root.

``make test`` installs the core, by each installer, and with the oldest packages that its ranges admit. ``make soak``
installs each extra so, and the core for each other Python that is here. Installers keep their caches.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from importlib.metadata import distributions
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from paho.mqtt import publish
from paho.mqtt.enums import MQTTProtocolVersion

from enmasse.version import __version__
from hatch_build import bill_of_materials, bundled_packages, page_of
from tests.distribution.advisories import holes, of_console
from tests.support import whole_package
from tests.support.stomp_peer import StompPeer

ROOT = Path(__file__).parents[2]
PROTOCOLS = ("amqp", "mqtt", "http", "stomp", "websocket")
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"] if os.geteuid() == 0 else []
IS_SOAK = os.environ.get("ENMASSE_TEST_WHEELS") == "all"
MOMENT = "1700000000"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
at_length = pytest.mark.skipif(not IS_SOAK, reason="hundreds of megabytes: `make soak` does it")


def run(*words: str | Path, **more: Any) -> str:
    """Run a command; return what it wrote, or fail with all of that."""
    done = subprocess.run(
        list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **more
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}"
    return str(done.stdout)


@dataclass
class Environment:
    """A bare environment with the wheel, and somebody who uses it in a folder of his own.

    Attributes:
        programs: its folder with ``enmasse`` and ``python``.
        home: the user's.
    """

    programs: Path
    home: Path

    def __post_init__(self) -> None:
        self.home.mkdir()
        if NOBODY:
            os.chown(self.home, 65534, 65534)
        self.variables = {
            "PATH": f"{self.programs}:/usr/bin:/bin",
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            # He may not write beside the modules, as in an environment that root has made.
            "PYTHONPYCACHEPREFIX": str(self.home / "bytecode"),
        }

    def start(self, *words: str, **more: Any) -> subprocess.Popen[str]:
        return subprocess.Popen([*NOBODY, *words], env=self.variables, cwd=self.home, text=True, **more)

    def __call__(self, *words: str, code: int = 0) -> str:
        """Run a command as the user; return what it wrote."""
        with self.start(*words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            said, _ = process.communicate()
        assert process.returncode == code, f"{words}\n{said}"
        return said

    def packages(self) -> Iterator[tuple[str, str]]:
        """Name and version of each package that is installed."""
        for there in distributions(path=[str(path) for path in self.programs.parent.glob("lib/*/site-packages")]):
            yield canonicalize_name(there.name), there.version

    def whole_package(self) -> dict[str, Any]:
        """Import every module and show every help."""
        program = self.home / "whole_package.py"
        shutil.copy(whole_package.__file__, program)
        found: dict[str, Any] = json.loads(self("python", str(program)).splitlines()[-1])
        return found


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder that other users can read, unlike those of pytest."""
    with TemporaryDirectory(prefix="enmasse-wheel-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def build(source: Path, to: Path, *targets: str) -> None:
    """Build sdist and wheel, or one of them, without a network where a network can be taken away."""
    alone = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net", "--map-root-user"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode != 0:
        alone = []
    environment = {**os.environ, "SOURCE_DATE_EPOCH": MOMENT}
    run(*alone, sys.executable, "-m", "hatchling", "build", "--directory", to, *targets, cwd=source, env=environment)


@pytest.fixture(scope="module")
def built(place: Path) -> Path:
    build(ROOT, place / "dist")
    return place / "dist"


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return next(built.glob("*.whl"))


@pytest.fixture(scope="module")
def interpreter() -> str:
    """A Python that the user can start: not one below /root."""
    for python in (os.path.realpath(sys.executable), "/usr/bin/python3"):
        words = [*NOBODY, "env", python, "-c", "import sys, venv; sys.exit(sys.version_info < (3, 11))"]
        if subprocess.run(words, capture_output=True, check=False).returncode == 0:
            return python
    pytest.skip("no Python 3.11 that users other than root can start")


def make_environment(python: str, home: Path, wheel: Path, extra: str = "", *, lowest: bool = False) -> Environment:
    """Make an environment as ``python -m venv`` and pip do; or with the lowest versions that our ranges admit."""
    folder = home.with_name(f"{home.name}-env")
    run(python, "-m", "venv", "--without-pip", folder)
    its_python = str(folder / "bin" / "python")
    pip = ["pip", "--python", its_python, "install", "--no-compile"]
    uv = ["uv", "pip", "install", "--python", its_python, "--resolution", "lowest-direct"]
    run(sys.executable, "-m", *(uv if lowest else pip), "--quiet", f"{wheel}[{extra}]" if extra else wheel)
    return Environment(folder / "bin", home)


@pytest.fixture(scope="module")
def core(interpreter: str, place: Path, wheel: Path) -> Environment:
    return make_environment(interpreter, place / "core", wheel)


@pytest.fixture(scope="module", params=["highest", "lowest"])
def each_core(request: pytest.FixtureRequest, interpreter: str, place: Path, wheel: Path) -> Environment:
    """The core with the newest packages, as pip installs it, and with the oldest that it says it works with."""
    if request.param == "highest":
        return request.getfixturevalue("core")  # type: ignore[no-any-return]
    return make_environment(interpreter, place / "lowest", wheel, lowest=True)


def test_the_sdist_makes_the_same_wheel_and_the_same_sdist(built: Path, place: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        archive.extractall(place / "source", filter="tar")
    # Packing the tests takes most of the time.
    build(next((place / "source").iterdir()), place / "again", *(() if IS_SOAK else ("--target", "wheel")))
    again = list((place / "again").iterdir())
    assert again
    for file in again:
        assert file.read_bytes() == (built / file.name).read_bytes(), file.name


def test_the_readme_is_the_page_of_the_package_and_has_no_link_that_leads_nowhere(wheel: Path) -> None:
    metadata = metadata_of(wheel)
    page = str(metadata.get_payload(decode=True), "utf-8")  # type: ignore[arg-type]
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert page.startswith("# EnMasse\n")
    assert "[using the console]" not in page
    assert "using the console" in page


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def test_the_bill_of_materials_names_what_is_contained_and_what_is_asked_for(wheel: Path) -> None:
    beside = wheel.with_name(f"enmasse-{__version__}.cdx.json").read_text()
    with zipfile.ZipFile(wheel) as archive:
        within = archive.read(f"enmasse-{__version__}.dist-info/sboms/enmasse-{__version__}.cdx.json").decode()
    assert within == beside
    assert JsonStrictValidator(SchemaVersion.V1_7).validate_str(beside) is None

    components = json.loads(beside)["components"]
    contained = {(entry["name"], entry["version"]) for entry in components if not entry.get("isExternal")}
    assert {"react", "uplot", "@patternfly/react-core"} <= {name for name, _ in contained}
    assert contained - set(of_console()) == {("@fortawesome/free-solid-svg-icons", "5.15.4")}
    assert holes("npm", contained) == []

    asked = {entry["name"]: entry["scope"] for entry in components if entry.get("isExternal")}
    required = [Requirement(text) for text in metadata_of(wheel).get_all("Requires-Dist", [])]
    assert asked == {
        name: "required"
        if any(name == canonicalize_name(each.name) for each in required if not each.marker)
        else "optional"
        for name in {canonicalize_name(each.name) for each in required} - {"enmasse"}
    }


def test_a_range_of_the_bill_is_one_that_is_asked_for() -> None:
    bill = bill_of_materials("enmasse", "1", "MIT", "", [(Requirement("PyJWT[crypto]<3,>=2.13"), True)])
    assert [(entry["name"], entry["versionRange"]) for entry in bill["components"]] == [
        ("pyjwt", "vers:pypi/>=2.13|<3")
    ]


def test_the_licence_of_all_that_is_contained_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        kept = [archive.read(name) for name in names if ".dist-info/licenses/" in name]
        pages = {name: archive.read(name) for name in names if name.startswith("enmasse/console/static/")}
    assert kept == [(ROOT / "LICENSE").read_bytes(), pages["enmasse/console/static/licences.txt"]]
    licences = kept[1].decode()
    packages = bundled_packages(licences)
    texts = licences.split(f"\n{'-' * 72}\n\n")
    assert [text.partition(" ")[0] for text in texts] == [name for name, _, _ in packages]
    assert all(len(text) > 200 for text in texts)
    said = metadata_of(wheel)["License-Expression"].split(" AND ")
    assert said == ["Apache-2.0", *sorted({licence for _, _, licence in packages})]
    # None of these has a font, whose licence would be another one.
    assert [name for name, page in pages.items() if re.search(rb"@font-face|data:(application/)?font", page)] == []
    assert {Path(name).suffix for name in pages} == {".js", ".css", ".html", ".txt"}


def test_what_the_demonstration_declares_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        declared = archive.read("enmasse/demo/demo.yaml")
    assert declared == (ROOT / "examples" / "pipelines" / "demo.yaml").read_bytes()


def test_links_of_the_page_lead_to_the_files_of_the_version_where_the_project_has_a_url() -> None:
    readme = "![a picture](docs/a.svg) [text](docs/b.md#c), [there](https://example.org/) and [here](#below)"
    assert page_of(readme, "https://example.org/x/", "v1") == (
        "![a picture](https://example.org/x/raw/v1/docs/a.svg) [text](https://example.org/x/blob/v1/docs/b.md#c), "
        "[there](https://example.org/) and [here](#below)"
    )
    assert page_of(readme, None, "v1") == "*a picture* text, [there](https://example.org/) and [here](#below)"


def test_the_core_imports_all_but_what_asks_for_an_extra_and_shows_every_help(each_core: Environment) -> None:
    found = each_core.whole_package()
    assert len(found["helped"]) > 100
    rooms = {name for name in found["missing"] if not name.startswith(("enmasse.pipeline.", "enmasse.demo."))}
    assert rooms == {"enmasse.cli.commands.use.tryout_tables", "enmasse.testing.pytest_plugin"}
    assert each_core("enmasse", "--version") == f"enmasse {__version__}\n"


def test_the_core_has_no_package_with_a_published_hole(each_core: Environment) -> None:
    packages = dict(each_core.packages())
    assert packages["enmasse"] == __version__
    assert len(packages) > 40
    assert holes("PyPI", packages.items()) == []


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["demo"], "matplotlib is not installed here: pip install 'enmasse[demo]'"),
        (["pipeline", "check", "pipeline.yaml"], "pyspark is not installed here: pip install 'enmasse[spark]'"),
        (
            ["model", "import", "m.skops", "--name", "m", "--features", "a"],
            "m.skops: skops is not installed here: pip install 'enmasse[convert]'",
        ),
    ],
)
def test_a_command_that_needs_an_extra_says_how_to_install_it(
    core: Environment, command: list[str], words: str
) -> None:
    shutil.copy(ROOT / "examples" / "pipelines" / "plant.yaml", core.home / "pipeline.yaml")
    (core.home / "m.skops").touch()
    assert core("enmasse", *command, code=1) == f"error: {words}\n"


@contextmanager
def platform(environment: Environment) -> Iterator[dict[str, str]]:
    """Run ``enmasse up``; the URL of each protocol."""
    log = environment.home / "up.log"
    with log.open("w") as file:
        up = environment.start("enmasse", "up", "--ports", "auto", stdout=file, stderr=subprocess.STDOUT)
    try:
        environment("enmasse", "status", "--wait", "120")
        endpoints = json.loads((environment.home / ".enmasse" / "endpoints.json").read_text())["endpoints"]
        yield {endpoint["protocol"]: endpoint["url"] for endpoint in endpoints}
    except BaseException as error:
        error.add_note(log.read_text())
        raise
    finally:
        up.send_signal(signal.SIGTERM)
        up.wait(60)


async def say_over_stomp(port: int, body: bytes) -> None:
    async with StompPeer(port) as peer:
        peer.send("orders", body, receipt="stored", persistent="true")
        await peer.receipt("stored")


def say_over(protocol: str, urls: dict[str, str], environment: Environment) -> None:
    """Send a message that says which protocol it came by, and be told that the node has it."""
    body = f"by {protocol}"
    url = httpx.URL(urls[{"websocket": "http"}.get(protocol, protocol)])
    match protocol:
        case "amqp":
            assert "accepted" in environment("enmasse", "send", "orders", body)
        case "mqtt" | "websocket":
            publish.single(
                "orders",
                body,
                qos=1,
                hostname="127.0.0.1",
                port=url.port or 0,
                transport="websockets" if protocol == "websocket" else "tcp",
                protocol=MQTTProtocolVersion.MQTTv311,
            )
        case "http":
            path = "/v1/spaces/myspace.default/addresses/orders/messages"
            assert httpx.post(url.join(path), content=body, trust_env=False, timeout=60).status_code == 202
        case "stomp":
            asyncio.run(say_over_stomp(url.port or 0, body.encode()))


def test_the_first_message_is_as_the_page_says_and_others_come_by_each_protocol(each_core: Environment) -> None:
    page = (ROOT / "docs" / "howto" / "install.md").read_text()
    first = page.partition("<!-- run: first -->\n```sh\n")[2].partition("```")[0]
    with platform(each_core) as urls:
        said = each_core("bash", "-euc", first).splitlines()
        assert (said[0], said[-1]) == (f"enmasse {__version__}", "a first message")
        for protocol in PROTOCOLS:
            say_over(protocol, urls, each_core)
        received = each_core("enmasse", "receive", "orders", "--count", str(len(PROTOCOLS)))
    assert received.splitlines() == [f"by {protocol}" for protocol in PROTOCOLS]


def test_a_service_outside_of_the_tree_is_tested_as_the_page_says(core: Environment) -> None:
    sample, project = ROOT / "examples" / "shipping", core.home / "shipping"
    page = (ROOT / "docs" / "howto" / "test-your-own-service.md").read_text()
    files = dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", page, re.DOTALL))
    assert files == {name: (sample / name).read_text() for name in files}
    assert len(files) == 3
    shutil.copytree(sample, project, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    # Beside the environment, in which other tests find the core alone.
    tools = core.home.with_name("pytest")
    its_python = str(core.programs / "python")
    run(sys.executable, "-m", "pip", "--python", its_python, "install", "--quiet", "--target", tools, "pytest")
    variables = f"PYTHONPATH={tools} PATH={tools}/bin:$PATH PYTEST_ADDOPTS='-p no:cacheprovider'"
    command = page.partition("<!-- run: tests -->\n```sh\n")[2].partition("```")[0]
    said = core("bash", "-euc", f"cd shipping; export {variables}; {command}")
    assert "5 passed" in said, said


@pytest.mark.parametrize("tool", ["uv tool", "pipx"])
def test_installers_of_programs_install_it_and_remove_all_of_it(
    tool: str, interpreter: str, place: Path, wheel: Path
) -> None:
    name = tool.partition(" ")[0]
    folder, programs = place / name / "tools", place / name / "bin"
    environment = {
        **{key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"},
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "UV_TOOL_DIR": str(folder),
        "UV_TOOL_BIN_DIR": str(programs),
        "UV_PYTHON_DOWNLOADS": "never",
        "PIPX_HOME": str(folder),
        "PIPX_BIN_DIR": str(programs),
        "PIPX_MAN_DIR": str(place / name / "man"),
    }
    words = [sys.executable, "-m", *tool.split()]
    run(*words, "install", "--python", interpreter, wheel, env=environment)
    user = Environment(programs, place / name / "home")
    assert user("enmasse", "demo", code=1) == (
        f"error: matplotlib is not installed here: {tool} install --force 'enmasse[demo]'\n"
    )
    run(*words, "uninstall", "enmasse", env=environment)
    assert list(programs.iterdir()) == []
    assert list(folder.rglob("enmasse")) == []


@at_length
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_the_core_works_with_each_python_that_is_here(version: str, place: Path, wheel: Path) -> None:
    # What pyenv puts on the path is no interpreter yet.
    pythons = [f"python{version}", *Path.home().glob(f".pyenv/versions/{version}.*/bin/python")]
    answers = (
        subprocess.run(
            ["sh", "-c", f"'{python}' -c 'import sys; print(sys.executable)'"],
            text=True,
            capture_output=True,
            check=False,
        )
        for python in pythons
    )
    python = next((answer.stdout.strip() for answer in answers if answer.returncode == 0), None)
    if python is None:
        pytest.skip(f"no Python {version} is here")
    environment = make_environment(python, place / f"python{version}", wheel)
    program = whole_package.__file__
    helped = json.loads(run(environment.programs / "python", program).splitlines()[-1])["helped"]
    assert len(helped) > 100


@at_length
@pytest.mark.parametrize("extra", ["spark", "models", "convert", "demo", "proton"])
@pytest.mark.parametrize("lowest", [False, True], ids=["highest", "lowest"])
def test_each_extra_brings_all_that_it_is_for(
    extra: str, interpreter: str, place: Path, wheel: Path, *, lowest: bool
) -> None:
    environment = make_environment(interpreter, place / f"{extra}-{lowest}", wheel, extra, lowest=lowest)
    assert holes("PyPI", environment.packages()) == []
    missing = environment.whole_package()["missing"]
    assert [text for text in missing.values() if f"[{extra}]" in text] == []
    if extra == "demo":
        said = environment("enmasse", "demo", "--seconds", "20")
        assert "Applying" in said
