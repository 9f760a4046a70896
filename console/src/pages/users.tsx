import {
  Alert,
  Button,
  Form,
  FormGroup,
  FormHelperText,
  FormSelect,
  FormSelectOption,
  HelperText,
  HelperTextItem,
  Label,
  LabelGroup,
  Modal,
  ModalBody,
  ModalFooter,
  ModalHeader,
  TextInput,
  ToolbarItem,
} from "@patternfly/react-core";
import MinusCircleIcon from "@patternfly/react-icons/dist/esm/icons/minus-circle-icon";
import PlusCircleIcon from "@patternfly/react-icons/dist/esm/icons/plus-circle-icon";
import { type FormEvent, type ReactElement, useState } from "react";
import { create, each, get, mergePatch, path, remove, USERS, write } from "../api/client";
import { type ApiError, asApiError } from "../api/errors";
import { useObject } from "../api/live";
import { useRights } from "../api/rights";
import type { AddressSpace, Grant, MessagingUser, UserRow } from "../api/types";
import { type Space, useSpace } from "../app/space";
import { Amounts, shell } from "../parts/code";
import { Listed, useConfirm } from "../parts/confirm";
import { Teach } from "../parts/empty";
import { plural } from "../parts/format";
import { PageFrame } from "../parts/frame";
import { Refusal } from "../parts/problem";
import { Status } from "../parts/status";
import { type Action, type Column, LiveTable } from "../parts/table";

const OPERATIONS = ["send", "recv", "view", "manage"];
const OF_SPACE = new Set(["view", "manage"]);

function usersOf(space: Space): string {
  return path(`${USERS}/namespaces`, space.namespace, "messagingusers");
}

function base64(text: string): string {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
}

function Grants({ grants }: { grants: Grant[] | undefined }): ReactElement {
  if (!grants?.length) return <span className="em-figure-below">nothing</span>;
  return (
    <LabelGroup numLabels={4}>
      {grants.map((grant, index) => (
        <Label key={index} isCompact>
          <span className="em-wrap">
            {grant.operations.join(", ")} {grant.addresses?.join(" ")}
          </span>
        </Label>
      ))}
    </LabelGroup>
  );
}

