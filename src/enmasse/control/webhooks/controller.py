"""Reconcile webhooks: post the messages of each as it is declared, and tell what came of it.

It runs within the control process: a request is waited for, not computed, and whoever stops control loses nothing.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from functools import partial
from typing import TYPE_CHECKING, Final

from enmasse.control.runtime.controller import Controller
from enmasse.control.runtime.verdicts import Verdict, condition
from enmasse.control.webhooks.posting import Figures, Poster, Posting
from enmasse.control.webhooks.request import key_of, key_problem
from enmasse.model.kinds.durations import milliseconds
from enmasse.model.kinds.webhooks import Webhook, header_problem
from enmasse.model.schema.conditions import READY, find, with_effect
from enmasse.model.schema.kinds import ADDRESS, SECRET, WEBHOOK
from enmasse.model.schema.objects import restore
from enmasse.net.egress import WEBHOOKS, Reach, trust_of
from enmasse.net.egress_http import Egress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from enmasse.control.context import Context
    from enmasse.control.store.port import Change, Document, Store
    from enmasse.control.webhooks.posting import Visit

TELL_S: Final = 1.0
"""The time between two writes of figures into statuses."""

_TYPES: Final = frozenset(("queue", "subscription", "deadletter", "anycast"))
_KEY: Final = "key"
_AUTHORITIES: Final = "ca.crt"
SIGNING_KEY: Final = "SigningKey"
"""The condition of a webhook whose key would be refused if it were new; others do not have it."""


class WebhookController(Controller):
    """Reconciles webhooks. A key is namespace and name.

    Args:
        context: the context of the controllers.
        visit: connects to a space at its node.
    """

    name = "webhooks"
    workers = 4

    def __init__(self, context: Context, visit: Visit) -> None:
        super().__init__(jitter=context.jitter, observe=context.observe)
        self._context = context
        self._store = context.store
        self._visit = visit
        self._tasks: dict[str, tuple[Posting, asyncio.Task[None]]] = {}
        self._figures: dict[str, Figures] = {}
        self._fresh: set[str] = set()

    def load(self, store: Store) -> None:
        """Enqueue all webhooks."""
        for document in store.select(WEBHOOK.name):
            self._enqueue(document)

    def apply(self, change: Change) -> None:
        """Enqueue the webhooks that a change concerns."""
        kind, metadata = change.document["kind"], change.document["metadata"]
        if kind == WEBHOOK.name:
            self._enqueue(change.document)
        elif kind in (SECRET.name, ADDRESS.name):
            for document in self._store.select(WEBHOOK.name, metadata["namespace"]):
                spec = document["spec"]
                if kind == ADDRESS.name and spec["address"] != change.document["spec"]["address"]:
                    continue
                self._enqueue(document)

    def _enqueue(self, document: Document) -> None:
        self.enqueue(f"{document['metadata']['namespace']}/{document['metadata']['name']}")

    async def reconcile(self, key: str) -> bool:
        """Post as a webhook says, or no more."""
        namespace, _, name = key.partition("/")
        document = self._store.find(WEBHOOK.name, namespace, name)
        webhook = None if document is None else restore(document)
        if webhook is None or webhook.metadata.deletion_timestamp:
            await self._stop(key)
            self._figures.pop(key, None)
            return True
        assert isinstance(webhook, Webhook)
        verdict = self._judge(webhook)
        posting = self._posting(webhook) if verdict.is_yes and not webhook.spec.paused else None
        running = self._tasks.get(key)
        if running is not None and (running[0] != posting or running[1].done()):
            await self._stop(key)
            running = None
        figures = self._figures.setdefault(key, Figures())
        if posting is not None and running is None:
            egress = Egress(Reach(WEBHOOKS, tuple(self._context.networks)), trust_of(posting.authorities))
            poster = Poster(posting, figures, self._visit, egress, lambda: self._fresh.add(key))
            self._tasks[key] = posting, asyncio.create_task(poster.run(), name=f"webhook {key}")
        self._publish(webhook, verdict, figures)
        return True

    def _publish(self, webhook: Webhook, verdict: Verdict, figures: Figures) -> None:
        if verdict.is_yes and webhook.spec.paused:
            verdict = Verdict("Paused")
        counted = {
            "delivered": figures.delivered,
            "failed": figures.failed,
            "rejected": figures.rejected,
            "last_error": figures.last_error,
        }
        generation = webhook.metadata.generation
        effects = self._context.effects.of(webhook)
        conditions = [condition(READY, verdict, generation)]
        if verdict.is_yes and not (key := self._key_verdict(webhook)).is_yes:
            conditions.append(condition(SIGNING_KEY, key, generation))
        found = with_effect(conditions, effects, generation)
        status = webhook.status.model_copy(update=counted).with_conditions(found, self._context.now())
        self._context.statuses.publish(webhook, status, partial(self.enqueue, webhook.key))

    def _judge(self, webhook: Webhook) -> Verdict:
        """Return whether everything is there that a webhook needs."""
        row = self._context.desired.owner(webhook.space_key, webhook.spec.address)
        if row is None or row.is_leaving:
            return Verdict("AddressMissing", f"there is no address '{webhook.spec.address}' in its space")
        if row.type not in _TYPES:
            message = f"'{row.address}' is a {row.type}: expected one of {', '.join(sorted(_TYPES))}"
            return Verdict("WrongAddress", f"{message}; a topic has subscriptions")
        if row.phase != "Active":
            return Verdict("AddressNotReady", f"address '{row.address}' is {row.phase}")
        spec, namespace = webhook.spec, webhook.metadata.namespace
        for name in filter(None, (spec.signing_secret, spec.headers_secret, spec.ca_secret)):
            entries = self._secret(namespace, name)
            if entries is None:
                return Verdict("SecretMissing", f"there is no Secret '{name}' in namespace {namespace}")
            for entry, wanted in ((_KEY, spec.signing_secret), (_AUTHORITIES, spec.ca_secret)):
                if name == wanted and not entries.get(entry):
                    return Verdict("SecretMissing", f"Secret '{name}' has no entry '{entry}'")
            # A key that was in use before it was looked at goes on, unless it is none.
            if (
                name == spec.signing_secret
                and (not key_of(entries[_KEY]) or not _is_ready(webhook))
                and (weakness := key_problem(entries[_KEY]))
            ):
                return Verdict("SecretUnusable", f"Secret '{name}', entry '{_KEY}': {weakness}")
            if name == spec.ca_secret:
                try:
                    trust_of(entries[_AUTHORITIES].decode("latin-1"))
                except ValueError as error:
                    return Verdict("SecretUnusable", f"Secret '{name}', entry '{_AUTHORITIES}': {error}")
            if name == spec.headers_secret:
                for header, value in entries.items():
                    if problem := header_problem(header, value.decode("latin-1").strip()):
                        return Verdict("SecretUnusable", f"Secret '{name}': {problem}")
        return Verdict("Ready")

    def _key_verdict(self, webhook: Webhook) -> Verdict:
        """Return whether the key of a webhook that posts is as strong as one has to be today."""
        secret = webhook.spec.signing_secret
        entries = (self._secret(webhook.metadata.namespace, secret) if secret else None) or {}
        problem = key_problem(entries[_KEY]) if _KEY in entries else ""
        remedy = "it signs as before; give the Secret and the receiver another one"
        return Verdict("WeakKey", f"Secret '{secret}', entry '{_KEY}': {problem}; {remedy}" if problem else "")

    def _posting(self, webhook: Webhook) -> Posting:
        spec, namespace = webhook.spec, webhook.metadata.namespace
        hidden = (self._secret(namespace, spec.headers_secret) if spec.headers_secret else None) or {}
        signing = (self._secret(namespace, spec.signing_secret) if spec.signing_secret else None) or {}
        trusted = (self._secret(namespace, spec.ca_secret) if spec.ca_secret else None) or {}
        headers = spec.headers | {name: value.decode("latin-1").strip() for name, value in hidden.items()}
        return Posting(
            space=webhook.space_key,
            address=spec.address,
            url=spec.url,
            headers=headers,
            key=key_of(signing[_KEY]) if _KEY in signing else None,
            authorities=trusted[_AUTHORITIES].decode("latin-1") if _AUTHORITIES in trusted else None,
            concurrency=spec.concurrency,
            timeout_s=milliseconds(spec.timeout) / 1000,
            delay_s=milliseconds(spec.retry.delay) / 1000,
            max_delay_s=milliseconds(spec.retry.max_delay) / 1000,
        )

    def _secret(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        document = self._store.find(SECRET.name, namespace, name)
        if document is None:
            return None
        return {entry: b64decode(value) for entry, value in (document.get("data") or {}).items()}

    async def _stop(self, key: str) -> None:
        running = self._tasks.pop(key, None)
        if running is not None:
            running[1].cancel()
            await asyncio.gather(running[1], return_exceptions=True)

    async def run_beside(self) -> None:
        """Write figures into statuses, now and then, and stop everything at the end."""
        try:
            while True:
                await asyncio.sleep(TELL_S)
                fresh, self._fresh = self._fresh, set()
                for key in fresh:
                    self.enqueue(key)
        finally:
            for _, task in self._tasks.values():
                task.cancel()


def _is_ready(webhook: Webhook) -> bool:
    found = find(webhook.status.conditions, READY)
    return found is not None and found.status == "True"
