"""Pairs of files for ``enmasse pipeline test``: a pipeline of each kind, its rows, and what is said of them."""

# ruff: noqa: E501  messages are best read in one line

from __future__ import annotations

from pathlib import Path
from typing import Final

import yaml

EXAMPLES: Final = Path(__file__).parents[2] / "examples" / "pipelines"
ROWS: Final = Path(__file__).parent / "example_rows"
PAYLOADS: Final = Path(__file__).parents[2] / "examples" / "payloads"

USERS: Final = """
apiVersion: enmasse.io/v1beta1
kind: AddressSpace
metadata: {name: kiln}
spec: {type: standard, authenticationService: {name: standard}}
---
apiVersion: user.enmasse.io/v1beta1
kind: MessagingUser
metadata: {name: kiln.spark}
spec:
  username: spark
  authentication: {type: password, password: c2VjcmV0LWFuZC1sb25n}
  authorization:
    - {addresses: [telemetry], operations: [recv]}
    - {addresses: [alerts], operations: [send]}
---
apiVersion: v1
kind: Secret
metadata: {name: spark-user}
stringData: {username: spark, password: secret-and-long}
---
"""

# By name: the pipeline, its rows, and what is said of them.
PAIRS: Final[dict[str, tuple[str, str, str]]] = {
    # A table named like an address, moments with and without a zone, a table and an address that get nothing.
    "users": (
        USERS
        + """
apiVersion: enmasse.io/v1beta1
kind: Pipeline
metadata: {name: kiln.users}
spec:
  credentialsSecret: spark-user
  sources:
    - {name: readings, address: telemetry, format: json, schema: "device STRING, at TIMESTAMP, local TIMESTAMP_NTZ"}
  steps:
    - {name: kept, sql: "SELECT device, at, local, array(local) AS locals FROM readings"}
    - {name: none, sql: "SELECT device FROM readings WHERE device = 'x'"}
  sinks:
    - {input: kept, table: telemetry}
    - {input: kept, address: alerts}
    - {input: none, table: none}
""",
        """
given:
  - address: telemetry
    messages: [json: {device: a, at: 2026-01-31T13:00:00+01:00, local: 2026-01-31T13:00:00}]
expect:
  - table: telemetry
    rows: [{device: a, at: 2026-01-31T12:00:00Z, local: "2026-01-31 13:00:00", locals: [2026-01-31T13:00:00]}]
  - address: alerts
    messages:
      - json: {device: a, at: 2026-01-31T14:00:00+02:00, local: 2026-01-31T13:00:00, locals: [2026-01-31T13:00:00]}
  - table: none
    rows: []
""",
        "telemetry: 1 rows, as expected\nalerts: 1 messages, as expected\nnone: 0 rows, as expected",
    ),
    # Whose user is not in the file; bytes that are no text.
    "bytes": (
        """
apiVersion: enmasse.io/v1beta1
kind: Pipeline
metadata: {name: kiln.bytes}
spec:
  credentialsSecret: spark-user
  sources: [{name: frames, address: frames, format: raw}]
  steps: [{name: framed, sql: "SELECT value FROM frames"}]
  sinks: [{table: frames}, {address: again}]
""",
        """
given:
  - address: frames
    messages: [{base64: /wAB}, {base64: !!binary /wAC}]
expect:
  - table: frames
    rows: [{value: !!binary /wAB}, {value: !!binary /wAC}]
  - address: again
    messages: [{base64: /wAC}, {base64: /wAB}]
""",
        "frames: 2 rows, as expected\nagain: 2 messages, as expected",
    ),
    # Rows without a partner come out as the watermark passes, with no further message.
    "outer": (
        """
apiVersion: enmasse.io/v1beta1
kind: Pipeline
metadata: {name: plant.outer}
spec:
  sources:
    - {name: due, address: orders, format: json, schema: "id INT, at TIMESTAMP", watermark: {column: at, delay: 9s}}
    - {name: pays, address: paid, format: json, schema: "of INT, ts TIMESTAMP", watermark: {column: ts, delay: 9s}}
  steps:
    - name: joined
      sql: SELECT id, of FROM due LEFT JOIN pays ON id = of AND ts >= at AND ts <= at + INTERVAL 1 MINUTE
  sinks: [{table: joined}]
""",
        """
given:
  - address: orders
    messages:
      - json: {id: 1, at: 2026-01-31T12:00:00Z}
      - json: {id: 2, at: 2026-01-31T12:00:01Z}
      - json: {id: 3, at: 2026-01-31T13:00:00Z}
  - address: paid
    messages:
      - json: {of: 1, ts: 2026-01-31T12:00:30Z}
      - json: {of: 3, ts: 2026-01-31T13:00:30Z}
expect:
  - table: joined
    rows: [{id: 1, of: 1}, {id: 2, of: null}, {id: 3, of: 3}]
""",
        "joined: 3 rows, as expected",
    ),
    # Files; timers by the clock, which would go on for ever.
    "files": (
        """
apiVersion: v1
kind: ConfigMap
metadata: {name: counting}
data:
  counting.py: |
    from datetime import timedelta
    import pandas as pd


    def count(of, rows, state):
        before = state.value or {"count": 0, "since": state.now}
        state.update(before | {"count": before["count"] + len(rows)})
        state.set_timer(timedelta(days=1))
        return pd.DataFrame({"of": [of], "count": [state.value["count"]]})
---
apiVersion: enmasse.io/v1beta1
kind: Pipeline
metadata: {name: plant.files}
spec:
  sources:
    - name: orders
      files: {path: orders/new, format: csv, header: true}
      schema: id INT, amount DOUBLE
      badRecords: misfits
  steps:
    - name: counted
      function: counting:count
      stateBy: id
      state: {schema: "count INT, since TIMESTAMP", timers: processingTime, orderBy: [amount]}
      schema: of STRING, count INT
  sinks: [{table: counted}]
  code: {configMap: counting}
""",
        """
given:
  - files: orders/new
    messages: [{text: "id,amount\\n1,12.5\\n1,3\\nx,3\\n"}]
  - files: orders/new/more
    messages: [{text: "id,amount\\n1,1\\n"}]
expect:
  - table: counted
    rows: [{of: "1", count: 2}, {of: "1", count: 3}]
  - address: misfits
    messages: [{text: "x,3"}]
""",
        "counted: 2 rows, as expected\nmisfits: 1 messages, as expected",
    ),
    # Columns that are called as machines call them, wherever columns are named.
    "names": (
        """
apiVersion: v1
kind: ConfigMap
metadata: {name: doubling}
data:
  doubling.py: |
    def doubled(rows):
        rows['ns=3;s="DB1"."temp"'] *= 2
        return rows[["a`b", 'ns=3;s="DB1"."temp"']]
---
apiVersion: enmasse.io/v1beta1
kind: Pipeline
metadata: {name: plant.names}
spec:
  sources:
    - name: tags
      address: tags
      format: json
      schema: >
        `a``b` STRING, `ns=3;s="DB1"."temp"` DOUBLE, `Motor[1].Speed` INT, `it's` STRING, `last seen. [s]` TIMESTAMP
      watermark: {column: "last seen. [s]", delay: 10s}
      expectations: [{name: known, condition: "`a``b` <> ''", action: dead-letter}]
      badRecords: letters
  steps:
    - {name: once, dropDuplicates: ["a`b", "last seen. [s]"]}
    - name: shares
      sql: SELECT `a``b`, t.`it's`, `last seen. [s]`, 100 / t.`Motor[1].Speed` AS `100 / x.y` FROM tags t
      badRecords: errors
    - name: minutes
      sql: >
        SELECT window.start AS `since.`, `a``b`, sum(`ns=3;s="DB1"."temp"`) AS `sum.temp` FROM tags
        GROUP BY window(`last seen. [s]`, '1 minute'), `a``b`
    - name: doubled
      input: tags
      function: doubling:doubled
      schema: '`a``b` STRING, `ns=3;s="DB1"."temp"` DOUBLE'
  sinks:
    - {input: once, table: tags, partitionBy: ["day(`last seen. [s]`)", "it's"]}
    - input: shares
      table: shares
      mode: update
      keys: ["a`b"]
      orderBy: last seen. [s]
      deleteWhen: "`it's` = 'gone'"
    - input: shares
      table: versions
      mode: update
      keys: ["a`b"]
      orderBy: last seen. [s]
      keepHistory: true
      deleteWhen: "`it's` = 'gone'"
      constraints: {share: "`100 / x.y` > 0"}
    - {input: minutes, table: minutes}
    - {input: doubled, address: doubled}
  code: {configMap: doubling}
""",
        """
given:
  - address: tags
    messages:
      - json: &first {a`b: A, 'ns=3;s="DB1"."temp"': 1.5, "Motor[1].Speed": 50, it's: ok, "last seen. [s]": 2026-01-31T12:00:00Z}
      - json: *first
      - json: &none {a`b: A, 'ns=3;s="DB1"."temp"': 2.5, "Motor[1].Speed": 0, it's: ok, "last seen. [s]": 2026-01-31T12:00:05Z}
      - json: {a`b: 'B.x["', 'ns=3;s="DB1"."temp"': 3.5, "Motor[1].Speed": 4, it's: ok, "last seen. [s]": 2026-01-31T12:00:06Z}
      - json: &hot {a`b: D, 'ns=3;s="DB1"."temp"': hot, it's: ok, "last seen. [s]": "2026-01-31T12:00:06Z"}
      - json: &unknown {a`b: "", 'ns=3;s="DB1"."temp"': 1, "Motor[1].Speed": 1, it's: ok, "last seen. [s]": 2026-01-31T12:00:07Z}
  - address: tags
    messages:
      - json: {a`b: A, 'ns=3;s="DB1"."temp"': 4.5, "Motor[1].Speed": 25, it's: gone, "last seen. [s]": 2026-01-31T12:10:00Z}
expect:
  - table: tags
    rows:
      - {a`b: A, 'ns=3;s="DB1"."temp"': 1.5, it's: ok, "last seen. [s]_day": "2026-01-31"}
      - {a`b: A, 'ns=3;s="DB1"."temp"': 2.5, it's: ok, "last seen. [s]_day": "2026-01-31"}
      - {a`b: 'B.x["', 'ns=3;s="DB1"."temp"': 3.5, it's: ok, "last seen. [s]_day": "2026-01-31"}
      - {a`b: A, 'ns=3;s="DB1"."temp"': 4.5, it's: gone, "last seen. [s]_day": "2026-01-31"}
  - table: shares
    rows: [{a`b: 'B.x["', 100 / x.y: 25}]
  - table: versions
    rows:
      - {a`b: A, 100 / x.y: 2, valid_from: 2026-01-31T12:00:00Z, valid_to: 2026-01-31T12:10:00Z}
      - {a`b: 'B.x["', 100 / x.y: 25, valid_from: 2026-01-31T12:00:06Z, valid_to: null}
  - table: minutes
    rows:
      - {since.: 2026-01-31T12:00:00Z, a`b: A, sum.temp: 5.5}
      - {since.: 2026-01-31T12:00:00Z, a`b: 'B.x["', sum.temp: 3.5}
  - address: doubled
    messages:
      - json: &twice {a`b: A, 'ns=3;s="DB1"."temp"': 3}
      - json: *twice
      - json: {a`b: A, 'ns=3;s="DB1"."temp"': 5}
      - json: {a`b: 'B.x["', 'ns=3;s="DB1"."temp"': 7}
      - json: {a`b: A, 'ns=3;s="DB1"."temp"': 9}
  - address: letters
    messages: [{json: *hot}, {json: *unknown}]
  - address: errors
    messages: [{json: *none}]
""",
        "tags: 4 rows, as expected\nshares: 1 rows, as expected\nversions: 2 rows, as expected\nminutes: 2 rows, as expected\ndoubled: 5 messages, as expected\nletters: 2 messages, as expected\nerrors: 1 messages, as expected",
    ),
    # A pipeline that is built in.
    "builtin": (
        """
apiVersion: enmasse.io/v1beta1
kind: Pipeline
metadata: {name: plant.last}
spec: {builtin: {name: last-value, parameters: {address: telemetry, to: lasts}}}
""",
        """
given:
  - address: telemetry
    messages: [{json: {device: a, level: 1.5, ts: 2026-01-31T12:00:01Z}}]
  - address: telemetry
    messages: [{json: {device: a, level: 41, ts: 2026-01-31T12:00:00Z}}]
expect:
  - table: last_value
    rows: [{device: a, metric: level, value: 1.5}]
""",
        "last_value: 1 rows, as expected",
    ),
}
OF_EXAMPLES: Final = {
    "changes": ("changes.yaml", "crm", "customers: 3 rows, as expected\ncustomer_history: 8 rows, as expected"),
    "sessions": ("patterns.yaml", "hall", "sessions: 3 rows, as expected"),
    "top": ("patterns.yaml", "hall", "top: 2 messages, as expected"),
}


