import { Button, Label, SearchInput, TextInput, Toolbar, ToolbarContent, ToolbarItem } from "@patternfly/react-core";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import { type ReactElement } from "react";
import { useSearchParams } from "react-router";
import { query, V1 } from "../api/client";
import { useGet } from "../api/live";
import type { AuditEntry } from "../api/types";
import { Teach } from "../parts/empty";
import { dateTime } from "../parts/format";
import { PageFrame } from "../parts/frame";
import { Refusal } from "../parts/problem";

const PAGE = 100;

function what(entry: AuditEntry): string {
  if (entry.path) return entry.path;
  const resource = [entry.resource, entry.group].filter(Boolean).join(".");
  return [resource, [entry.namespace, entry.name].filter(Boolean).join("/")].filter(Boolean).join(" ");
}

export default function AuditPage(): ReactElement {
  const [search, setSearch] = useSearchParams();
  const text = search.get("q") ?? "";
  const user = search.get("user") ?? "";
  const before = search.get("before") ?? "";
  const { data, error, again } = useGet<{ items: AuditEntry[] }>(query(`${V1}/audit`, { limit: PAGE, search: text, user, before }));
  const set = (name: string, value: string | undefined) =>
    setSearch(
      (old) => {
        const next = new URLSearchParams(old);
        if (name !== "before") next.delete("before");
        if (value) next.set(name, value);
        else next.delete(name);
        return next;
      },
      { replace: true },
    );
  const items = data?.items ?? [];
  const last = items.at(-1)?.time;
  return (
    <PageFrame title="Audit" about="Who changed what, and who was refused. The newest first." actions={<Button variant="secondary" onClick={again}>Look again</Button>}>
      <Toolbar inset={{ default: "insetNone" }}>
        <ToolbarContent>
          <ToolbarItem>
            <SearchInput aria-label="Find" placeholder="Object, verb, address" value={text} onChange={(_, value) => set("q", value)} onClear={() => set("q", undefined)} />
          </ToolbarItem>
          <ToolbarItem>
            <TextInput aria-label="User" placeholder="User" value={user} onChange={(_, value) => set("user", value)} />
          </ToolbarItem>
        </ToolbarContent>
      </Toolbar>
      {error && <Refusal error={error} />}
      {data && items.length === 0 && <Teach title="Nothing of that kind">Each request that changes something, or is refused, is a line here.</Teach>}
      {items.length > 0 && (
        <Table aria-label="Audit" variant="compact" gridBreakPoint="grid-md">
          <Thead>
            <Tr>
              <Th>When</Th>
              <Th>Who</Th>
              <Th>From</Th>
              <Th>Did</Th>
              <Th>What</Th>
              <Th>Ended</Th>
            </Tr>
          </Thead>
          <Tbody>
            {items.map((entry, index) => (
              <Tr key={`${entry.time}/${index}`}>
                <Td dataLabel="When" className="em-nowrap">{dateTime(entry.time)}</Td>
                <Td dataLabel="Who" className="em-wrap">{entry.user ?? "nobody"}</Td>
                <Td dataLabel="From">
                  {entry.from}
                  <div className="em-figure-below em-wrap">{entry.agent?.slice(0, 40)}</div>
                </Td>
                <Td dataLabel="Did">
                  {entry.verb} {entry.dryRun && <Label isCompact>dry run</Label>}
                </Td>
                <Td dataLabel="What" className="em-wrap">{what(entry)}</Td>
                <Td dataLabel="Ended">
                  <Label isCompact color={(entry.code ?? 0) >= 400 ? "red" : "green"}>{entry.code}</Label>
                </Td>
              </Tr>
            ))}
          </Tbody>
        </Table>
      )}
      <div className="em-above">
        {before && <Button variant="link" onClick={() => set("before", undefined)}>The newest</Button>}
        {items.length === PAGE && last && <Button variant="link" onClick={() => set("before", last)}>Older ones</Button>}
      </div>
    </PageFrame>
  );
}