export default function UsersPage(): ReactElement {
  const space = useSpace();
  const confirm = useConfirm();
  const rights = useRights(space.namespace);
  const object = useObject<AddressSpace>(`${space.inNamespace}/addressspaces`, space.name).data;
  const [edited, setEdited] = useState<UserRow | "new">();
  const [asked, setAsked] = useState<UserRow>();
  const [password, setPassword] = useState<UserRow>();
  const mayCreate = rights.may("create", "messagingusers");
  const mayUpdate = rights.may("patch", "messagingusers") ? undefined : "You may not change users";
  const service = object?.spec.authenticationService;
  const open = service?.type === "none" || service?.name?.startsWith("none") === true;

  const deletion: Action<UserRow> = {
    title: "Delete",
    danger: true,
    refused: rights.may("delete", "messagingusers") ? undefined : "You may not delete users",
    run: (rows, done) =>
      confirm({
        title: `Delete ${plural(rows.length, "user")}?`,
        loses: <><Listed names={rows.map((row) => row.username)} />: their connections are closed, and they do not come in again. Messages stay.</>,
        action: "Delete",
        run: async () => {
          await each(rows, (row) => remove(path(usersOf(space), row.name)));
          done();
        },
      }),
  };
  const columns: Column<UserRow>[] = [
    { key: "username", title: "User", cell: (row) => <bdi className="em-wrap">{row.username}</bdi> },
    { key: "authentication", title: "Proved by", sortable: false, cell: (row) => row.authentication },
    { key: "grants", title: "May", sortable: false, cell: (row) => <Grants grants={row.grants} /> },
    { key: "phase", title: "Status", cell: (row) => <Status {...row} /> },
  ];
  const creation = (
    <Button icon={<PlusCircleIcon />} onClick={() => setEdited("new")} isAriaDisabled={!mayCreate} title={mayCreate ? undefined : "You may not create users here"}>
      Create a user
    </Button>
  );
  return (
    <PageFrame title="Users" trail={[{ title: "Spaces", to: "/spaces" }, { title: space.name, to: `${space.to}/addresses` }]}>
      {open && (
        <Alert isInline variant="warning" title="This space lets everybody in" className="em-health">
          Its authentication service is none: whoever reaches it may send and receive everything, and users declared here wait. Choose
          another one in its settings (Plan and quota).
        </Alert>
      )}
      <LiveTable<UserRow>
        label="Users"
        noun="user"
        url={`${space.api}/rows/users`}
        columns={columns}
        rowKey={(row) => row.name}
        rowActions={(row) => [
          { title: "May this user …?", run: () => setAsked(row) },
          { title: "Change what it may", refused: mayUpdate, run: () => setEdited(row) },
          ...(row.authentication === "password" || !row.authentication ? [{ title: "Set the password", refused: mayUpdate, run: () => setPassword(row) }] : []),
          deletion,
        ]}
        bulkActions={[deletion]}
        toolbar={<ToolbarItem>{creation}</ToolbarItem>}
        empty={
          <Teach title="No user yet" actions={creation}>
            Applications and devices log in as users of the space. Each may do what its permissions say, and nothing else: begin with
            one that may send to one address.
          </Teach>
        }
      />
      {edited && <UserForm space={space} row={edited === "new" ? undefined : edited} close={() => setEdited(undefined)} />}
      {asked && <MayDialog space={space} row={asked} close={() => setAsked(undefined)} />}
      {password && <PasswordDialog space={space} row={password} close={() => setPassword(undefined)} />}
    </PageFrame>
  );
}

function command(space: Space, username: string, authentication: string, subject: string, grants: Grant[]): string {
  const words = ["enmasse", "create", "user", username || "NAME", "--space", space.name];
  for (const grant of grants) {
    for (const operation of grant.operations) {
      if (OF_SPACE.has(operation)) words.push(`--${operation}`);
      else for (const address of grant.addresses ?? []) words.push(`--${operation}`, address);
    }
  }
  if (authentication === "certificate") words.push("--certificate", subject || username);
  if (authentication === "federated") words.push("--federated");
  if (space.namespace !== "default") words.push("--namespace", space.namespace);
  return words.map(shell).join(" ");
}

