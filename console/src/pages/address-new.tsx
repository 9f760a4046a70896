import {
  Card,
  CardBody,
  CardHeader,
  CardTitle,
  Content,
  Form,
  FormGroup,
  FormHelperText,
  Gallery,
  HelperText,
  HelperTextItem,
  Radio,
  TextInput,
  Title,
  Wizard,
  WizardStep,
} from "@patternfly/react-core";
import { type ReactElement, useState } from "react";
import { useNavigate, useSearchParams } from "react-router";
import { create, path, query, V1 } from "../api/client";
import { type ApiError, asApiError } from "../api/errors";
import { useGet } from "../api/live";
import type { Address, AddressRow, AddressSpace, AddressSpaceSchema, AddressSpec, AddressType, Objects, RowList } from "../api/types";
import { useSpace } from "../app/space";
import { Amounts, shell } from "../parts/code";
import { Facts } from "../parts/facts";
import { FieldInput } from "../parts/fields";
import { limits } from "../parts/format";
import { PageFrame } from "../parts/frame";
import { Refusal } from "../parts/problem";
import { WouldFit } from "../parts/would-fit";
import { addressFields } from "./address-fields";
import { Picture, TYPES } from "./address-pictures";

const PLAIN = /^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/;

/** The name of the object: the address where it can be one, else what is like it. */
function objectName(space: string, address: string): string {
  if (PLAIN.test(address)) return `${space}.${address}`;
  const like = address.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 40) || "address";
  // Two addresses that are alike have different names: those of the same address are the same.
  let hash = 2166136261;
  for (const letter of new TextEncoder().encode(address)) hash = Math.imul(hash ^ letter, 16777619) >>> 0;
  return `${space}.${like}-${hash.toString(36)}`;
}

interface Draft {
  spec: AddressSpec;
}

function manifestOf(namespace: string, space: string, spec: AddressSpec): Address {
  return {
    apiVersion: "enmasse.io/v1beta1",
    kind: "Address",
    metadata: { name: objectName(space, spec.address), namespace },
    spec,
  };
}

/** The same as a command, where the command has an option for everything that was chosen. */
function command(namespace: string, space: string, spec: AddressSpec): string {
  const { address, type, plan, topic, partitions, subscription, deadletter, expiry, fallback, storage, limits, messageTtl, ...more } = spec;
  const { maxBytes, ...moreLimits } = limits ?? {};
  if (Object.keys(more).length || Object.keys(moreLimits).length || messageTtl?.minimum !== undefined) return "enmasse apply -f manifest.yaml";
  const options: [string, string | number | undefined][] = [
    ["--type", type],
    ["--space", space],
    ["--plan", plan],
    ["--topic", topic],
    ["--partitions", partitions],
    ["--max-consumers", subscription?.maxConsumers],
    ["--deadletter", deadletter],
    ["--expiry", expiry],
    ["--fallback", fallback],
    ["--ttl", messageTtl?.maximum === undefined ? undefined : messageTtl.maximum / 1000],
    ["--max-bytes", maxBytes],
    ["--storage", storage],
    ["--namespace", namespace === "default" ? undefined : namespace],
  ];
  const words = options.flatMap(([name, value]) => (value === undefined ? [] : [name, String(value)]));
  return ["enmasse", "create", "address", address, ...words].map(shell).join(" ");
}

