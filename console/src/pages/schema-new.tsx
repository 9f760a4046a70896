import { ActionGroup, Alert, Button, Form, FormGroup, FormSelect, FormSelectOption, Grid, GridItem, List, ListItem, TextArea, TextInput } from "@patternfly/react-core";
import { type FormEvent, type ReactElement, useState } from "react";
import { useNavigate, useSearchParams } from "react-router";
import { path, query } from "../api/client";
import { type ApiError, asApiError } from "../api/errors";
import { useGet } from "../api/live";
import { useRights } from "../api/rights";
import { check, pretty, register, registryOf, type SchemaVersion, type Verdict } from "../api/schemas";
import { type Space, useSpace } from "../app/space";
import { Diff } from "../parts/diff";
import { PageFrame } from "../parts/frame";
import { Refusal } from "../parts/problem";

const EXAMPLES = {
  AVRO: pretty(JSON.stringify({ type: "record", name: "Reading", fields: [{ name: "device", type: "string" }, { name: "temperature", type: "double" }] })),
  JSON: pretty(JSON.stringify({ type: "object", required: ["device"], properties: { device: { type: "string" }, temperature: { type: "number" } } })),
  // message Reading { string device = 1; double temperature = 2; }
  PROTOBUF: "Cg1yZWFkaW5nLnByb3RvEgRhY21lIi4KB1JlYWRpbmcSDgoGZGV2aWNlGAEgASgJEhMKC3RlbXBlcmF0dXJlGAIgASgBYgZwcm90bzM=",
};

export default function NewSchemaPage(): ReactElement {
  const space = useSpace();
  const [search] = useSearchParams();
  const subject = search.get("subject") ?? undefined;
  const { data, error } = useGet<SchemaVersion[]>(subject === undefined ? null : query(`${registryOf(space)}/schemas`, { subjectPrefix: subject, latestOnly: true }));
  const latest = data?.find((one) => one.subject === subject);
  const list = `${space.to}/schemas`;
  return (
    <PageFrame
      title={subject === undefined ? "Register a schema" : `A version of ${subject}`}
      trail={[{ title: "Spaces", to: "/spaces" }, { title: space.name, to: `${space.to}/addresses` }, { title: "Schemas", to: list }]}
      about="It is held against the versions that there are before it is registered."
    >
      {error && <Refusal error={error} />}
      {(subject === undefined || data) && <Registration key={subject} space={space} given={subject} latest={latest} />}
    </PageFrame>
  );
}

/** What was found of a text, which may have changed since. */
interface Found {
  of: string;
  verdict?: Verdict;
  error?: ApiError;
}

function Registration({ space, given, latest }: { space: Space; given: string | undefined; latest: SchemaVersion | undefined }): ReactElement {
  const navigate = useNavigate();
  const rights = useRights(space.namespace);
  const registry = registryOf(space);
  const [subject, setSubject] = useState(given ?? "");
  const [type, setType] = useState<keyof typeof EXAMPLES>(latest?.schemaType ?? "AVRO");
  const [text, setText] = useState(latest ? pretty(latest.schema) : EXAMPLES.AVRO);
  const [found, setFound] = useState<Found>();
  const [busy, setBusy] = useState(false);
  const asked = JSON.stringify([subject, type, text]);
  const current = found?.of === asked ? found : undefined;
  const mayCreate = rights.may("create", "addressspaces/schemas");
  const page = path(`${space.to}/schemas`, subject);
  const act = async (what: () => Promise<Found | undefined>) => {
    setBusy(true);
    try {
      const next = await what();
      if (next) setFound(next);
    } catch (caught) {
      setFound({ of: asked, error: asApiError(caught) });
    } finally {
      setBusy(false);
    }
  };
  const look = () => act(async () => ({ of: asked, verdict: await check(registry, subject, text, type) }));
  const save = () =>
    act(async () => {
      await register(registry, subject, text, type);
      void navigate(page);
      return undefined;
    });
  const isGood = current?.verdict?.is_compatible === true;
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (subject && !busy) void (isGood && mayCreate ? save() : look());
  };
  return (
    <Form onSubmit={submit}>
      {given === undefined && (
        <Grid hasGutter md={6}>
          <GridItem>
            <FormGroup label="Subject" fieldId="subject" isRequired>
              <TextInput id="subject" value={subject} placeholder="orders-value" onChange={(_, value) => setSubject(value.trim())} autoComplete="off" />
            </FormGroup>
          </GridItem>
          <GridItem>
            <FormGroup label="Type" fieldId="schema-type">
              <FormSelect
                id="schema-type"
                value={type}
                onChange={(_, value) => {
                  const next = value as keyof typeof EXAMPLES;
                  if (text === EXAMPLES[type]) setText(EXAMPLES[next]);
                  setType(next);
                }}
              >
                <FormSelectOption value="AVRO" label="Avro" />
                <FormSelectOption value="JSON" label="JSON Schema" />
                <FormSelectOption value="PROTOBUF" label="Protobuf descriptor, in base64" />
              </FormSelect>
            </FormGroup>
          </GridItem>
        </Grid>
      )}
      <FormGroup label="Schema" fieldId="schema-text">
        <TextArea id="schema-text" className="em-yaml" value={text} onChange={(_, value) => setText(value)} rows={Math.max(10, Math.min(30, text.split("\n").length + 1))} resizeOrientation="vertical" spellCheck={false} />
      </FormGroup>
      {current?.error && <Refusal error={current.error} title={current.error.code === 422 ? "This is no schema that can be registered" : undefined} />}
      {current?.verdict && (
        <Alert isInline variant={isGood ? "success" : "danger"} title={isGood ? "It is compatible: it can be registered" : "It is not compatible: who reads or writes by the versions that there are could not cope with it"}>
          {!isGood && <List>{(current.verdict.messages ?? []).map((message) => <ListItem key={message}>{message}</ListItem>)}</List>}
        </Alert>
      )}
      {current?.verdict && latest && <Diff before={pretty(latest.schema)} after={pretty(text)} label={`What it changes of version ${latest.version}`} />}
      <ActionGroup>
        <Button variant={isGood ? "secondary" : "primary"} type={isGood ? "button" : "submit"} onClick={isGood ? () => void look() : undefined} isDisabled={busy || !subject || !text.trim()}>Check</Button>
        <Button
          type={isGood ? "submit" : "button"}
          variant={isGood ? "primary" : "secondary"}
          isLoading={busy && isGood}
          isDisabled={busy || !isGood || !mayCreate}
          title={mayCreate ? (isGood ? undefined : "Check it first") : "You may not register schemas here"}
        >
          Register
        </Button>
        <Button variant="link" onClick={() => void navigate(given === undefined ? `${space.to}/schemas` : page)}>Cancel</Button>
      </ActionGroup>
    </Form>
  );
}
