import { Button, Drawer, DrawerActions, DrawerCloseButton, DrawerContent, DrawerContentBody, DrawerHead, DrawerPanelBody, DrawerPanelContent, Label, Title } from "@patternfly/react-core";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import { type ReactElement } from "react";
import { useSearchParams } from "react-router";
import { ADMIN, path } from "../api/client";
import { useObjects } from "../api/live";
import { useRights } from "../api/rights";
import type { Limits, ReadyStatus, Resource } from "../api/types";
import { EditObject } from "../parts/edit";
import type { Field } from "../parts/fields";
import { limits } from "../parts/format";
import { PageFrame } from "../parts/frame";
import { Refusal } from "../parts/problem";
import { Status } from "../parts/status";

interface Plan extends Resource {
  spec: {
    displayName?: string;
    shortDescription?: string;
    addressSpaceType?: string;
    addressType?: string;
    addressPlans?: string[];
    namespaces?: string[];
    limits?: Limits;
    resources?: Record<string, number>;
    resourceLimits?: Record<string, number>;
  };
  status?: ReadyStatus;
}

const SPACE_LIMITS = ["connections", "devices", "links", "addresses", "users", "messageRate", "byteRate", "maxBytes", "messageSize", "sessions", "sessionBytes", "subscriptions", "subscriptionBytes"];
const ADDRESS_LIMITS = ["maxBytes", "maxConsumers", "messageRate", "byteRate", "messageSize", "links"];

function fieldsOf(limits: string[], ofSpace: boolean): Field[] {
  return [
    { path: "spec.displayName", label: "Shown as", kind: "text" },
    { path: "spec.shortDescription", label: "Description", kind: "text" },
    ...(ofSpace ? [{ path: "spec.namespaces", label: "Only for the namespaces (one a line)", kind: "lines" } as Field, { path: "spec.addressPlans", label: "Address plans (one a line)", kind: "lines" } as Field] : []),
    ...limits.map((name): Field => ({ path: `spec.limits.${name}`, label: `${name} at most`, kind: "number", help: "Left out: without limit." })),
  ];
}

function limitsText({ spec }: Plan): string {
  return [spec.limits, spec.resourceLimits, spec.resources].map(limits).filter(Boolean).join(", ");
}

export default function PlansPage(): ReactElement {
  const inNamespace = path(`${ADMIN}/namespaces`, "enmasse-infra");
  const spaces = useObjects<Plan>(`${inNamespace}/addressspaceplans`);
  const addresses = useObjects<Plan>(`${inNamespace}/addressplans`);
  const rights = useRights("enmasse-infra");
  const [search, setSearch] = useSearchParams();
  const name = search.get("plan");
  const ofSpace = spaces.data?.find((plan) => plan.metadata.name === name);
  const chosen = ofSpace ?? addresses.data?.find((plan) => plan.metadata.name === name);
  const collection = ofSpace ? "addressspaceplans" : "addressplans";
  const close = () => setSearch({}, { replace: true });
  const error = spaces.error ?? addresses.error;
  const panel = chosen && (
    <DrawerPanelContent isResizable minSize="22rem" defaultSize="40%">
      <DrawerHead>
        <Title headingLevel="h2">{chosen.metadata.name}</Title>
        <DrawerActions>
          <DrawerCloseButton onClick={close} />
        </DrawerActions>
      </DrawerHead>
      <DrawerPanelBody>
        <EditObject
          key={chosen.metadata.name}
          object={chosen}
          url={path(`${inNamespace}/${collection}`, chosen.metadata.name)}
          fields={fieldsOf(ofSpace ? SPACE_LIMITS : ADDRESS_LIMITS, ofSpace !== undefined)}
          refused={rights.may("update", collection) ? undefined : "You may look at the plans, and not change them."}
        />
      </DrawerPanelBody>
    </DrawerPanelContent>
  );
  return (
    <PageFrame title="Plans" about="What tenants may choose. A change reaches everything that uses the plan; what is there stays.">
      {error && <Refusal error={error} />}
      <Drawer isExpanded={chosen !== undefined} onExpand={() => undefined}>
        <DrawerContent panelContent={panel}>
          <DrawerContentBody>
            {(
              [
                ["Of spaces", spaces.data, "addressSpaceType"],
                ["Of addresses", addresses.data, "addressType"],
              ] as const
            ).map(([title, plans, type]) => (
              <section key={title} className="em-health">
                <Title headingLevel="h2" size="lg">{title}</Title>
                <Table aria-label={`Plans: ${title}`} variant="compact" gridBreakPoint="grid-md">
                  <Thead>
                    <Tr>
                      <Th>Name</Th>
                      <Th>Type</Th>
                      <Th>Limits</Th>
                      <Th>Status</Th>
                    </Tr>
                  </Thead>
                  <Tbody>
                    {plans?.map((plan) => (
                      <Tr key={plan.metadata.name}>
                        <Td dataLabel="Name">
                          <Button variant="link" isInline onClick={() => setSearch({ plan: plan.metadata.name }, { replace: true })}>{plan.metadata.name}</Button>
                          <div className="em-figure-below">{plan.spec.shortDescription ?? plan.spec.displayName}</div>
                        </Td>
                        <Td dataLabel="Type">
                          <Label isCompact>{plan.spec[type]}</Label>
                        </Td>
                        <Td dataLabel="Limits">{limitsText(plan) || "none"}</Td>
                        <Td dataLabel="Status">
                          <Status phase={plan.status?.phase} ready={plan.status?.isReady} messages={plan.status?.messages} />
                        </Td>
                      </Tr>
                    ))}
                  </Tbody>
                </Table>
              </section>
            ))}
          </DrawerContentBody>
        </DrawerContent>
      </Drawer>
    </PageFrame>
  );
}
