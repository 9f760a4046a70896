import {
  Alert,
  Button,
  Card,
  CardBody,
  CardTitle,
  Checkbox,
  Form,
  FormGroup,
  FormHelperText,
  FormSelect,
  FormSelectOption,
  HelperText,
  HelperTextItem,
  Label,
  Modal,
  ModalBody,
  ModalFooter,
  ModalHeader,
  TextInput,
} from "@patternfly/react-core";
import { type FormEvent, type ReactElement, useState } from "react";
import { create, path, query, remove, write } from "../api/client";
import { type ApiError, asApiError } from "../api/errors";
import { useGet } from "../api/live";
import type { Person } from "../api/person";
import { forgetProof } from "../api/proof";
import { Code } from "../parts/code";
import { useConfirm } from "../parts/confirm";
import { ago, dateTime, plural, UNKNOWN } from "../parts/format";
import { PageFrame } from "../parts/frame";
import { Refusal } from "../parts/problem";
import { Rows } from "../parts/rows";

const ACCESS = "/apis/access.enmasse.io/v1beta1";
const DAY_S = 86_400;

interface Token {
  id: string;
  note: string;
  created: string;
  expires: string | null;
  lastUsed: string | null;
  endsSoon: boolean;
  madeBy: string | null;
  parent: string | null;
}

interface BrowserSession {
  id: string;
  began: string;
  lastUsed: string;
  from: string;
  agent: string;
  current: boolean;
}

interface Items<T> {
  items: T[];
}

const MADE_BY: Record<string, string> = { session: "console or enmasse login", token: "another token", certificate: "a certificate", operator: "the operator" };

function Ends({ token }: { token: Token }): ReactElement {
  if (!token.expires) return <Label isCompact color="orange">never</Label>;
  return (
    <>
      <span title={dateTime(token.expires)}>{ago(token.expires)}</span> {token.endsSoon && <Label isCompact color="orange">soon</Label>}
    </>
  );
}

export default function AccountPage(): ReactElement {
  const { data: person, error } = useGet<Person>("/whoami");
  const name = person?.username;
  const own = name ? { account: name } : {};
  const tokens = useGet<Items<Token>>(name ? query(`${ACCESS}/tokens`, own) : null);
  const sessions = useGet<Items<BrowserSession>>(name ? `${ACCESS}/sessions` : null);
  const confirm = useConfirm();
  const [dialog, setDialog] = useState<"token" | "password" | "everywhere">();
  const leave = (url: string) =>
    confirm({
      title: "End this session?",
      loses: "Whoever uses it has to sign in again.",
      action: "End it",
      run: async () => {
        await remove(url);
        sessions.again();
      },
    });
  const revoke = (token: Token) =>
    confirm({
      title: <>Revoke the token {token.id}?</>,
      loses: <>{token.note && <><bdi>{token.note}</bdi>: </>}whatever uses it is refused at once, and so are tokens that were made with it.</>,
      action: "Revoke",
      run: async () => {
        await remove(path(`${ACCESS}/tokens`, token.id));
        tokens.again();
      },
    });
  const items = tokens.data?.items ?? [];
  return (
    <PageFrame title="Tokens and sessions" about={name && <>What lets <bdi>{name}</bdi> in, and from where. End what you do not know, and change your password then.</>}>
      {error && <Refusal error={error} />}
      <Card>
        <CardTitle component="h2">Sessions</CardTitle>
        <CardBody>
          {sessions.error && <Refusal error={sessions.error} />}
          {sessions.data && (
            <Rows<BrowserSession>
              label="Sessions"
              rows={sessions.data.items}
              rowKey={(row) => row.id}
              none="No browser has a session."
              heads={[
                { title: "From", cell: (row) => <><span className="em-wrap">{row.from || UNKNOWN}</span> {row.current && <Label isCompact color="green">this one</Label>}</> },
                { title: "Browser", cell: (row) => <bdi className="em-wrap">{row.agent || UNKNOWN}</bdi> },
                { title: "Began", cell: (row) => <span title={dateTime(row.began)}>{ago(row.began)}</span> },
                { title: "Last used", cell: (row) => <span title={dateTime(row.lastUsed)}>{ago(row.lastUsed)}</span> },
                { title: "", cell: (row) => !row.current && <Button variant="link" isInline onClick={() => leave(path(`${ACCESS}/sessions`, row.id))}>End</Button> },
              ]}
            />
          )}
          <p className="em-above">
            <Button variant="secondary" onClick={() => setDialog("everywhere")}>Sign out everywhere</Button>
          </p>
        </CardBody>
      </Card>
      <Card className="em-above">
        <CardTitle component="h2">Tokens</CardTitle>
        <CardBody>
          {person && !person.hasPassword && items.length === 0 && (
            <p className="em-total">Tokens are of accounts, which <code>enmasse account add</code> makes; who comes by a link or from a provider has none.</p>
          )}
          {tokens.error && <Refusal error={tokens.error} />}
          {person && (person.hasPassword || items.length > 0) && (
            <>
              <Rows<Token>
                label="Tokens"
                rows={items}
                rowKey={(row) => row.id}
                none="You have none. Programs use the API with one."
                heads={[
                  { title: "Token", cell: (row) => <><code>{row.id}</code>{row.note && <div><bdi className="em-wrap">{row.note}</bdi></div>}</> },
                  { title: "Made", cell: (row) => <span title={dateTime(row.created)}>{ago(row.created)}</span> },
                  { title: "Made by", cell: (row) => (row.madeBy ? MADE_BY[row.madeBy] : UNKNOWN) },
                  { title: "Last used", cell: (row) => (row.lastUsed ? <span title={dateTime(row.lastUsed)}>{ago(row.lastUsed)}</span> : "never") },
                  { title: "Ends", cell: (row) => <Ends token={row} /> },
                  { title: "", cell: (row) => <Button variant="link" isInline isDanger onClick={() => revoke(row)}>Revoke</Button> },
                ]}
              />
              <p className="em-above">
                <Button className="em-beside" onClick={() => setDialog("token")}>Make a token</Button>
                {person.hasPassword && <Button variant="secondary" onClick={() => setDialog("password")}>Change the password</Button>}
              </p>
            </>
          )}
        </CardBody>
      </Card>
      {dialog === "token" && <NewToken close={() => { setDialog(undefined); tokens.again(); }} />}
      {dialog === "password" && name && (
        <PasswordDialog name={name} tokens={items} others={(sessions.data?.items ?? []).filter((session) => !session.current).length} close={() => { setDialog(undefined); tokens.again(); sessions.again(); }} />
      )}
      {dialog === "everywhere" && <EverywhereDialog tokens={items} close={() => setDialog(undefined)} />}
    </PageFrame>
  );
}