function UserForm({ space, row, close }: { space: Space; row: UserRow | undefined; close: () => void }): ReactElement {
  const [username, setUsername] = useState(row?.username ?? "");
  const [authentication, setAuthentication] = useState(row?.authentication ?? "password");
  const [password, setPassword] = useState("");
  const [subject, setSubject] = useState("");
  const [grants, setGrants] = useState<Grant[]>(row?.grants ?? [{ operations: ["send", "recv"], addresses: ["#"] }]);
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  const change = (index: number, next: Partial<Grant>) => setGrants(grants.map((grant, at) => (at === index ? { ...grant, ...next } : grant)));
  const authorization = grants
    .filter((grant) => grant.operations.length > 0)
    .map((grant) => ({ operations: grant.operations, ...(grant.operations.every((operation) => OF_SPACE.has(operation)) ? {} : { addresses: grant.addresses ?? [] }) }));
  const manifest: MessagingUser = {
    apiVersion: "user.enmasse.io/v1beta1",
    kind: "MessagingUser",
    metadata: { name: `${space.name}.${username.replace(/[^a-z0-9.-]/g, "-")}`, namespace: space.namespace },
    spec: {
      username,
      authentication: { type: authentication, ...(authentication === "certificate" && subject ? { subject } : {}) },
      authorization,
    },
  };
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      if (row) {
        await mergePatch(path(usersOf(space), row.name), { spec: { authorization } });
      } else {
        const secret = authentication === "password" && password ? { password: base64(password) } : {};
        await create(usersOf(space), { ...manifest, spec: { ...manifest.spec, authentication: { ...manifest.spec.authentication, ...secret } } });
      }
      close();
    } catch (caught) {
      setError(asApiError(caught));
      setBusy(false);
    }
  };
  return (
    <Modal isOpen variant="medium" onClose={close} aria-labelledby="user-title">
      <ModalHeader title={row ? `What ${row.username} may do` : "Create a user"} labelId="user-title" />
      <ModalBody>
        <Form id="user-form" onSubmit={(event) => void submit(event)}>
          {!row && (
            <>
              <FormGroup label="User name" fieldId="username" isRequired>
                <TextInput id="username" value={username} onChange={(_, value) => setUsername(value)} isRequired autoFocus autoComplete="off" />
              </FormGroup>
              <FormGroup label="Proved by" fieldId="authentication">
                <FormSelect id="authentication" value={authentication} onChange={(_, value) => setAuthentication(value)}>
                  <FormSelectOption value="password" label="a password" />
                  <FormSelectOption value="certificate" label="a client certificate" />
                  <FormSelectOption value="federated" label="the space's provider of identities" />
                </FormSelect>
              </FormGroup>
              {authentication === "password" && (
                <FormGroup label="Password" fieldId="password">
                  <TextInput id="password" type="password" value={password} onChange={(_, value) => setPassword(value)} autoComplete="new-password" />
                  <FormHelperText>
                    <HelperText>
                      <HelperTextItem>It is never shown again. Without one the user waits until one is set.</HelperTextItem>
                    </HelperText>
                  </FormHelperText>
                </FormGroup>
              )}
              {authentication === "certificate" && (
                <FormGroup label="Name in the certificate" fieldId="subject">
                  <TextInput id="subject" value={subject} onChange={(_, value) => setSubject(value)} placeholder={username} autoComplete="off" />
                </FormGroup>
              )}
            </>
          )}
          <FormGroup label="May" role="group" fieldId="grants">
            {grants.map((grant, index) => (
              <div key={index} className="em-grant">
                <div>
                  {OPERATIONS.map((operation) => (
                    <label key={operation} className="em-operation">
                      <input
                        type="checkbox"
                        checked={grant.operations.includes(operation)}
                        onChange={(event) => change(index, { operations: OPERATIONS.filter((item) => (item === operation ? event.target.checked : grant.operations.includes(item))) })}
                      />{" "}
                      {operation}
                    </label>
                  ))}
                </div>
                <TextInput
                  aria-label="Addresses"
                  value={(grant.addresses ?? []).join(" ")}
                  onChange={(_, value) => change(index, { addresses: value.split(" ").filter((word, at, all) => word !== "" || at === all.length - 1) })}
                  placeholder="orders/# own/${username}/#"
                />
                <Button variant="plain" aria-label="Take this permission away" icon={<MinusCircleIcon />} onClick={() => setGrants(grants.filter((_, at) => at !== index))} />
              </div>
            ))}
            <Button variant="link" icon={<PlusCircleIcon />} onClick={() => setGrants([...grants, { operations: ["send"], addresses: [] }])}>
              One more
            </Button>
            <FormHelperText>
              <HelperText>
                <HelperTextItem>Addresses as patterns, divided by spaces: * is one word, # any rest. view and manage are about the whole space.</HelperTextItem>
              </HelperText>
            </FormHelperText>
          </FormGroup>
        </Form>
        {!row && <Amounts manifest={manifest} command={command(space, username, authentication, subject, authorization)} />}
        {error && <Refusal error={error} />}
      </ModalBody>
      <ModalFooter>
        <Button type="submit" form="user-form" isLoading={busy} isDisabled={busy || !username}>
          {row ? "Save" : "Create"}
        </Button>
        <Button variant="link" onClick={close}>
          Cancel
        </Button>
      </ModalFooter>
    </Modal>
  );
}

