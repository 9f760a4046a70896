// A table of rows that the page has already, as those of an object's status.
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import type { ReactElement, ReactNode } from "react";

export interface Head<R> {
  title: string;
  cell: (row: R) => ReactNode;
  /** Numbers stand right. */
  number?: boolean;
}

export function Rows<R>(props: { label: string; heads: Head<R>[]; rows: R[]; rowKey: (row: R) => string; none: ReactNode }): ReactElement {
  if (props.rows.length === 0) return <p className="em-total">{props.none}</p>;
  return (
    <div className="em-table">
      <Table aria-label={props.label} variant="compact" gridBreakPoint="grid-md">
        <Thead>
          <Tr>
            {props.heads.map((head) => (
              <Th key={head.title} modifier="nowrap" className={head.number ? "em-number" : undefined}>{head.title}</Th>
            ))}
          </Tr>
        </Thead>
        <Tbody>
          {props.rows.map((row) => (
            <Tr key={props.rowKey(row)}>
              {props.heads.map((head) => (
                <Td key={head.title} dataLabel={head.title} modifier={head.number ? "nowrap" : undefined} className={head.number ? "em-number" : "em-words"}>{head.cell(row)}</Td>
              ))}
            </Tr>
          ))}
        </Tbody>
      </Table>
    </div>
  );
}
