import {
  ActionGroup,
  Alert,
  Button,
  Card,
  CardBody,
  CardHeader,
  CardTitle,
  Content,
  ExpandableSection,
  Form,
  FormGroup,
  FormHelperText,
  FormSelect,
  FormSelectOption,
  Gallery,
  Grid,
  GridItem,
  HelperText,
  HelperTextItem,
  Tab,
  Tabs,
  TabTitleText,
  TextArea,
  TextInput,
} from "@patternfly/react-core";
import { type FormEvent, type ReactElement, useEffect, useState } from "react";
import { useNavigate, useSearchParams } from "react-router";
import { parse } from "yaml";
import { create, path, query, V1, write } from "../api/client";
import { ApiError, asApiError } from "../api/errors";
import { useGet } from "../api/live";
import type { BuiltinPipeline, Parameter, Pipeline } from "../api/pipelines";
import { useRights } from "../api/rights";
import type { AddressRow, Objects, RowList } from "../api/types";
import { useSpace } from "../app/space";
import { Amounts, Code, shell, yamlOf } from "../parts/code";
import { PageFrame } from "../parts/frame";
import { Refusal, Words } from "../parts/problem";
import { examples } from "./pipeline-examples";

/** Parameters that most pipelines leave as they are. */
const RARE = new Set([
  "startingOffsets", "maxRowsPerBatch", "oldest", "compactEvery", "keepVersions", "slide", "lateness", "emit", "forgetAfter", "maxDevices", "deviceBands",
  "alpha", "warmUp", "minDeviation", "repeatAfter", "cleared", "checkEvery", "quantile", "within", "maxRows", "minRows", "keep", "match", "onceWithin",
]);
const ADDRESSES = new Set(["address", "to", "alerts", "commands"]);

type Given = Record<string, string>;

/** What a text means for a parameter; undefined: nothing was given. */
function valueOf(parameter: Parameter, text: string): unknown {
  const word = text.trim();
  if (word === "") return undefined;
  switch (parameter.type) {
    case "integer":
    case "number":
      return Number.isNaN(Number(word)) ? word : Number(word);
    case "boolean":
      return word === "true";
    case "array":
      return word.split(/[,\n]/).map((part) => part.trim()).filter(Boolean);
    case "object":
      try {
        return parse(text) as unknown;
      } catch {
        return text;
      }
    default:
      return word;
  }
}

function parametersOf(builtin: BuiltinPipeline, given: Given): Record<string, unknown> {
  const found = Object.entries(builtin.schema.properties).map(([name, parameter]) => [name, valueOf(parameter, given[name] ?? "")] as const);
  return Object.fromEntries(found.filter(([, value]) => value !== undefined));
}

function command(namespace: string, space: string, name: string, builtin: string, parameters: Record<string, unknown>): string {
  const words = ["enmasse", "pipeline", "run", "--detach", "--builtin", builtin];
  if (name !== builtin) words.push("--name", name);
  for (const [key, value] of Object.entries(parameters)) {
    const text = Array.isArray(value) && value.every((item) => typeof item === "string" && !item.includes(",")) ? value.join(",") : typeof value === "string" ? value : JSON.stringify(value);
    words.push("--set", `${key}=${text}`);
  }
  words.push("--space", space);
  if (namespace !== "default") words.push("--namespace", namespace);
  return words.map(shell).join(" ");
}

