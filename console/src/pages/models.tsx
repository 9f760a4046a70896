import { Alert, Button, Card, CardBody, CardTitle, Form, FormGroup, FormHelperText, HelperText, HelperTextItem, Label, Modal, ModalBody, ModalFooter, ModalHeader, TextInput } from "@patternfly/react-core";
import { type FormEvent, type ReactElement, useState } from "react";
import { query } from "../api/client";
import { type ApiError, asApiError } from "../api/errors";
import { useRights } from "../api/rights";
import { type Space, useSpace } from "../app/space";
import { Sparkline } from "../parts/chart";
import { Code } from "../parts/code";
import { useConfirm } from "../parts/confirm";
import { Teach } from "../parts/empty";
import { ago, count, dateTime, number } from "../parts/format";
import { PageFrame } from "../parts/frame";
import { Refusal } from "../parts/problem";
import { Rows } from "../parts/rows";
import { act, Asking, recordsOf, refusedChange, StartSpark, useAnswer, useSpark } from "./lake";

interface ModelVersion {
  model: string;
  version: string;
  /** Whether it is the one that pipelines take. */
  counts: boolean;
  kind: string;
  rows: number;
  trained_at: string;
  /** Measured with rows that were held back: `rows` of them, and a figure for each measure. */
  quality: Record<string, number> | null;
}

/** The newest first; the measures of quality, without the number of rows that they were measured with. */
function measuresOf(versions: ModelVersion[]): string[] {
  return [...new Set(versions.flatMap(({ quality }) => Object.keys(quality ?? {})))].filter((name) => name !== "rows").sort();
}

export default function ModelsPage(): ReactElement {
  const space = useSpace();
  return <Models key={space.api} space={space} />;
}

function Models({ space }: { space: Space }): ReactElement {
  const confirm = useConfirm();
  const rights = useRights(space.namespace);
  const spark = useSpark(space, rights);
  const [done, setDone] = useState<string>();
  const [importing, setImporting] = useState(false);
  const mayQuery = rights.may("create", "addressspaces/query");
  const { result, error, again } = useAnswer(space, spark.runs && mayQuery ? "SELECT * FROM `models:` ORDER BY model, CAST(version AS INT) DESC" : null);
  const refused = refusedChange(rights, "models");
  const models = new Map<string, ModelVersion[]>();
  for (const version of recordsOf<ModelVersion>(result)) models.set(version.model, [...(models.get(version.model) ?? []), version]);
  const rollBack = (model: string, { version }: ModelVersion) =>
    confirm({
      title: `Have version ${Number(version)} of ${model} count?`,
      loses: "Pipelines that score with it take that version with their next batch. The others stay, and can be made to count again.",
      action: "Have it count",
      run: async () => {
        setDone(`Model ${model}: ${await act(space, "models", model, "rollback", { version })}`);
        again();
      },
    });
  return (
    <PageFrame
      title="Models"
      trail={[{ title: "Spaces", to: "/spaces" }, { title: space.name, to: `${space.to}/addresses` }]}
      about="What pipelines predict with: each version with what was measured of it, with rows that were held back."
      actions={
        <Button variant="secondary" onClick={() => setImporting(true)} isAriaDisabled={refused !== undefined} title={refused}>
          Import
        </Button>
      }
    >
      {done && <Alert isInline variant="success" title={done} className="em-health" />}
      {error && <Refusal error={error} />}
      {rights.known && !mayQuery && <Alert isInline variant="info" title="You may not query this space" className="em-health">Models are listed by a query; tenant-edit may do that, tenant-view not.</Alert>}
      {mayQuery && spark.known && !spark.runs && <StartSpark spark={spark}>It knows the versions of models, and runs while pipelines do.</StartSpark>}
      {mayQuery && spark.runs && !result && !error && <Asking />}
      {result && models.size === 0 && (
        <Teach title="No model yet">
          The built-in pipeline <b>train</b> makes one of a table, and a file of ONNX is imported. One of scikit-learn becomes ONNX by
          <Code text={`enmasse model import pumps.skops --space ${space.name}`} />
        </Teach>
      )}
      {[...models].map(([model, versions]) => (
        <Card key={model} isCompact className="em-figures">
          <CardTitle component="h2">{model}</CardTitle>
          <CardBody>
            <Rows<ModelVersion>
              label={`Versions of ${model}`}
              rows={versions}
              rowKey={({ version }) => version}
              none=""
              heads={[
                { title: "Version", number: true, cell: ({ version }) => Number(version) },
                { title: "Use", cell: ({ counts }) => counts && <Label isCompact color="green">counts</Label> },
                { title: "Kind", cell: ({ kind }) => kind },
                { title: "Made", cell: ({ trained_at }) => <span title={dateTime(trained_at)}>{ago(trained_at)}</span> },
                { title: "Trained with", number: true, cell: ({ rows }) => (rows ? `${count(rows)} rows` : "–") },
                { title: "Measured with", number: true, cell: ({ quality }) => (quality?.rows ? `${count(quality.rows)} rows` : "not measured") },
                ...measuresOf(versions).map((measure) => ({ title: measure, number: true, cell: ({ quality }: ModelVersion) => number(quality?.[measure]) })),
                {
                  title: "Go back",
                  cell: (one) =>
                    !one.counts && (
                      <Button variant="link" isInline onClick={() => rollBack(model, one)} isAriaDisabled={refused !== undefined} title={refused} aria-label={`Have it count: version ${Number(one.version)} of ${model}`}>
                        Have it count
                      </Button>
                    ),
                },
              ]}
            />
            {measuresOf(versions).map((measure) => {
              const values = versions.map(({ quality }) => quality?.[measure]).filter((value) => value !== undefined).reverse();
              return values.length < 2 ? null : (
                <span key={measure} className="em-beside em-figure-below">
                  {measure}, by version <Sparkline values={values} label={`${measure} by version: ${values.map(number).join(", ")}`} />
                </span>
              );
            })}
          </CardBody>
        </Card>
      ))}
      {importing && (
        <ImportModel
          space={space}
          close={() => setImporting(false)}
          imported={(said) => {
            setImporting(false);
            setDone(said);
            spark.start();
            again();
          }}
        />
      )}
    </PageFrame>
  );
}

