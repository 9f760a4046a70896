"""``enmasse endpoints``: every URL, ready to paste."""

from __future__ import annotations

from dataclasses import asdict

from enmasse.cli.installation import find_endpoints
from enmasse.cli.options import DEFAULT_DATA, Data, StructuredChoice, StructuredOutput
from enmasse.cli.output import Writer, make_table, write_structured

__all__ = ["endpoints"]


def endpoints(output: StructuredChoice = StructuredOutput.TABLE, data: Data = DEFAULT_DATA) -> None:
    """Show every URL that the installation serves."""
    writer = Writer()
    found = find_endpoints(data)
    if output != StructuredOutput.TABLE:
        write_structured(writer.out, output.value, [asdict(item) for item in found.endpoints])
        return
    rows = [[item.protocol, item.url] for item in found.endpoints]
    writer.out.print(make_table(["PROTOCOL", "URL"], rows))
