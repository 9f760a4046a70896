import { type ReactElement } from "react";
import { CORE } from "../api/client";
import { PageFrame } from "../parts/frame";
import { EventTable } from "./event-table";

export default function EventsPage(): ReactElement {
  return (
    <PageFrame title="Events" about="What became ready, waits or failed, in all namespaces. The last 2,000 are kept.">
      <EventTable url={`${CORE}/events`} withNamespace />
    </PageFrame>
  );
}
