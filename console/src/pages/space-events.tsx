import { type ReactElement, useCallback } from "react";
import { CORE, path } from "../api/client";
import type { EventObject } from "../api/types";
import { useSpace } from "../app/space";
import { PageFrame } from "../parts/frame";
import { EventTable } from "./event-table";

export default function SpaceEventsPage(): ReactElement {
  const space = useSpace();
  const ofSpace = useCallback(
    ({ involvedObject: { name } }: EventObject) => name === space.name || name?.startsWith(`${space.name}.`) === true,
    [space.name],
  );
  return (
    <PageFrame title="Events" trail={[{ title: "Spaces", to: "/spaces" }, { title: space.name, to: `${space.to}/addresses` }]}>
      <EventTable url={path(`${CORE}/namespaces`, space.namespace, "events")} of={ofSpace} />
    </PageFrame>
  );
}