function MayDialog({ space, row, close }: { space: Space; row: UserRow; close: () => void }): ReactElement {
  const [operation, setOperation] = useState("send");
  const [address, setAddress] = useState("");
  const [answer, setAnswer] = useState<{ allowed: boolean; reason: string }>();
  const [error, setError] = useState<ApiError>();
  const ask = async (event: FormEvent) => {
    event.preventDefault();
    setAnswer(undefined);
    setError(undefined);
    try {
      const { value } = await write<{ allowed: boolean; reason: string }>("POST", `${path(usersOf(space), row.name)}/check`, {
        body: { operation, ...(OF_SPACE.has(operation) ? {} : { address }) },
      });
      setAnswer(value);
    } catch (caught) {
      setError(asApiError(caught));
    }
  };
  return (
    <Modal isOpen variant="small" onClose={close} aria-labelledby="may-title">
      <ModalHeader title={`May ${row.username} …?`} labelId="may-title" />
      <ModalBody>
        <Form id="may-form" onSubmit={(event) => void ask(event)}>
          <FormGroup label="Do what" fieldId="may-operation">
            <FormSelect id="may-operation" value={operation} onChange={(_, value) => setOperation(value)}>
              <FormSelectOption value="send" label="send to an address" />
              <FormSelectOption value="recv" label="receive from an address" />
              <FormSelectOption value="view" label="see the space's addresses and statistics" />
              <FormSelectOption value="manage" label="purge and move messages, and close connections" />
            </FormSelect>
          </FormGroup>
          {!OF_SPACE.has(operation) && (
            <FormGroup label="Address" fieldId="may-address" isRequired>
              <TextInput id="may-address" value={address} onChange={(_, value) => setAddress(value)} isRequired autoFocus autoComplete="off" />
            </FormGroup>
          )}
        </Form>
        {answer && (
          <Alert isInline variant={answer.allowed ? "success" : "danger"} title={answer.allowed ? "Yes" : "No"} className="em-above" role="status">
            {answer.reason}
          </Alert>
        )}
        {error && <Refusal error={error} />}
      </ModalBody>
      <ModalFooter>
        <Button type="submit" form="may-form" isDisabled={!OF_SPACE.has(operation) && !address}>
          Ask
        </Button>
        <Button variant="link" onClick={close}>
          Close
        </Button>
      </ModalFooter>
    </Modal>
  );
}

function PasswordDialog({ space, row, close }: { space: Space; row: UserRow; close: () => void }): ReactElement {
  const [password, setPassword] = useState("");
  const [error, setError] = useState<ApiError>();
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    try {
      const url = path(usersOf(space), row.name);
      const user = await get<MessagingUser>(url);
      await mergePatch(url, { metadata: { resourceVersion: user.metadata.resourceVersion }, spec: { authentication: { type: "password", password: base64(password) } } });
      close();
    } catch (caught) {
      setError(asApiError(caught));
    }
  };
  return (
    <Modal isOpen variant="small" onClose={close} aria-labelledby="password-title">
      <ModalHeader title={`The password of ${row.username}`} labelId="password-title" description="Connections that it has with another password are closed." />
      <ModalBody>
        <Form id="password-form" onSubmit={(event) => void submit(event)}>
          <FormGroup label="New password" fieldId="new-password" isRequired>
            <TextInput id="new-password" type="password" value={password} onChange={(_, value) => setPassword(value)} autoComplete="new-password" autoFocus isRequired />
          </FormGroup>
        </Form>
        {error && <Refusal error={error} />}
      </ModalBody>
      <ModalFooter>
        <Button type="submit" form="password-form" isDisabled={!password}>
          Set
        </Button>
        <Button variant="link" onClick={close}>
          Cancel
        </Button>
      </ModalFooter>
    </Modal>
  );
}