export default function NewAddressPage(): ReactElement {
  const space = useSpace();
  const navigate = useNavigate();
  const [search] = useSearchParams();
  const object = useGet<AddressSpace>(space.api);
  const schemas = useGet<Objects<AddressSpaceSchema>>(`${V1}/addressspaceschemas`);
  const others = useGet<RowList<AddressRow>>(query(`${space.api}/rows/addresses`, { limit: 500 }));
  const [draft, setDraft] = useState<Draft>({
    spec: { address: search.get("address") ?? "", type: (search.get("type") as AddressType | null) ?? "queue", topic: search.get("topic") ?? undefined },
  });
  const [error, setError] = useState<ApiError>();
  const { spec } = draft;
  const schema = schemas.data?.items.find((item) => item.metadata.name === (object.data?.spec.type ?? "standard"));
  const types = schema?.spec.addressTypes ?? [];
  const plans = types.find((item) => item.name === spec.type)?.plans ?? [];
  const plan = plans.find((item) => item.name === spec.plan);
  const known = others.data?.items ?? [];
  const bad = /\s/.test(spec.address) ? "An address has no white space." : known.some((row) => row.address === spec.address) ? "There is such an address already." : undefined;
  const fields = addressFields(spec.type, known, true);
  const missing = fields.some((field) => field.required && field.path === "spec.topic" && !spec.topic);
  const manifest = manifestOf(space.namespace, space.name, spec);

  const save = async () => {
    setError(undefined);
    try {
      await create(`${space.inNamespace}/addresses`, manifest);
      void navigate(path(`${space.to}/addresses`, manifest.metadata.name));
    } catch (caught) {
      setError(asApiError(caught));
    }
  };
  return (
    <PageFrame title="Create an address" trail={[{ title: "Spaces", to: "/spaces" }, { title: space.name, to: `${space.to}/addresses` }]}>
      {schemas.error && <Refusal error={schemas.error} />}
      <Wizard className="em-wizard" onClose={() => void navigate(`${space.to}/addresses`)} onSave={() => void save()} isVisitRequired>
        <WizardStep name="Type" id="type">
          <Title headingLevel="h2" className="em-step">How should messages travel?</Title>
          <Gallery hasGutter minWidths={{ default: "14rem" }} className="em-types" role="radiogroup" aria-label="Type">
            {(Object.keys(TYPES) as AddressType[])
              .filter((type) => types.some((item) => item.name === type))
              .map((type) => (
                <Card key={type} isSelectable isSelected={spec.type === type} id={`card-${type}`} isCompact>
                  <CardHeader
                    selectableActions={{
                      selectableActionId: `type-${type}`,
                      selectableActionAriaLabelledby: `card-${type}`,
                      name: "type",
                      variant: "single",
                      onChange: () => setDraft({ spec: { address: spec.address, type } }),
                    }}
                  >
                    <CardTitle>{TYPES[type].title}</CardTitle>
                  </CardHeader>
                  <CardBody>
                    <Picture type={type} />
                    <p>{TYPES[type].does}</p>
                    <p className="em-figure-below">{TYPES[type].use}</p>
                  </CardBody>
                </Card>
              ))}
          </Gallery>
        </WizardStep>
        <WizardStep name="Name and plan" id="name" footer={{ isNextDisabled: !spec.address || bad !== undefined }}>
          <Form onSubmit={(event) => event.preventDefault()}>
            <FormGroup label="Address" fieldId="address" isRequired>
              <TextInput id="address" value={spec.address} onChange={(_, address) => setDraft({ spec: { ...spec, address } })} validated={bad ? "error" : "default"} isRequired autoComplete="off" autoFocus />
              <FormHelperText>
                <HelperText>
                  <HelperTextItem variant={bad ? "error" : "default"}>{bad ?? "What applications call it, as orders or site/hall/gauges."}</HelperTextItem>
                </HelperText>
              </FormHelperText>
            </FormGroup>
            <FormGroup label="Plan" role="radiogroup" fieldId="plan">
              <Radio id="plan-" name="plan" label="The smallest" isChecked={!spec.plan} onChange={() => setDraft({ spec: { ...spec, plan: undefined } })} />
              {plans.map((item) => (
                <Radio
                  key={item.name}
                  id={`plan-${item.name}`}
                  name="plan"
                  label={item.displayName ?? item.name}
                  description={[item.description, limits(item.limits)].filter(Boolean).join(" ") || item.name}
                  isChecked={spec.plan === item.name}
                  onChange={() => setDraft({ spec: { ...spec, plan: item.name } })}
                />
              ))}
            </FormGroup>
          </Form>
        </WizardStep>
        <WizardStep name="Behaviour" id="behaviour" footer={{ isNextDisabled: missing }}>
          <Content component="p">Everything here may be left as it is{missing ? ", but for the topic" : ""}.</Content>
          <Form onSubmit={(event) => event.preventDefault()}>
            {fields.map((field) => (
              <FieldInput key={field.path} field={field} object={draft} onChange={setDraft} />
            ))}
          </Form>
        </WizardStep>
        <WizardStep name="Review" id="review" footer={{ nextButtonText: "Create" }}>
          <Title headingLevel="h2" className="em-step">Review</Title>
          <Facts
            facts={[
              ["Address", <bdi key="address">{spec.address}</bdi>],
              ["Type", TYPES[spec.type].title],
              ["Plan", plan?.displayName ?? spec.plan ?? "The smallest"],
              ["Messages", TYPES[spec.type].kept],
              ["Topic", spec.topic],
              ["Dead letters to", spec.deadletter],
            ]}
          />
          <WouldFit<Address> url={`${space.inNamespace}/addresses`} manifest={manifest} />
          {error && <Refusal error={error} />}
          <Content component="p" className="em-above">
            It amounts to this:
          </Content>
          <Amounts manifest={manifest} command={command(space.namespace, space.name, spec)} />
        </WizardStep>
      </Wizard>
    </PageFrame>
  );
}