function NewToken({ close }: { close: () => void }): ReactElement {
  const [note, setNote] = useState("");
  const [days, setDays] = useState("90");
  const [made, setMade] = useState<Token & { token: string }>();
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      setMade(await create(`${ACCESS}/tokens`, { note, expirationSeconds: Number(days) * DAY_S }));
    } catch (caught) {
      setError(asApiError(caught));
    } finally {
      setBusy(false);
    }
  };
  return (
    <Modal isOpen variant="small" onClose={close} aria-labelledby="token-title">
      <ModalHeader title={made ? "Your token" : "Make a token"} labelId="token-title" description={made ? "It is shown this one time." : "A program that has it may do what you may."} />
      <ModalBody>
        {made ? (
          <>
            <Code text={made.token} />
            <p className="em-above">{made.expires ? <>It ends at {dateTime(made.expires)}; answers warn of that beforehand.</> : "It does not end until it is revoked."}</p>
          </>
        ) : (
          <Form id="token-form" onSubmit={(event) => void submit(event)}>
            <FormGroup label="What it is for" fieldId="token-note">
              <TextInput id="token-note" value={note} maxLength={100} onChange={(_, value) => setNote(value)} autoFocus autoComplete="off" />
            </FormGroup>
            <FormGroup label="Good for" fieldId="token-days">
              <FormSelect id="token-days" value={days} onChange={(_, value) => setDays(value)}>
                <FormSelectOption value="1" label="a day" />
                <FormSelectOption value="30" label="30 days" />
                <FormSelectOption value="90" label="90 days" />
                <FormSelectOption value="365" label="a year" />
                <FormSelectOption value="0" label="until it is revoked" />
              </FormSelect>
              {days === "0" && (
                <FormHelperText>
                  <HelperText>
                    <HelperTextItem variant="warning">Nobody notices when such a token is lost.</HelperTextItem>
                  </HelperText>
                </FormHelperText>
              )}
            </FormGroup>
          </Form>
        )}
        {error && <Refusal error={error} />}
      </ModalBody>
      <ModalFooter>
        {made ? (
          <Button onClick={close}>Done</Button>
        ) : (
          <>
            <Button type="submit" form="token-form" isLoading={busy} isDisabled={busy}>Make it</Button>
            <Button variant="link" onClick={close}>Cancel</Button>
          </>
        )}
      </ModalFooter>
    </Modal>
  );
}