function ImportModel({ space, close, imported }: { space: Space; close: () => void; imported: (said: string) => void }): ReactElement {
  const [file, setFile] = useState<File>();
  const [name, setName] = useState("");
  const [features, setFeatures] = useState("");
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  const choose = (given: File | undefined) => {
    setFile(given);
    if (given) setName(given.name.replace(/\.[^.]*$/, "").toLowerCase().replaceAll("-", "_"));
  };
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    if (!file || !name) return;
    setBusy(true);
    setError(undefined);
    try {
      imported(`Model ${name}: ${await act(space, "models", name, query("import", { features }), file)}`);
    } catch (caught) {
      setError(asApiError(caught));
      setBusy(false);
    }
  };
  return (
    <Modal isOpen variant="medium" onClose={close} aria-labelledby="import-title">
      <ModalHeader title="Import a model" labelId="import-title" description="As a new version, which counts: pipelines take it with their next batch." />
      <ModalBody>
        <Form id="import-form" onSubmit={(event) => void submit(event)}>
          <FormGroup label="File of ONNX" fieldId="import-file" isRequired>
            <input id="import-file" type="file" accept=".onnx" required onChange={(event) => choose(event.target.files?.[0])} />
          </FormGroup>
          <FormGroup label="Name" fieldId="import-name" isRequired>
            <TextInput id="import-name" value={name} onChange={(_, value) => setName(value)} isRequired autoComplete="off" aria-describedby="import-name-help" />
            <FormHelperText>
              <HelperText id="import-name-help">
                <HelperTextItem>Steps call it in SQL as <code>model_{name || "NAME"}({features || "features"})</code>.</HelperTextItem>
              </HelperText>
            </FormHelperText>
          </FormGroup>
          <FormGroup label="What it takes, in order" fieldId="import-features">
            <TextInput id="import-features" value={features} onChange={(_, value) => setFeatures(value)} autoComplete="off" placeholder="temperature, pressure" aria-describedby="import-features-help" />
            <FormHelperText>
              <HelperText id="import-features-help">
                <HelperTextItem>Names of its features. Left out, they are called as its inputs are, or f1, f2 and so on.</HelperTextItem>
              </HelperText>
            </FormHelperText>
          </FormGroup>
        </Form>
        {error && <Refusal error={error} />}
      </ModalBody>
      <ModalFooter>
        <Button type="submit" form="import-form" isLoading={busy} isDisabled={busy || !file || !name}>
          Import
        </Button>
        <Button variant="link" onClick={close}>
          Cancel
        </Button>
      </ModalFooter>
    </Modal>
  );
}
