// The login, over whatever page somebody was at: what they were about to do stays there.
import { Alert, Button, Content, Form, FormGroup, Modal, ModalBody, ModalFooter, ModalHeader, TextInput } from "@patternfly/react-core";
import { type FormEvent, type ReactElement, useEffect, useState } from "react";
import { send } from "../api/client";
import { type ApiError, asApiError } from "../api/errors";
import { goOn, lookWho, type Person } from "../api/person";
import { keepProof } from "../api/proof";
import { setReach, useReach } from "../api/state";
import type { ConsoleConfig } from "../api/types";
import { Refusal } from "../parts/problem";

export function LoginDialog({ config }: { config: ConsoleConfig | undefined }): ReactElement | null {
  const { signedOut, person } = useReach();
  const [username, setUsername] = useState("");
  const [password, setPassword] = useState("");
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  const [nobody, setNobody] = useState(false);
  // Whoever signs in within another tab, by a link or at a provider, comes back to this one.
  useEffect(() => {
    if (!signedOut) return;
    const look = () => document.hidden || void goOn();
    window.addEventListener("focus", look);
    document.addEventListener("visibilitychange", look);
    return () => {
      window.removeEventListener("focus", look);
      document.removeEventListener("visibilitychange", look);
    };
  }, [signedOut]);
  // A dialog without anything to press would lock the page.
  if (!signedOut || !config) return null;

  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      const answer = await send("POST", "/login", { body: { username, password } });
      keepProof(((await answer.json()) as { proof?: string }).proof);
      setPassword("");
      await goOn();
    } catch (caught) {
      setError(asApiError(caught));
    } finally {
      setBusy(false);
    }
  };
  const { login } = config;
  return (
    <Modal isOpen variant="small" aria-labelledby="login-title" className="em-login">
      <ModalHeader
        title={person ? "Sign in again" : "Sign in"}
        labelId="login-title"
        description={person && <>The session of <bdi>{person}</bdi> is over. What you were doing goes on when you are back; somebody else begins anew.</>}
      />
      <ModalBody>
        {login.accounts && (
          <Form id="login-form" onSubmit={(event) => void submit(event)}>
            <FormGroup label="Account" fieldId="login-name" isRequired>
              <TextInput id="login-name" value={username} onChange={(_, value) => setUsername(value)} autoComplete="username" autoFocus isRequired />
            </FormGroup>
            <FormGroup label="Password" fieldId="login-password" isRequired>
              <TextInput id="login-password" type="password" value={password} onChange={(_, value) => setPassword(value)} autoComplete="current-password" isRequired />
            </FormGroup>
            {error && (error.code === 401 ? <Alert isInline variant="danger" title="The name or the password is not right." /> : <Refusal error={error} />)}
          </Form>
        )}
        {!login.accounts && !login.oidc && (
          <Content>
            <code>enmasse console</code>, on the machine where the installation runs, opens a session; so does the link that{" "}
            <code>enmasse up</code> printed. {person && "Come back here afterwards."}
          </Content>
        )}
        {nobody && <Alert isInline variant="warning" title="Nobody has signed in yet." role="status" className="em-above" />}
      </ModalBody>
      <ModalFooter>
        {login.accounts && (
          <Button type="submit" form="login-form" isLoading={busy} isDisabled={busy || !username || !password}>
            Sign in
          </Button>
        )}
        {login.oidc && (
          <Button component="a" variant={login.accounts ? "secondary" : "primary"} href="/login/oidc" target={person ? "_blank" : undefined} onClick={keepPlace}>
            Sign in with {login.oidc}
          </Button>
        )}
        {(!login.accounts || (login.oidc && person)) && <Button variant="link" onClick={() => void goOn().then((found) => setNobody(!found))}>Go on</Button>}
      </ModalFooter>
    </Modal>
  );
}

/** Asks anew who is there, before something that outlasts the session: its cookie alone may be somebody else's by now. */
export function ProofDialog({ config }: { config: ConsoleConfig | undefined }): ReactElement | null {
  const { proving, signedOut } = useReach();
  const [person, setPerson] = useState<Person>();
  const [password, setPassword] = useState("");
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    if (!proving) return;
    setPassword("");
    setError(undefined);
    let gone = false;
    void lookWho().then((found) => !gone && setPerson(found));
    return () => {
      gone = true;
    };
  }, [proving]);
  if (!proving || signedOut || !person) return null;

  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      const answer = await send("POST", "/login/proof", { body: { password }, checksPassword: true });
      keepProof(((await answer.json()) as { proof?: string }).proof);
    } catch (caught) {
      setError(asApiError(caught));
    } finally {
      setBusy(false);
    }
  };
  const leave = () => setReach({ proving: false });
  return (
    <Modal isOpen variant="small" onClose={leave} aria-labelledby="proof-title" className="em-login">
      <ModalHeader title="Is it you?" labelId="proof-title" description="What you are about to do outlasts this session, so it asks for a fresh proof. It counts for ten minutes." />
      <ModalBody>
        {person.prove === "password" && (
          <Form id="proof-form" onSubmit={(event) => void submit(event)}>
            <input type="text" name="username" autoComplete="username" value={person.username} readOnly hidden />
            <FormGroup label={<>Password of <bdi>{person.username}</bdi></>} fieldId="proof-password" isRequired>
              <TextInput id="proof-password" type="password" value={password} onChange={(_, value) => setPassword(value)} autoComplete="current-password" autoFocus isRequired />
            </FormGroup>
            {error && (error.code === 401 ? <Alert isInline variant="danger" title="The password is not right." /> : <Refusal error={error} />)}
          </Form>
        )}
        {person.prove === "link" && (
          <Content>
            <code>enmasse console</code>, on the machine where the installation runs, opens the console anew; so does the link that{" "}
            <code>enmasse up</code> printed. This goes on by itself then.
          </Content>
        )}
        {person.prove === "provider" && <Content>The identity provider asks you once more, in another tab. This goes on by itself then.</Content>}
      </ModalBody>
      <ModalFooter>
        {person.prove === "password" && (
          <Button type="submit" form="proof-form" isLoading={busy} isDisabled={busy || !password}>
            Go on
          </Button>
        )}
        {person.prove === "provider" && (
          <Button component="a" href="/login/oidc?fresh=true" target="_blank">
            Sign in with {config?.login.oidc}
          </Button>
        )}
        <Button variant="link" onClick={leave}>
          Cancel
        </Button>
      </ModalFooter>
    </Modal>
  );
}

const PLACE = "enmasse.place";

/** Remembers where somebody was who leaves for a provider's pages. */
function keepPlace(): void {
  sessionStorage.setItem(PLACE, window.location.pathname + window.location.search);
}

/** The path within the console that somebody left for a provider's pages, once. */
export function takePlace(): string | undefined {
  const place = sessionStorage.getItem(PLACE);
  sessionStorage.removeItem(PLACE);
  return place?.startsWith("/console/") && window.location.pathname === "/console/" ? place.slice("/console".length) : undefined;
}
