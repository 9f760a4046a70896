// The projects of a space: each is a tenant of the device registry, with the addresses over which its devices talk.
import { Alert, Button, Form, FormGroup, FormHelperText, FormSelect, FormSelectOption, HelperText, HelperTextItem, Modal, ModalBody, ModalFooter, ModalHeader, TextInput } from "@patternfly/react-core";
import PlusCircleIcon from "@patternfly/react-icons/dist/esm/icons/plus-circle-icon";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import { type FormEvent, type ReactElement, useState } from "react";
import { Link, useNavigate } from "react-router";
import { create, path, query } from "../api/client";
import { IOT, type IoTProject, spaceOfProject } from "../api/devices";
import { type ApiError, asApiError } from "../api/errors";
import { useLatest, useObjects } from "../api/live";
import { useRights } from "../api/rights";
import type { RowList } from "../api/types";
import { type Space, useSpace } from "../app/space";
import { Amounts, shell } from "../parts/code";
import { Teach } from "../parts/empty";
import { ago, count, dateTime, plural } from "../parts/format";
import { PageFrame } from "../parts/frame";
import { Refusal } from "../parts/problem";
import { Status } from "../parts/status";

export default function ProjectsPage(): ReactElement {
  const space = useSpace();
  const rights = useRights(space.namespace);
  const collection = path(IOT, "namespaces", space.namespace, "iotprojects");
  const { data, error } = useObjects<IoTProject>(collection);
  const [creating, setCreating] = useState(false);
  const mayCreate = rights.may("create", "iotprojects");
  const projects = data?.filter((project) => spaceOfProject(project) === space.name).sort((one, other) => one.metadata.name.localeCompare(other.metadata.name));
  const creation = (
    <Button icon={<PlusCircleIcon />} onClick={() => setCreating(true)} isAriaDisabled={!mayCreate} title={mayCreate ? undefined : "You may not create projects here"}>
      Create a project
    </Button>
  );
  return (
    <PageFrame
      title="Devices"
      trail={[{ title: "Spaces", to: "/spaces" }, { title: space.name, to: `${space.to}/addresses` }]}
      about="Projects, each with devices of its own: registered, authenticated, seen and commanded."
      actions={projects?.length ? creation : undefined}
    >
      {error && <Refusal error={error} />}
      {projects?.length === 0 && (
        <Teach title="No project yet" actions={creation}>
          A project is a tenant of the device registry, with addresses for telemetry, events and commands in this space. Its devices speak
          MQTT, HTTP or AMQP with the topics and paths of Eclipse Hono, each with credentials of its own.
        </Teach>
      )}
      {projects && projects.length > 0 && (
        <>
          <Table aria-label="Projects" variant="compact" gridBreakPoint="grid-md">
            <Thead>
              <Tr>
                <Th>Project</Th>
                <Th>Tenant</Th>
                <Th>Status</Th>
                <Th className="em-number">Devices</Th>
                <Th>Since</Th>
              </Tr>
            </Thead>
            <Tbody>
              {projects.map((project) => (
                <Tr key={project.metadata.name}>
                  <Td dataLabel="Project"><Link to={path(`${space.to}/projects`, project.metadata.name)}>{project.metadata.name}</Link></Td>
                  <Td dataLabel="Tenant"><code>{project.status?.tenant ?? `${space.namespace}.${project.metadata.name}`}</code></Td>
                  <Td dataLabel="Status"><Status phase={project.status?.phase} ready={project.status?.isReady} messages={project.status?.messages} /></Td>
                  <Td dataLabel="Devices" className="em-number"><Devices url={path(collection, project.metadata.name)} /></Td>
                  <Td dataLabel="Since"><span title={dateTime(project.metadata.creationTimestamp)}>{ago(project.metadata.creationTimestamp)}</span></Td>
                </Tr>
              ))}
            </Tbody>
          </Table>
          <p className="em-total">{plural(projects.length, "project")}</p>
        </>
      )}
      {creating && <NewProject space={space} collection={collection} close={() => setCreating(false)} />}
    </PageFrame>
  );
}

/** How many devices are registered. */
function Devices({ url }: { url: string }): ReactElement {
  const { data } = useLatest<RowList<unknown>>(query(`${url}/rows/devices`, { limit: 1 }));
  return <>{count(data?.total)}</>;
}

const TELEMETRY: [string, string][] = [
  ["anycast", "handed to whoever receives now; nothing is stored"],
  ["stream", "kept in a stream, for pipelines and for reading again"],
  ["queue", "kept in a queue until it is received"],
];

function NewProject({ space, collection, close }: { space: Space; collection: string; close: () => void }): ReactElement {
  const navigate = useNavigate();
  const [name, setName] = useState("");
  const [telemetry, setTelemetry] = useState("anycast");
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  const manifest: IoTProject = {
    apiVersion: "iot.enmasse.io/v1alpha1",
    kind: "IoTProject",
    metadata: { name, namespace: space.namespace },
    spec: { downstreamStrategy: { managedStrategy: { addressSpace: { name: space.name }, addresses: { telemetry: { type: telemetry } } } } },
  };
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      await create(collection, manifest);
      void navigate(path(`${space.to}/projects`, name));
    } catch (caught) {
      setError(asApiError(caught));
      setBusy(false);
    }
  };
  return (
    <Modal isOpen variant="medium" onClose={close} aria-labelledby="project-title">
      <ModalHeader title="Create a project" labelId="project-title" />
      <ModalBody>
        <Form id="project-form" onSubmit={(event) => void submit(event)}>
          <FormGroup label="Name" fieldId="project-name" isRequired>
            <TextInput id="project-name" value={name} onChange={(_, value) => setName(value)} isRequired autoFocus autoComplete="off" />
            <FormHelperText>
              <HelperText>
                <HelperTextItem>Lower-case letters, digits and -. Its tenant is {space.namespace}.{name || "NAME"}, which devices log in with.</HelperTextItem>
              </HelperText>
            </FormHelperText>
          </FormGroup>
          <FormGroup label="Telemetry is" fieldId="project-telemetry">
            <FormSelect id="project-telemetry" value={telemetry} onChange={(_, value) => setTelemetry(value)}>
              {TELEMETRY.map(([value, label]) => (
                <FormSelectOption key={value} value={value} label={label} />
              ))}
            </FormSelect>
          </FormGroup>
          <Alert isInline isPlain variant="info" title="Events are always kept in a queue; commands and inquiries are handed over." />
        </Form>
        <Amounts manifest={manifest} command={`enmasse apply -f manifest.yaml${space.namespace === "default" ? "" : ` --namespace ${shell(space.namespace)}`}`} />
        {error && <Refusal error={error} />}
      </ModalBody>
      <ModalFooter>
        <Button type="submit" form="project-form" isLoading={busy} isDisabled={busy || !name}>
          Create
        </Button>
        <Button variant="link" onClick={close}>
          Cancel
        </Button>
      </ModalFooter>
    </Modal>
  );
}
