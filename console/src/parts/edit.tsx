// Changes an object, by a form or as YAML. Two people who edit the same object both see what the other one did.
import {
  ActionGroup,
  Alert,
  AlertActionLink,
  Button,
  Flex,
  FlexItem,
  Form,
  Grid,
  GridItem,
  List,
  ListItem,
  Tab,
  Tabs,
  TabTitleText,
  TextArea,
  Title,
} from "@patternfly/react-core";
import { type FormEvent, type ReactElement, useState } from "react";
import { parse } from "yaml";
import { get, query, write } from "../api/client";
import { ApiError, asApiError } from "../api/errors";
import type { ReadyStatus, Resource } from "../api/types";
import { Code, yamlOf } from "./code";
import { type Field, FieldInput } from "./fields";
import { Refusal } from "./problem";

type Editable = Resource & { spec?: unknown; status?: unknown };

/** What a person edits: without what the service finds and counts. */
function declared(object: Editable): Editable {
  const { apiVersion, kind, metadata, spec } = object;
  const { name, namespace, labels, annotations, resourceVersion } = metadata;
  return { apiVersion, kind, metadata: JSON.parse(JSON.stringify({ name, namespace, labels, annotations, resourceVersion })), spec };
}

/** Whether people have declared the same in both, whatever the service has found meanwhile. */
function isSame(one: Editable, other: Editable): boolean {
  const text = ({ metadata: { resourceVersion: _, ...metadata }, spec }: Editable) => JSON.stringify([metadata, spec]);
  return text(one) === text(other);
}

function withVersionOf(object: Editable, other: Editable): Editable {
  return { ...object, metadata: { ...object.metadata, resourceVersion: other.metadata.resourceVersion } };
}

function refusalOfCheck(object: Editable): string[] {
  const status = object.status as ReadyStatus | undefined;
  return (status?.conditions ?? [])
    .filter((condition) => condition.type !== "Ready" && condition.status !== "True")
    .map((condition) => condition.message || condition.reason);
}

export interface EditProps<T extends Editable> {
  object: T;
  /** The object's own path at the API. */
  url: string;
  fields: Field[];
  /** Why nothing may be changed. */
  refused?: string;
  onSaved?: (object: T) => void;
}

