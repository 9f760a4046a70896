import { Alert, Button, Card, CardBody, CardTitle, Flex, Grid, GridItem, Label, List, ListItem } from "@patternfly/react-core";
import PlusCircleIcon from "@patternfly/react-icons/dist/esm/icons/plus-circle-icon";
import { type ReactElement } from "react";
import { Link, useNavigate } from "react-router";
import { V1 } from "../api/client";
import { useLatest } from "../api/live";
import type { Overview } from "../api/types";
import { Chart } from "../parts/chart";
import { Teach } from "../parts/empty";
import { Figures } from "../parts/facts";
import { bytes, count, duration, plural, rate } from "../parts/format";
import { PageFrame } from "../parts/frame";
import { Refusal, Words } from "../parts/problem";

const MAX_PROBLEMS = 8;

export default function StartPage(): ReactElement {
  const { data, error } = useLatest<Overview>(`${V1}/overview`);
  const navigate = useNavigate();
  const create = (
    <Button data-tour="new-space" icon={<PlusCircleIcon />} onClick={() => void navigate("/new-space")}>
      Create a space
    </Button>
  );
  return (
    <PageFrame title="Start" actions={data?.totals.spaces ? create : undefined}>
      {error && <Refusal error={error} />}
      {data && <Shown overview={data} create={create} />}
    </PageFrame>
  );
}

function Shown({ overview, create }: { overview: Overview; create: ReactElement }): ReactElement {
  const { problems, totals, series, nodes } = overview;
  if (totals.spaces === 0 && problems.length === 0) {
    return (
      <Teach title="Welcome. Begin with a space" actions={create}>
        A space is a room for the addresses of one team or application. Create one, then an address in it, and send it a
        message from any AMQP, MQTT, STOMP or HTTP client. It takes the role tenant-edit in a namespace.
      </Teach>
    );
  }
  const pipelines = Object.entries(totals.pipelines ?? {});
  return (
    <>
      <Health problems={problems} count={overview.problemCount ?? problems.length} />
      <Figures
        figures={[
          { title: "Spaces", value: <Link to="/spaces">{count(totals.spaces)}</Link>, below: plural(totals.addresses ?? 0, "address", "addresses") },
          { title: "In", value: rate(totals.messagesIn), below: "messages a second" },
          { title: "Out", value: rate(totals.messagesOut), below: "messages a second" },
          { title: "Backlog", value: count(totals.stored), below: "stored messages" },
          { title: "Connections", value: count(totals.connections), below: "of all protocols" },
          ...(pipelines.length ? [{ title: "Pipelines", value: count(pipelines.reduce((sum, [, n]) => sum + n, 0)), below: pipelines.map(([phase, n]) => `${n} ${phase}`).join(", ") }] : []),
        ]}
      />
      <Grid hasGutter lg={6}>
        {series && series.times.length > 1 && (
          <>
            <GridItem>
              <Card>
                <CardBody>
                  <Chart
                    title="Messages a second"
                    times={series.times}
                    sync="start"
                    lines={[
                      { label: "in", values: series.series.messagesIn ?? [] },
                      { label: "out", values: series.series.messagesOut ?? [] },
                    ]}
                  />
                </CardBody>
              </Card>
            </GridItem>
            {series.series.stored && (
              <GridItem>
                <Card>
                  <CardBody>
                    <Chart title="Stored messages" times={series.times} sync="start" lines={[{ label: "stored", values: series.series.stored, color: 2 }]} />
                  </CardBody>
                </Card>
              </GridItem>
            )}
          </>
        )}
        {nodes && nodes.length > 0 && (
          <GridItem lg={12}>
            <Card>
              <CardTitle>Nodes</CardTitle>
              <CardBody>
                <Flex columnGap={{ default: "columnGap2xl" }}>
                  {nodes.map((node) => (
                    <div key={node.name}>
                      <Link to="/nodes">{node.name}</Link> <Label isCompact color={node.ready ? "green" : "red"}>{node.ready ? "ready" : node.up ? "not ready" : "down"}</Label>
                      <div className="em-figure-below">
                        {[
                          node.cpu === undefined ? "" : `${Math.round(node.cpu * 100)} % of a core`,
                          node.memory === undefined ? "" : bytes(node.memory),
                          node.uptime === undefined ? "" : `up ${duration(node.uptime === undefined ? undefined : node.uptime / 1000)}`,
                        ]
                          .filter(Boolean)
                          .join(" · ")}
                      </div>
                    </div>
                  ))}
                </Flex>
              </CardBody>
            </Card>
          </GridItem>
        )}
      </Grid>
    </>
  );
}

function Health({ problems, count: all }: { problems: Overview["problems"]; count: number }): ReactElement {
  if (problems.length === 0) return <Alert isInline isPlain variant="success" title="Everything is well" className="em-health" />;
  return (
    <Alert isInline variant="danger" title={plural(all, "thing needs you", "things need you")} className="em-health">
      <List>
        {problems.slice(0, MAX_PROBLEMS).map((problem) => (
          <ListItem key={`${problem.kind}/${problem.namespace}/${problem.name}`}>
            {problem.kind}{" "}
            {problem.path ? <Link to={problem.path}>{problem.name}</Link> : <strong>{problem.name}</strong>}: {problem.text}{" "}
            {problem.remedy && <Words text={problem.remedy} />}
          </ListItem>
        ))}
      </List>
      {all > MAX_PROBLEMS && `… and ${count(all - MAX_PROBLEMS)} more.`}
    </Alert>
  );
}