def write_pairs(folder: Path) -> list[tuple[str, str, str]]:
    """Write a pair of each kind into a folder; return of each the names of its files, and what is said of them."""
    found = []
    for name, (pipeline, rows, said) in PAIRS.items():
        (folder / f"{name}.yaml").write_text(pipeline)
        (folder / f"{name}-rows.yaml").write_text(rows)
        found.append((f"{name}.yaml", f"{name}-rows.yaml", said))
    return found


def example_pairs(folder: Path) -> list[tuple[str, str, str]]:
    """Write the examples into a folder; return of each the names of its files, and what is to be said of them."""
    found = []
    for name, (file, space, said) in OF_EXAMPLES.items():
        # In a space for which there is a Spark already.
        text = (EXAMPLES / file).read_text().replace(f"name: {space}", "name: plant")
        (folder / f"{name}.yaml").write_text(text)
        found.append((f"{name}.yaml", str(ROWS / f"{name}.yaml"), said))
    return found


def payload_pairs() -> list[tuple[str, str, str]]:
    """Return of each example of a vendor's payloads the names of its files, and what is to be said of them."""
    found = []
    for rows in sorted(PAYLOADS.glob("*-rows.yaml")):
        said = []
        for expected in yaml.safe_load(rows.read_text())["expect"]:
            kind = "rows" if "table" in expected else "messages"
            said.append(f"{expected.get('table') or expected['address']}: {len(expected[kind])} {kind}, as expected")
        found.append((str(rows).replace("-rows.yaml", ".yaml"), str(rows), "\n".join(said)))
    return found