export default function NewPipelinePage(): ReactElement {
  const space = useSpace();
  const navigate = useNavigate();
  const [search, setSearch] = useSearchParams();
  const rights = useRights(space.namespace);
  const builtins = useGet<{ items: BuiltinPipeline[] }>(`${V1}/builtinpipelines`);
  const addresses = useGet<RowList<AddressRow>>(query(`${space.api}/rows/addresses`, { limit: 500 }));
  const known = addresses.data?.items ?? [];
  const streams = known.filter((row) => row.type === "stream").map((row) => row.address);
  const stream = streams.find((address) => address.includes("telemetry")) ?? streams[0] ?? "telemetry";
  const [name, setName] = useState("");
  const [given, setGiven] = useState<Given>({});
  const [text, setText] = useState<string>();
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  const asYaml = search.get("as") === "yaml";
  const builtin = builtins.data?.items.find((item) => item.name === search.get("builtin"));
  const short = name || builtin?.name || "";
  const first: Given = builtin?.schema.required?.includes("address") && streams.length > 0 ? { address: stream } : {};
  const parameters = builtin ? parametersOf(builtin, { ...first, ...given }) : {};
  const made: Pipeline | undefined = builtin && {
    apiVersion: "enmasse.io/v1beta1",
    kind: "Pipeline",
    metadata: { name: `${space.name}.${short}`, namespace: space.namespace },
    spec: { builtin: { name: builtin.name, parameters } },
  };
  const alerts = known.find((row) => row.type === "queue" || row.type === "topic")?.address ?? "alerts";
  const snippets = examples(space.name, space.namespace, stream, alerts);
  const written = text ?? (made ? yamlOf(made) : snippets[0]!.text);

  let manifest: Pipeline | undefined = made;
  let unread: ApiError | undefined;
  if (asYaml) {
    try {
      manifest = parse(written) as Pipeline;
      if (manifest?.kind !== "Pipeline" || !manifest.metadata?.name) unread = new ApiError(400, "A Pipeline is expected, with metadata.name.");
      else if (!String(manifest.metadata.name).startsWith(`${space.name}.`)) unread = new ApiError(400, `metadata.name: begins with the space, ${space.name}.`);
    } catch (caught) {
      unread = new ApiError(400, (caught as Error).message);
    }
  }
  const body = manifest && !unread ? JSON.stringify({ ...manifest, metadata: { ...manifest.metadata, namespace: space.namespace } }) : undefined;
  const check = useCheck(`${space.inNamespace}/pipelines`, body);
  const mayCreate = rights.may("create", "pipelines");

  const save = async () => {
    if (!body) return;
    setBusy(true);
    setError(undefined);
    try {
      const { metadata } = await create<Pipeline>(`${space.inNamespace}/pipelines`, JSON.parse(body));
      void navigate(path(`${space.to}/pipelines`, metadata.name));
    } catch (caught) {
      setError(asApiError(caught));
      setBusy(false);
    }
  };
  const open = (next: Record<string, string>) => setSearch(next, { replace: true });
  const fieldError = (parameter: string) => check?.error?.causes.find((cause) => cause.field === `spec.builtin.parameters.${parameter}`)?.message;
  const fields = Object.entries(builtin?.schema.properties ?? {}).sort(([a], [b]) => Number(!builtin?.schema.required?.includes(a)) - Number(!builtin?.schema.required?.includes(b)));
  const inputs = (rare: boolean) =>
    fields
      .filter(([key]) => RARE.has(key) === rare)
      .map(([key, parameter]) => (
        <GridItem key={key}>
          <ParameterInput
            name={key}
            parameter={parameter}
            required={builtin?.schema.required?.includes(key) === true}
            value={given[key] ?? first[key] ?? ""}
            addresses={known}
            error={fieldError(key)}
            onChange={(value) => setGiven({ ...given, [key]: value })}
          />
        </GridItem>
      ));
  return (
    <PageFrame title="Create a pipeline" trail={[{ title: "Spaces", to: "/spaces" }, { title: space.name, to: `${space.to}/addresses` }, { title: "Pipelines", to: `${space.to}/pipelines` }]}>
      {builtins.error && <Refusal error={builtins.error} />}
      <Tabs activeKey={asYaml ? "yaml" : "builtin"} onSelect={(_, key) => open({ ...(builtin ? { builtin: builtin.name } : {}), ...(key === "yaml" ? { as: "yaml" } : {}) })} aria-label="How to begin">
        <Tab eventKey="builtin" tabContentId="pipeline-panel" title={<TabTitleText>Built in</TabTitleText>} />
        <Tab eventKey="yaml" tabContentId="pipeline-panel" title={<TabTitleText>Your own</TabTitleText>} />
      </Tabs>
      <Form
        className="em-above"
        id="pipeline-panel"
        role="tabpanel"
        aria-label="The pipeline"
        onSubmit={(event: FormEvent) => {
          event.preventDefault();
          void save();
        }}
      >
        {asYaml ? (
          <>
            <Content component="p">
              Sources are read, steps compute, sinks take what comes of it. Begin with{" "}
              {snippets.map((example) => (
                <Button key={example.title} variant="secondary" size="sm" className="em-beside" title={example.does} onClick={() => setText(example.text)}>
                  {example.title}
                </Button>
              ))}
            </Content>
            <TextArea
              className="em-yaml"
              aria-label="The pipeline as YAML"
              value={written}
              onChange={(_, value) => setText(value)}
              rows={Math.max(14, Math.min(30, written.split("\n").length + 1))}
              resizeOrientation="vertical"
              spellCheck={false}
            />
          </>
        ) : (
          <>
            <Gallery hasGutter minWidths={{ default: "13rem" }} role="radiogroup" aria-label="What it does">
              {(builtins.data?.items ?? []).map((item) => (
                <Card key={item.name} isSelectable isSelected={builtin?.name === item.name} id={`card-${item.name}`} isCompact>
                  <CardHeader
                    selectableActions={{
                      selectableActionId: `builtin-${item.name}`,
                      selectableActionAriaLabelledby: `card-${item.name}`,
                      name: "builtin",
                      variant: "single",
                      onChange: () => {
                        open({ builtin: item.name });
                        setGiven({});
                        setText(undefined);
                      },
                    }}
                  >
                    <CardTitle>{item.name}</CardTitle>
                  </CardHeader>
                  <CardBody>{item.does[0]!.toUpperCase() + item.does.slice(1)}.</CardBody>
                </Card>
              ))}
            </Gallery>
            {builtin && (
              <>
                <Grid hasGutter md={6}>
                  <GridItem>
                    <FormGroup label="Name" fieldId="pipeline-name">
                      <TextInput id="pipeline-name" value={name} placeholder={builtin.name} onChange={(_, value) => setName(value.trim())} autoComplete="off" />
                    </FormGroup>
                  </GridItem>
                  {inputs(false)}
                </Grid>
                <ExpandableSection toggleText="More parameters" isIndented>
                  <Grid hasGutter md={6}>{inputs(true)}</Grid>
                </ExpandableSection>
              </>
            )}
          </>
        )}
        {(asYaml || made) && (
          <>
            <Checked check={unread ? { error: unread } : check} />
            {error && <Refusal error={error} />}
            {asYaml && <Code text="enmasse apply -f manifest.yaml" />}
            {!asYaml && builtin && made && <Amounts manifest={made} command={command(space.namespace, space.name, short, builtin.name, parameters)} />}
            <ActionGroup>
              <Button type="submit" isLoading={busy} isDisabled={busy || !mayCreate || !body || check?.error !== undefined} title={mayCreate ? undefined : "You may not create pipelines here"}>
                Create
              </Button>
              <Button variant="link" onClick={() => void navigate(`${space.to}/pipelines`)}>
                Cancel
              </Button>
            </ActionGroup>
          </>
        )}
      </Form>
      <datalist id="stored-addresses">{known.map((row) => <option key={row.name} value={row.address} />)}</datalist>
      <datalist id="streams">{known.filter((row) => row.type === "stream").map((row) => <option key={row.name} value={row.address} />)}</datalist>
    </PageFrame>
  );
}

