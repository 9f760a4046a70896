// Events of the API, the newest first. There are 2,000 at most, so they are filtered here.
import { Label, SearchInput, Toolbar, ToolbarContent, ToolbarItem } from "@patternfly/react-core";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import { type ReactElement, useMemo } from "react";
import { useSearchParams } from "react-router";
import { useObjects } from "../api/live";
import type { EventObject } from "../api/types";
import { Teach } from "../parts/empty";
import { ago, count, dateTime, plural } from "../parts/format";
import { Refusal } from "../parts/problem";
import { Choice } from "../parts/table";

const MOST = 200;

export function EventTable({ url, of, withNamespace }: { url: string; of?: (event: EventObject) => boolean; withNamespace?: boolean }): ReactElement {
  const { data, error } = useObjects<EventObject>(url);
  const [search, setSearch] = useSearchParams();
  const text = search.get("q") ?? "";
  const type = search.get("type") ?? undefined;
  const set = (name: string, value: string | undefined) =>
    setSearch(
      (before) => {
        const next = new URLSearchParams(before);
        if (value) next.set(name, value);
        else next.delete(name);
        return next;
      },
      { replace: true },
    );
  const found = useMemo(() => {
    const letters = text.toLowerCase();
    return (data ?? [])
      .filter((event) => (!of || of(event)) && (!type || event.type === type))
      .filter((event) => [event.involvedObject.kind, event.involvedObject.name, event.involvedObject.namespace, event.reason, event.message].join(" ").toLowerCase().includes(letters))
      .sort((a, b) => (b.lastTimestamp ?? "").localeCompare(a.lastTimestamp ?? ""));
  }, [data, of, text, type]);
  if (data && found.length === 0 && !text && !type) {
    return <Teach title="Nothing has happened">When something becomes ready, waits or fails, it is told here with the reason.</Teach>;
  }
  return (
    <>
      <Toolbar inset={{ default: "insetNone" }}>
        <ToolbarContent>
          <ToolbarItem>
            <SearchInput aria-label="Find events" placeholder="Find" value={text} onChange={(_, value) => set("q", value)} onClear={() => set("q", undefined)} />
          </ToolbarItem>
          <ToolbarItem>
            <Choice title="Type" options={["Normal", "Warning"]} value={type} onChange={(value) => set("type", value)} />
          </ToolbarItem>
        </ToolbarContent>
      </Toolbar>
      {error && <Refusal error={error} />}
      <Table aria-label="Events" variant="compact" gridBreakPoint="grid-md">
        <Thead>
          <Tr>
            <Th>When</Th>
            <Th>Type</Th>
            <Th>Object</Th>
            <Th>Reason</Th>
            <Th>What happened</Th>
            <Th>Times</Th>
          </Tr>
        </Thead>
        <Tbody>
          {found.slice(0, MOST).map((event) => (
            <Tr key={event.metadata.uid ?? event.metadata.name}>
              <Td dataLabel="When" className="em-nowrap">
                <span title={dateTime(event.lastTimestamp)}>{ago(event.lastTimestamp)}</span>
              </Td>
              <Td dataLabel="Type">
                <Label isCompact color={event.type === "Warning" ? "orange" : "grey"}>{event.type}</Label>
              </Td>
              <Td dataLabel="Object" className="em-wrap">
                {event.involvedObject.kind} {event.involvedObject.name}
                {withNamespace && <div className="em-figure-below">{event.involvedObject.namespace}</div>}
              </Td>
              <Td dataLabel="Reason">{event.reason}</Td>
              <Td dataLabel="What happened" className="em-wrap">{event.message}</Td>
              <Td dataLabel="Times">{count(event.count)}</Td>
            </Tr>
          ))}
        </Tbody>
      </Table>
      {data && <p className="em-total">{found.length > MOST ? `The last ${MOST} of ${plural(found.length, "event")}` : plural(found.length, "event")}</p>}
    </>
  );
}
