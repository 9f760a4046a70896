"""What kubectl writes: create, apply, edit, patch, replace, label, delete, and waiting for what comes of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.interop.kubectl.kubectl_command import Kubectl, address, space

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kubectl")]


def test_objects_are_created_and_become_ready(kubectl: Kubectl) -> None:
    file = kubectl.file(space(), address())
    assert kubectl.ok("create", "-f", file).splitlines() == [
        "addressspace.enmasse.io/shop created",
        "address.enmasse.io/shop.orders created",
    ]
    kubectl.ok("wait", "--for=condition=Ready", "--timeout=60s", "-f", file)
    assert "AlreadyExists" in kubectl.refused("create", "-f", file)


def test_a_name_is_made_where_only_its_beginning_is_given(shop: Kubectl) -> None:
    document = address() | {"metadata": {"generateName": "shop.made-"}}
    document["spec"]["address"] = "made"
    created = shop.ok("create", "-f", "-", "-o", "name", stdin=yaml.safe_dump(document)).strip()
    assert created.startswith("address.enmasse.io/shop.made-")
    assert len(created) > len("address.enmasse.io/shop.made-")


def test_apply_changes_only_what_changed(shop: Kubectl) -> None:
    assert shop.apply(address()) == "address.enmasse.io/shop.orders unchanged\n"
    generation = shop.document("addr", "shop.orders")["metadata"]["generation"]
    changed = address(messageTtl={"maximum": 5000})
    assert shop.apply(changed) == "address.enmasse.io/shop.orders configured\n"
    present = shop.document("addr", "shop.orders")
    assert present["spec"]["messageTtl"] == {"maximum": 5000}
    assert present["metadata"]["generation"] == generation + 1
    assert shop.apply(address()) == "address.enmasse.io/shop.orders configured\n"
    assert "messageTtl" not in shop.document("addr", "shop.orders")["spec"]


def test_a_difference_is_shown_before_it_is_made(shop: Kubectl) -> None:
    file = shop.file(address(messageTtl={"maximum": 5000}))
    told = shop.run("diff", "-f", file)
    assert told.code == 1, told
    assert "+  messageTtl:" in told.out
    assert "messageTtl" not in shop.document("addr", "shop.orders")["spec"]
    assert shop.run("diff", "-f", shop.file(address())).code == 0


@pytest.mark.parametrize("mode", ["client", "server"])
def test_a_dry_run_writes_nothing(shop: Kubectl, mode: str) -> None:
    out = shop.ok("apply", f"--dry-run={mode}", "-f", shop.file(address("shop.dry")))
    assert out == f"address.enmasse.io/shop.dry created ({mode} dry run)".replace("client ", "") + "\n" or (
        out == f"address.enmasse.io/shop.dry created ({'server dry run' if mode == 'server' else 'dry run'})\n"
    )
    assert shop.ok("create", f"--dry-run={mode}", "-f", shop.file(address("shop.dry"))).strip().endswith("dry run)")
    assert "NotFound" in shop.refused("get", "addr", "shop.dry")
    shop.ok("delete", f"--dry-run={mode}", "addr", "shop.orders")
    assert shop.document("addr", "shop.orders")["status"]["phase"] == "Active"


def test_patches_of_both_kinds_are_applied(shop: Kubectl) -> None:
    merge = json.dumps({"spec": {"messageTtl": {"maximum": 7000}}})
    shop.ok("patch", "addr", "shop.orders", "--type=merge", "-p", merge)
    assert shop.document("addr", "shop.orders")["spec"]["messageTtl"] == {"maximum": 7000}
    steps = [
        {"op": "test", "path": "/spec/messageTtl/maximum", "value": 7000},
        {"op": "replace", "path": "/spec/messageTtl/maximum", "value": 8000},
    ]
    shop.ok("patch", "addr", "shop.orders", "--type=json", "-p", json.dumps(steps))
    assert shop.document("addr", "shop.orders")["spec"]["messageTtl"] == {"maximum": 8000}
    refused = shop.refused("patch", "addr", "shop.orders", "--type=json", "-p", json.dumps(steps))
    assert "test" in refused.lower()
    assert shop.document("addr", "shop.orders")["spec"]["messageTtl"] == {"maximum": 8000}


def test_an_object_is_replaced_as_it_was_read_but_not_over_another_change(shop: Kubectl) -> None:
    document = shop.document("addr", "shop.orders")
    document["spec"]["messageTtl"] = {"maximum": 9000}
    assert "replaced" in shop.ok("replace", "-f", "-", stdin=json.dumps(document))
    conflict = shop.refused("replace", "-f", "-", stdin=json.dumps(document))
    assert "Conflict" in conflict or "conflict" in conflict or "modified" in conflict


def test_labels_and_annotations_come_and_go(shop: Kubectl) -> None:
    shop.ok("label", "addr", "shop.orders", "team=red")
    shop.ok("annotate", "addr", "shop.orders", "note=kept for the audit")
    metadata = shop.document("addr", "shop.orders")["metadata"]
    assert metadata["labels"] == {"team": "red"}
    assert metadata["annotations"]["note"] == "kept for the audit"
    assert "overwrite" in shop.refused("label", "addr", "shop.orders", "team=blue")
    shop.ok("label", "addr", "shop.orders", "team=blue", "--overwrite")
    shop.ok("label", "addr", "shop.orders", "team-")
    shop.ok("annotate", "addr", "shop.orders", "note-")
    metadata = shop.document("addr", "shop.orders")["metadata"]
    assert "labels" not in metadata
    assert "note" not in metadata["annotations"]


def test_an_object_is_edited(shop: Kubectl, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/^  type: queue$/  type: queue\\n  messageTtl: {maximum: 4000}/' \"$1\"\n")
    editor.chmod(0o755)
    told = shop.ok("edit", "addr", "shop.orders", KUBE_EDITOR=str(editor))
    assert "edited" in told
    assert shop.document("addr", "shop.orders")["spec"]["messageTtl"] == {"maximum": 4000}


def test_an_edit_of_a_fixed_field_is_refused_with_the_reason(shop: Kubectl, tmp_path: Path) -> None:
    editor, seen = tmp_path / "editor", tmp_path / "seen"
    # kubectl opens the editor again, with the reason on top of the file.
    editor.write_text(
        f'#!/bin/sh\n[ -e {seen} ] && cat "$1" > {seen} && exit 1\n'
        f"touch {seen}\nsed -i 's/type: queue$/type: topic/' \"$1\"\n"
    )
    editor.chmod(0o755)
    assert shop.run("edit", "addr", "shop.orders", KUBE_EDITOR=str(editor)).code != 0
    assert "cannot change from 'queue' to 'topic'" in seen.read_text()
    assert shop.document("addr", "shop.orders")["spec"]["type"] == "queue"


def test_what_is_deleted_goes_and_a_space_takes_its_addresses_with_it(shop: Kubectl) -> None:
    shop.apply(address("shop.more"))
    assert 'address.enmasse.io "shop.more" deleted' in shop.ok("delete", "addr", "shop.more", "--timeout=60s")
    shop.ok("delete", "space", "shop", "--timeout=60s")
    assert shop.ok("get", "addr", "-o", "name") == ""
    assert shop.ok("delete", "space", "shop", "--ignore-not-found") == ""


def test_all_of_a_kind_are_deleted_by_label(shop: Kubectl) -> None:
    for name in ("shop.a", "shop.b"):
        shop.apply(address(name) | {"metadata": {"name": name, "labels": {"team": "red"}}})
    shop.ok("delete", "addr", "-l", "team=red", "--timeout=60s")
    assert shop.ok("get", "addr", "-o", "name").splitlines() == ["address.enmasse.io/shop.orders"]
    shop.ok("delete", "addr", "--all", "--timeout=60s")
    assert shop.ok("get", "addr", "-o", "name") == ""


def test_deletion_waits_for_a_finalizer(shop: Kubectl) -> None:
    hold = json.dumps({"metadata": {"finalizers": ["example.com/hold"]}})
    shop.ok("patch", "addr", "shop.orders", "--type=merge", "-p", hold)
    with shop.running("delete", "addr", "shop.orders") as deletion:
        deletion.wait_for('"shop.orders" deleted')  # said when it is asked for
        assert shop.document("addr", "shop.orders")["metadata"]["deletionTimestamp"]
        shop.ok("patch", "addr", "shop.orders", "--type=merge", "-p", json.dumps({"metadata": {"finalizers": None}}))
        assert deletion.end() == 0
    assert "NotFound" in shop.refused("get", "addr", "shop.orders")


def test_core_objects_are_made_by_kubectls_own_commands(kubectl: Kubectl) -> None:
    kubectl.ok("create", "configmap", "settings", "--from-literal=colour=red")
    kubectl.ok("create", "secret", "generic", "door", "--from-literal=password=sesame")
    assert kubectl.table("configmap", "settings")[1][:2] == ["settings", "1"]
    assert kubectl.document("secret", "door")["data"] == {"password": "c2VzYW1l"}
    changed = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "applied"},
        "data": {"colour": "blue", "size": "1"},
    }
    kubectl.apply(changed)
    changed["data"] = {"colour": "green"}
    kubectl.apply(changed)
    assert kubectl.document("configmap", "applied")["data"] == {"colour": "green"}
    assert "sesame" not in kubectl.ok("describe", "secret", "door")
    assert kubectl.table("namespace", kubectl.namespace)[1][:2] == [kubectl.namespace, "Active"]


def test_a_namespace_takes_everything_with_it(shop: Kubectl) -> None:
    shop.ok("delete", "namespace", shop.namespace, "--timeout=60s")
    assert "NotFound" in shop.refused("get", "namespace", shop.namespace)
    assert shop.ok("get", "addr,space", "-o", "name") == ""