interface Check {
  error?: ApiError;
  warnings?: string[];
}

const PAUSE_MS = 350;

/** What a dry run says, asked a moment after the last change. */
function useCheck(url: string, body: string | undefined): Check | undefined {
  const [state, setState] = useState<{ body?: string; check?: Check }>({});
  useEffect(() => {
    if (body === undefined) return;
    let gone = false;
    const timer = setTimeout(() => {
      write<Objects<unknown>>("POST", query(url, { dryRun: "All" }), { body }).then(
        ({ warnings }) => !gone && setState({ body, check: { warnings } }),
        (error: unknown) => !gone && setState({ body, check: { error: asApiError(error) } }),
      );
    }, PAUSE_MS);
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [url, body]);
  return state.body === body ? state.check : undefined;
}

function Checked({ check }: { check: Check | undefined }): ReactElement {
  if (!check) return <p className="em-total" role="status">Checking …</p>;
  const { error } = check;
  if (error && error.code !== 422 && error.code !== 400) return <Refusal error={error} />;
  if (error) {
    const causes = error.causes.filter((cause) => cause.message);
    return (
      <div role="status">
        <Alert isInline variant="info" title="It is not complete yet">
          {causes.length === 0 && error.message}
          {causes.map((cause) => (
            <p key={`${cause.field}${cause.message}`}>
              <code>{cause.field?.replace("spec.builtin.parameters.", "")}</code> {cause.message}
            </p>
          ))}
        </Alert>
      </div>
    );
  }
  return (
    <div role="status">
      <Alert isInline variant="success" title="This would be accepted">
        {check.warnings?.map((warning) => <p key={warning}>{warning}</p>)}
      </Alert>
    </div>
  );
}

const PLACEHOLDERS: Record<string, string> = { bands: "temperature: 10:35\nhumidity: :80", deviceBands: "freezer-1:\n  temperature: -25:-15", match: "state: raised", body: "alert: '{id}'" };

function ParameterInput(props: {
  name: string;
  parameter: Parameter;
  required: boolean;
  value: string;
  addresses: AddressRow[];
  error?: string;
  onChange: (value: string) => void;
}): ReactElement {
  const { name, parameter, required, value, error, onChange } = props;
  const id = `parameter-${name}`;
  const fallback = parameter.default === undefined ? "" : String(parameter.default);
  const validated = error && value !== "" ? "error" : "default";
  const choices = parameter.enum ?? (parameter.type === "boolean" ? ["true", "false"] : undefined);
  let input: ReactElement;
  if (choices) {
    input = (
      <FormSelect id={id} value={value} onChange={(_, next) => onChange(next)} aria-describedby={`${id}-help`} validated={validated}>
        <FormSelectOption value="" label={fallback ? `${fallback} (if left out)` : "left out"} />
        {choices.map((choice) => <FormSelectOption key={choice} value={choice} label={choice} />)}
      </FormSelect>
    );
  } else if (parameter.type === "object") {
    input = <TextArea id={id} className="em-yaml" value={value} onChange={(_, next) => onChange(next)} placeholder={PLACEHOLDERS[name]} rows={3} resizeOrientation="vertical" aria-describedby={`${id}-help`} validated={validated} spellCheck={false} />;
  } else {
    input = (
      <TextInput
        id={id}
        value={value}
        onChange={(_, next) => onChange(next)}
        placeholder={fallback}
        isRequired={required}
        list={ADDRESSES.has(name) ? (name === "address" ? "streams" : "stored-addresses") : undefined}
        inputMode={parameter.type === "integer" ? "numeric" : undefined}
        aria-describedby={`${id}-help`}
        validated={validated}
        autoComplete="off"
      />
    );
  }
  const kind = { array: " Several with commas between them.", object: " As YAML." }[parameter.type as string] ?? "";
  return (
    <FormGroup label={name} fieldId={id} isRequired={required}>
      {input}
      <FormHelperText>
        <HelperText id={`${id}-help`}>
          <HelperTextItem variant={error && value !== "" ? "error" : "default"}>{error && value !== "" ? error : <Words text={(parameter.description ?? "") + kind} />}</HelperTextItem>
        </HelperText>
      </FormHelperText>
    </FormGroup>
  );
}