/** The tokens of an account, each with a box: those that were made in the console, or by a login, are ticked. */
function useEnding(tokens: Token[]): { ids: string[]; choice: ReactElement | null } {
  const [ticked, setTicked] = useState(() => new Set(tokens.filter((token) => token.madeBy === "session").map((token) => token.id)));
  const tick = (id: string, on: boolean) => setTicked((before) => new Set(on ? [...before, id] : [...before].filter((item) => item !== id)));
  const choice = tokens.length ? (
    <FormGroup role="group" fieldId="ending" label="Tokens that end as well">
      {tokens.map((token) => (
        <Checkbox
          key={token.id}
          id={`end-${token.id}`}
          label={<><code>{token.id}</code> <bdi>{token.note}</bdi></>}
          description={`made ${ago(token.created)} by ${token.madeBy ? MADE_BY[token.madeBy] : "an older version"}, last used ${token.lastUsed ? ago(token.lastUsed) : "never"}`}
          isChecked={ticked.has(token.id)}
          onChange={(_, on) => tick(token.id, on)}
        />
      ))}
    </FormGroup>
  ) : null;
  return { ids: [...ticked], choice };
}

function PasswordDialog({ name, tokens, others, close }: { name: string; tokens: Token[]; others: number; close: () => void }): ReactElement {
  const [former, setFormer] = useState("");
  const [password, setPassword] = useState("");
  const [again, setAgain] = useState("");
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  const { ids, choice } = useEnding(tokens);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      const body = { oldPassword: former, password, endTokens: ids };
      await write("PUT", path(`${ACCESS}/accounts`, name, "password"), { body, checksPassword: true });
      forgetProof();
      close();
    } catch (caught) {
      setError(asApiError(caught));
      setBusy(false);
    }
  };
  const differs = again !== "" && again !== password;
  return (
    <Modal isOpen variant="small" onClose={close} aria-labelledby="change-title">
      <ModalHeader title="Change the password" labelId="change-title" description={`${others ? plural(others, "other session") : "No other session"} will end.`} />
      <ModalBody>
        <Form id="change-form" onSubmit={(event) => void submit(event)}>
          <FormGroup label="Present password" fieldId="former" isRequired>
            <TextInput id="former" type="password" value={former} onChange={(_, value) => setFormer(value)} autoComplete="current-password" isRequired autoFocus />
          </FormGroup>
          <FormGroup label="New password" fieldId="changed" isRequired>
            <TextInput id="changed" type="password" value={password} onChange={(_, value) => setPassword(value)} autoComplete="new-password" isRequired />
          </FormGroup>
          <FormGroup label="New password, again" fieldId="again" isRequired>
            <TextInput id="again" type="password" value={again} onChange={(_, value) => setAgain(value)} autoComplete="new-password" isRequired validated={differs ? "error" : "default"} />
          </FormGroup>
          {choice}
        </Form>
        {error && (error.code === 401 ? <Alert isInline variant="danger" title="The present password is not right." className="em-above" /> : <Refusal error={error} />)}
      </ModalBody>
      <ModalFooter>
        <Button type="submit" form="change-form" isLoading={busy} isDisabled={busy || !former || !password || again !== password}>Change it</Button>
        <Button variant="link" onClick={close}>Cancel</Button>
      </ModalFooter>
    </Modal>
  );
}

function EverywhereDialog({ tokens, close }: { tokens: Token[]; close: () => void }): ReactElement {
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  const { ids, choice } = useEnding(tokens);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    try {
      await write("DELETE", `${ACCESS}/sessions`, { body: { endTokens: ids } });
      forgetProof();
      window.location.assign("/console/");
    } catch (caught) {
      setError(asApiError(caught));
      setBusy(false);
    }
  };
  return (
    <Modal isOpen variant="small" onClose={close} aria-labelledby="everywhere-title">
      <ModalHeader title="Sign out everywhere?" titleIconVariant="warning" labelId="everywhere-title" description="All your sessions end, this one too." />
      <ModalBody>
        <Form id="everywhere-form" onSubmit={(event) => void submit(event)}>{choice}</Form>
        {error && <Refusal error={error} />}
      </ModalBody>
      <ModalFooter>
        <Button variant="danger" type="submit" form="everywhere-form" isLoading={busy} isDisabled={busy}>Sign out everywhere</Button>
        <Button variant="link" onClick={close}>Cancel</Button>
      </ModalFooter>
    </Modal>
  );
}
