// What is done with pipelines, from their list and from the page of one.
import { Button, DatePicker, Form, FormGroup, Modal, ModalBody, ModalFooter, ModalHeader, Radio, TextInput } from "@patternfly/react-core";
import { type FormEvent, type ReactElement, type ReactNode, useState } from "react";
import { each, path, remove } from "../api/client";
import { type ApiError, asApiError } from "../api/errors";
import { change, type PipelineRow } from "../api/pipelines";
import type { Rights } from "../api/rights";
import type { Space } from "../app/space";
import { type Question, useConfirm } from "../parts/confirm";
import { Refusal } from "../parts/problem";
import type { Action } from "../parts/table";

/** The name without its space. */
export function shortName(name: string): string {
  return name.slice(name.indexOf(".") + 1);
}

type Subject = Pick<PipelineRow, "name" | "tables" | "paused" | "behindSink">;

export function deletionOf(space: Space, rows: Subject[], after?: () => void): Question {
  const tables = [...new Set(rows.flatMap((row) => row.tables))];
  const one = rows.length === 1;
  return {
    title: one ? `Delete the pipeline ${shortName(rows[0]!.name)}?` : `Delete ${rows.length} pipelines?`,
    loses: (
      <>
        {one ? "Its place in what it reads and its state" : "Their places in what they read and their states"} are deleted: a new pipeline of the
        same name begins anew, and writes again what it reads again. This cannot be undone.{" "}
        {tables.length > 0 && <>{tables.length === 1 ? "The table" : "The tables"} <b className="em-wrap">{tables.join(", ")}</b> and messages that were sent stay.</>}
        {!one && <p className="em-wrap">{rows.slice(0, 20).map((row) => shortName(row.name)).join(", ")}</p>}
      </>
    ),
    action: "Delete",
    run: async () => {
      await each(rows, (row) => remove(path(`${space.inNamespace}/pipelines`, row.name)));
      after?.();
    },
  };
}

/** The actions on pipelines, as a menu offers them, and the dialogs that they open. */
export function usePipelineActions(space: Space, rights: Rights, done: (error?: ApiError) => void): {
  of: (row: Subject | undefined, deleted?: () => void) => Action<Subject>[];
  dialog: ReactNode;
} {
  const confirm = useConfirm();
  const [restarting, setRestarting] = useState<Subject[]>();
  const refused = rights.may("patch", "pipelines") ? undefined : "You may not change pipelines here";
  const changeAll = (spec: Record<string, unknown>) => (rows: Subject[], leave: () => void) => {
    void each(rows, (row) => change(space.inNamespace, row.name, spec)).then(
      () => {
        leave();
        done();
      },
      (error: unknown) => done(asApiError(error)),
    );
  };
  const pause: Action<Subject> = { title: "Pause", refused, run: changeAll({ paused: true }) };
  const resume: Action<Subject> = { title: "Resume", refused, run: changeAll({ paused: null }) };
  const restart: Action<Subject> = { title: "Restart …", refused, run: (rows) => setRestarting(rows) };
  const deletion = (after?: () => void): Action<Subject> => ({
    title: "Delete",
    danger: true,
    refused: rights.may("delete", "pipelines") ? undefined : "You may not delete pipelines here",
    run: (rows, leave) =>
      confirm(
        deletionOf(space, rows, () => {
          leave();
          after?.();
        }),
      ),
  });
  return {
    of: (row, deleted) => [...(row ? [row.paused ? resume : pause] : [pause, resume]), restart, deletion(deleted)],
    dialog: restarting && <Restart space={space} rows={restarting} close={() => setRestarting(undefined)} done={() => done()} />,
  };
}

const POINTS: [string, string, string][] = [
  ["", "Where it stopped", "It keeps its place and its state."],
  ["earliest", "The earliest message", "Its state begins anew; everything that streams keep is read and written again."],
  ["latest", "From now on", "Its state begins anew; what came before and was not read is left out."],
  ["moment", "A moment", "Its state begins anew; what came since is read and written again."],
];

function Restart({ space, rows, close, done }: { space: Space; rows: Subject[]; close: () => void; done: () => void }): ReactElement {
  const points = rows.some(({ behindSink }) => behindSink) ? POINTS.filter(([value]) => value) : POINTS;
  const [point, setPoint] = useState(points === POINTS ? "" : undefined);
  const [day, setDay] = useState(new Date().toISOString().slice(0, 10));
  const [time, setTime] = useState("00:00:00");
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  const moment = new Date(`${day}T${time}`);
  const wrong = point === undefined || (point === "moment" && Number.isNaN(moment.getTime()));
  const run = async () => {
    setBusy(true);
    setError(undefined);
    const from = point === "moment" ? moment.toISOString() : point || null;
    const spec = { restart: { at: new Date().toISOString(), from }, paused: null };
    try {
      await each(rows, (row) => change(space.inNamespace, row.name, spec));
      done();
      close();
    } catch (caught) {
      setError(asApiError(caught));
      setBusy(false);
    }
  };
  return (
    <Modal isOpen variant="small" onClose={close} aria-labelledby="restart-title">
      <ModalHeader title={rows.length === 1 ? `Restart ${shortName(rows[0]!.name)}` : `Restart ${rows.length} pipelines`} labelId="restart-title" description="From where should it read?" />
      <ModalBody>
        <Form
          id="restart-form"
          onSubmit={(event: FormEvent) => {
            event.preventDefault();
            if (!wrong && !busy) void run();
          }}
        >
          <FormGroup role="radiogroup" fieldId="restart-" aria-label="From where">
            {points.map(([value, label, description]) => (
              <Radio key={value} id={`restart-${value}`} name="restart" label={label} description={description} isChecked={point === value} onChange={() => setPoint(value)} />
            ))}
          </FormGroup>
          {point === "moment" && (
            <FormGroup label="Moment, by this browser's clock" fieldId="restart-time">
              <DatePicker value={day} onChange={(_, value) => setDay(value)} inputProps={{ "aria-label": "Day" }} appendTo="inline" />{" "}
              <TextInput id="restart-time" className="em-time" type="time" step={1} value={time} onChange={(_, value) => setTime(value)} aria-label="Time" validated={wrong ? "error" : "default"} />
            </FormGroup>
          )}
        </Form>
        {error && <Refusal error={error} />}
      </ModalBody>
      <ModalFooter>
        <Button type="submit" form="restart-form" variant={point ? "danger" : "primary"} isLoading={busy} isDisabled={busy || wrong}>
          Restart
        </Button>
        <Button variant="link" onClick={close}>
          Leave it
        </Button>
      </ModalFooter>
    </Modal>
  );
}
