import { Button, ToolbarItem } from "@patternfly/react-core";
import PlusCircleIcon from "@patternfly/react-icons/dist/esm/icons/plus-circle-icon";
import { type ReactElement, useMemo, useState } from "react";
import { Link, useNavigate } from "react-router";
import { path } from "../api/client";
import type { ApiError } from "../api/errors";
import type { PipelineRow } from "../api/pipelines";
import { useRights } from "../api/rights";
import { useSpace } from "../app/space";
import { Sparkline } from "../parts/chart";
import { Teach } from "../parts/empty";
import { ago, count, dateTime, rate } from "../parts/format";
import { PageFrame } from "../parts/frame";
import { Refusal } from "../parts/problem";
import { Status } from "../parts/status";
import { type Column, LiveTable } from "../parts/table";
import { shortName, usePipelineActions } from "./pipeline-actions";

const PHASES = ["Running", "Starting", "Pending", "Paused", "Failed", "Finished", "Terminating"];

function columns(to: string): Column<PipelineRow>[] {
  return [
    {
      key: "name",
      title: "Pipeline",
      cell: (row) => (
        <>
          <Link to={path(`${to}/pipelines`, row.name)} className="em-wrap">{shortName(row.name)}</Link>
          <div className="em-figure-below em-nowrap">{row.builtin ? `built in: ${row.builtin}` : "declared"}</div>
        </>
      ),
    },
    { key: "phase", title: "Status", cell: (row) => <Status phase={row.phase} ready={row.ready} messages={row.messages} /> },
    {
      key: "rate",
      title: "Rows/s",
      number: true,
      cell: (row) => (
        <>
          <Sparkline values={row.spark?.rate} label={`rows a second, lately; now ${rate(row.rate)}`} />
          {rate(row.rate)}
        </>
      ),
    },
    { key: "rows", title: "Rows", number: true, cell: (row) => count(row.rows) },
    { key: "lag", title: "Lag", number: true, cell: (row) => count(row.lag) },
    { key: "watermark", title: "Watermark", brief: true, cell: (row) => row.watermark && <span title={dateTime(row.watermark)}>{ago(row.watermark)}</span> },
    { key: "sources", title: "Reads", sortable: false, cell: (row) => <span className="em-names">{row.sources.join(", ")}</span> },
    { key: "sinks", title: "Writes", sortable: false, cell: (row) => <span className="em-names">{row.sinks.join(", ")}</span> },
    { key: "lastError", title: "Last error", cell: (row) => row.lastError && <span className="em-last-error em-wrap" title={row.lastError}>{row.lastError}</span> },
  ];
}

export default function PipelinesPage(): ReactElement {
  const space = useSpace();
  const navigate = useNavigate();
  const rights = useRights(space.namespace);
  const [error, setError] = useState<ApiError>();
  const actions = usePipelineActions(space, rights, setError);
  const shown = useMemo(() => columns(space.to), [space.to]);
  const mayCreate = rights.may("create", "pipelines");
  const creation = (
    <Button icon={<PlusCircleIcon />} onClick={() => void navigate(`${space.to}/new-pipeline`)} isAriaDisabled={!mayCreate} title={mayCreate ? undefined : "You may not create pipelines here"}>
      Create a pipeline
    </Button>
  );
  return (
    <PageFrame title="Pipelines" trail={[{ title: "Spaces", to: "/spaces" }, { title: space.name, to: `${space.to}/addresses` }]}>
      {error && <Refusal error={error} />}
      <LiveTable<PipelineRow>
        label="Pipelines"
        noun="pipeline"
        url={`${space.api}/rows/pipelines`}
        columns={shown}
        rowKey={(row) => row.name}
        filters={[{ key: "status", title: "Status", options: PHASES }]}
        rowActions={(row) => actions.of(row)}
        bulkActions={actions.of(undefined)}
        toolbar={<ToolbarItem>{creation}</ToolbarItem>}
        empty={
          <Teach
            title="No pipeline yet"
            actions={
              <>
                {creation}
                <Button variant="link" onClick={() => void navigate(`${space.to}/sql`)}>
                  Ask a stream with SQL
                </Button>
              </>
            }
          >
            A pipeline computes with what flows through addresses, on Spark: it keeps a <b>stream as a table</b>, makes{" "}
            <b>windows</b> of it, raises <b>alerts</b> and sends commands back. Nine of them are built in: name an address, and one runs.
          </Teach>
        }
      />
      {actions.dialog}
    </PageFrame>
  );
}

