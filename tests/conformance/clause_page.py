"""Writes the pages of conformance below ``docs/reference``: run ``python -m tests.conformance.clause_page``."""

from __future__ import annotations

from itertools import groupby

from tests.conformance.clause_list import (
    AMQP,
    MQTT,
    SPECIFICATIONS,
    Section,
    Specification,
    load_reasons,
    load_sections,
    load_tests,
)

_AMQP_HEAD = """\
# AMQP 1.0, clause by clause

What the OASIS specification of AMQP 1.0 demands of a container such as a node, in our own words, and the tests
that show it. The numbers are those of the specification's sections. This page is made from
`tests/conformance/clauses` and the tests' marks by `python -m tests.conformance.clause_page`; a test sees to it
that it is fresh.

Where the specification leaves a choice, or more is asked than pays, a node does this:

- What is unsettled outlasts a link only where its terminus asks for that ([links that come back](link-recovery.md)).
  Otherwise a detached link is forgotten at once, and what its receiver had is handed out anew.
- Tags are looked at on such links only. On others a tag that is missing, too long or used twice does no harm, as
  nothing hangs on it.
- The name of a link that may not come back stands for it within its session only: links of the same name on other
  sessions and connections are others, and none is stolen (2.6.1). So workers that share a container id do not take
  each other's links.
- What a sender has settled reaches the receivers of an anycast or multicast address settled, whatever they ask for
  (2.8.2). A reader of a stream that leaves the choice is told that its deliveries are settled.
- Credit cannot belong to a transaction (4.4.3); distributed transactions are not served.
- A message may lack a body, as Qpid Proton sends one where it is given none; an empty payload is such a message.
- A message that is larger than a receiver's link takes is not sent to it. In a queue or durable subscription it waits
  for another receiver; on a direct address it is rejected; a volatile subscriber misses it, and so does a receiver of
  settled messages.
- On a link that may be resumed, a message comes again from its start, never from its middle.
"""

_MQTT_HEAD = """\
# MQTT, statement by statement

The normative statements of MQTT 5.0 and 3.1.1, in our own words, and the tests that show them. `mqtt5:3.1.2-22` is
the statement [MQTT-3.1.2-22] of the OASIS specification of MQTT 5.0, `mqtt3:` those of 3.1.1. This page is made from
`tests/conformance/clauses` and the tests' marks by `python -m tests.conformance.clause_page`; a test sees to it
that it is fresh.

Where the specifications leave a choice, a node does this:

- A client of version 5 is told why its connection ends, with a reason string for its developer: by CONNACK until it
  is admitted, then by DISCONNECT. Others see the connection close; a CONNECT that is refused has its return code.
- A protocol name that is not MQTT's has no answer. A level that is not served is answered in the form of the version
  that it lies nearest to.
- In version 3.1, identifiers may have more than 23 characters, and SUBACK tells of filters that were refused.
- A topic name with a wildcard is refused by reason code 0x90, a topic filter with a misplaced one by 0x8F: both end
  the connection.
- A remaining length with more bytes than it takes is an error in version 5 alone, as 3.1.1 does not forbid it.
- What several subscriptions of a client match comes once, unless the space says otherwise; see
  [filters that overlap](mqtt.md#filters-that-overlap).
- A subscription that ends takes along what waited for it alone. A message that is in flight then is brought to its
  end on the same connection; if that is cut before its acknowledgement, it is not sent again, unless another one of
  the client has it too.
- Packets other than PUBLISH have up to 512 KiB, a packet up to 4,096 topic filters and 1,000 user properties.
"""

HEADS = {AMQP: _AMQP_HEAD, MQTT: _MQTT_HEAD}


def page(specification: Specification) -> str:
    """The page as it should be."""
    sections = load_sections(specification)
    tests = load_tests()
    reasons = load_reasons(specification)
    for section in sections:
        for found in section.clauses:
            found.tests = tests.get(found.name, [])
    out = [HEADS[specification], "| part | clauses | with a test | without |", "|---|--:|--:|--:|"]
    for part, group in groupby(sections, key=lambda section: section.part):
        clauses = [found for section in group for found in section.clauses]
        shown = sum(bool(found.tests) for found in clauses)
        out.append(f"| {part.row} | {len(clauses)} | {shown} | {len(clauses) - shown} |")
    out += ["", "## Clauses without a test", ""]
    missing = [found for section in sections for found in section.clauses if not found.tests]
    if missing:
        out += ["| clause | what it demands | why there is no test |", "|---|---|---|"]
        out += [f"| {found.name} | {found.statement} | {reasons.get(found.name, '')} |" for found in missing]
    else:
        out.append("None.")
    for part, group in groupby(sections, key=lambda section: section.part):
        out += ["", f"## {part.heading}"]
        for section in group:
            out += _section(section)
    return "\n".join(out) + "\n"


def _section(section: Section) -> list[str]:
    out = [
        "",
        f"### {section.number} {section.title}",
        "",
        "| clause | what it demands | shown by |",
        "|---|---|---|",
    ]
    for found in section.clauses:
        shown = "<br>".join(_link(test) for test in found.tests) or "no test"
        out.append(f"| {found.name} | {found.statement} | {shown} |")
    return out


def _link(test: str) -> str:
    path, _, name = test.partition("::")
    return f"[{name.removeprefix('test_').replace('_', ' ')}](../../{path})"


if __name__ == "__main__":
    for each in SPECIFICATIONS:
        each.page.write_text(page(each))