export function EditObject<T extends Editable>({ object, url, fields, refused, onSaved }: EditProps<T>): ReactElement {
  const [draft, setDraft] = useState<Editable>();
  // What the draft began from.
  const [base, setBase] = useState<Editable>();
  const [text, setText] = useState<string>();
  const [asYaml, setAsYaml] = useState(false);
  const [error, setError] = useState<ApiError>();
  const [theirs, setTheirs] = useState<Editable>();
  const [notes, setNotes] = useState<{ good: boolean; lines: string[]; title: string }>();
  const [busy, setBusy] = useState(false);
  const shown = draft ?? declared(object);
  const written = text ?? yamlOf(shown);

  const begin = () => setBase((before) => before ?? declared(object));

  const change = (next: Editable) => {
    begin();
    setDraft(next);
    setText(undefined);
    setNotes(undefined);
  };

  /** The draft as an object; undefined where its YAML cannot be read. */
  const readDraft = (): Editable | undefined => {
    if (text === undefined) return shown;
    try {
      const read = parse(text) as Editable;
      setDraft(read);
      setText(undefined);
      return read;
    } catch (caught) {
      setError(new ApiError(400, (caught as Error).message));
      return undefined;
    }
  };

  /** Writes; what the service alone has changed since `from` is no conflict, and it is written again. */
  const writeOver = async (dryRun: boolean, body: Editable, from: Editable, tries = 3): Promise<Awaited<ReturnType<typeof write<T>>>> => {
    try {
      return await write<T>("PUT", dryRun ? query(url, { dryRun: "All" }) : url, { body });
    } catch (caught) {
      if (!(caught instanceof ApiError && caught.code === 409)) throw caught;
      const present = declared(await get<T>(url));
      if (tries > 0 && isSame(present, from)) return writeOver(dryRun, withVersionOf(body, present), from, tries - 1);
      setTheirs(present);
      throw caught;
    }
  };

  const put = async (dryRun: boolean, body: Editable, from: Editable) => {
    setBusy(true);
    setError(undefined);
    setTheirs(undefined);
    setNotes(undefined);
    try {
      const { value, warnings } = await writeOver(dryRun, body, from);
      const objections = dryRun ? refusalOfCheck(value) : [];
      const lines = [...objections, ...warnings];
      setNotes({
        good: lines.length === 0,
        lines,
        title: dryRun ? (objections.length ? "This would have to wait" : "This would be accepted") : "Saved",
      });
      if (!dryRun) {
        setDraft(undefined);
        setBase(undefined);
        onSaved?.(value);
      }
    } catch (caught) {
      setError(asApiError(caught));
    } finally {
      setBusy(false);
    }
  };

  const submit = (dryRun: boolean) => {
    const body = readDraft();
    if (body) void put(dryRun, body, base ?? declared(object));
  };

  const discard = () => {
    setDraft(undefined);
    setBase(undefined);
    setText(undefined);
    setError(undefined);
    setTheirs(undefined);
    setNotes(undefined);
  };

  const fieldError = (field: Field) => error?.causes.find((cause) => cause.field === field.path)?.message;
  const changed = draft !== undefined || text !== undefined;
  const yaml = (
    <TextArea
      className="em-yaml"
      aria-label="The object as YAML"
      value={written}
      onChange={(_, value) => {
        begin();
        setText(value);
        setNotes(undefined);
      }}
      rows={Math.min(30, written.split("\n").length + 1)}
      resizeOrientation="vertical"
      spellCheck={false}
    />
  );
  const form = (
    <Grid hasGutter md={6}>
      {fields.map((field) => (
        <GridItem key={field.path}>
          <FieldInput field={field} object={shown} onChange={change} error={fieldError(field)} />
        </GridItem>
      ))}
    </Grid>
  );
  return (
    <Form
      onSubmit={(event: FormEvent) => {
        event.preventDefault();
        submit(false);
      }}
    >
      {refused && <Alert isInline variant="info" title={refused} />}
      <Tabs
        activeKey={asYaml ? "yaml" : "form"}
        onSelect={(_, key) => (key === "yaml" || readDraft()) && setAsYaml(key === "yaml")}
        aria-label="How to edit"
        isSubtab
      >
        <Tab eventKey="form" title={<TabTitleText>Form</TabTitleText>}>
          <div className="em-above">{!asYaml && form}</div>
        </Tab>
        <Tab eventKey="yaml" title={<TabTitleText>YAML</TabTitleText>}>
          <div className="em-above">{asYaml && yaml}</div>
        </Tab>
      </Tabs>
      {error && !theirs && <Refusal error={error} />}
      {theirs && (
        <Alert
          isInline
          variant="warning"
          title="Somebody else changed it while you were editing"
          actionLinks={
            <>
              <AlertActionLink onClick={discard}>Take theirs</AlertActionLink>
              <AlertActionLink
                onClick={() => {
                  setBase(theirs);
                  void put(false, withVersionOf(shown, theirs), theirs);
                }}
              >
                Put mine over theirs
              </AlertActionLink>
            </>
          }
        >
          <Grid hasGutter md={6}>
            <GridItem>
              <Title headingLevel="h3" size="md">
                Yours
              </Title>
              <Code text={yamlOf(shown)} />
            </GridItem>
            <GridItem>
              <Title headingLevel="h3" size="md">
                Theirs
              </Title>
              <Code text={yamlOf(theirs)} />
            </GridItem>
          </Grid>
        </Alert>
      )}
      {notes && (
        <Alert isInline variant={notes.good ? "success" : "warning"} title={notes.title} role="status">
          {notes.lines.length > 0 && (
            <List>
              {notes.lines.map((line) => (
                <ListItem key={line}>{line}</ListItem>
              ))}
            </List>
          )}
        </Alert>
      )}
      <ActionGroup>
        <Flex>
          <FlexItem>
            <Button type="submit" isDisabled={!changed || busy || refused !== undefined} isLoading={busy}>
              Save
            </Button>
          </FlexItem>
          <FlexItem>
            <Button variant="secondary" isDisabled={!changed || busy || refused !== undefined} onClick={() => submit(true)}>
              Check
            </Button>
          </FlexItem>
          <FlexItem>
            <Button variant="link" isDisabled={!changed || busy} onClick={discard}>
              Discard
            </Button>
          </FlexItem>
        </Flex>
      </ActionGroup>
    </Form>
  );
}
